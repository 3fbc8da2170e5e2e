#!/usr/bin/env bash
# Builds the servers that the tests and the demo run, once, into a cache outside the clone.
#
#   install.sh [NAME…]   build what is missing (default: all that `make test` needs)
#   install.sh --print   one line NAME=PATH for each program, without building anything
#
# The cache is ${STATUSBRIDGE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/statusbridge}/servers. An entry is named by its version and a
# hash of the files that pin it. So a change of a module builds all that is in it anew, of which Go's own cache has most.
# With KUBEBUILDER_ASSETS set, kube-apiserver, etcd and kubectl are taken from there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STATUSBRIDGE_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or STATUSBRIDGE_CACHE}/.cache}/statusbridge}/servers
assets=${KUBEBUILDER_ASSETS:-}
common=github.com/prometheus/common/version.Version
k8s=k8s.io/component-base/version
mimir=github.com/grafana/mimir/pkg/util/version
helm=helm.sh/helm/v3/pkg

# Most are in one Go module, so that the libraries they share are compiled once: Kubernetes' own, gRPC, clients of clouds. Those
# that cannot share its versions have a go.mod of their own, in the directory of their name.
# name | module whose version counts | programs | packages | build tags | linker flags
servers='
kubernetes|k8s.io/kubernetes|kube-apiserver kubectl|k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl||-X '$k8s'.gitVersion=v@V@ -X '$k8s'.gitMajor=@MAJOR@ -X '$k8s'.gitMinor=@MINOR@
etcd|go.etcd.io/etcd/server/v3|etcd|go.etcd.io/etcd/server/v3||
prometheus|github.com/prometheus/prometheus|prometheus promtool|github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool|remove_all_sd|-X '$common'=@V@
kustomize-controller|github.com/fluxcd/kustomize-controller|kustomize-controller|github.com/fluxcd/kustomize-controller||
source-controller|github.com/fluxcd/source-controller|source-controller registry flux|github.com/fluxcd/source-controller github.com/distribution/distribution/v3/cmd/registry statusbridge.dev/tests/servers/source-controller||
flux-operator|github.com/controlplaneio-fluxcd/flux-operator|flux-operator|github.com/controlplaneio-fluxcd/flux-operator/statusbridge||
argocd|github.com/argoproj/argo-cd/v3|argocd|statusbridge.dev/tests/servers/argocd||
argocd-lua|github.com/yuin/gopher-lua|argocd-lua|statusbridge.dev/tests/servers/argocd-lua||
argo-rollouts|github.com/argoproj/argo-rollouts|rollouts-controller|github.com/argoproj/argo-rollouts/cmd/rollouts-controller||
promotion-steps|github.com/expr-lang/expr|promotion-steps|statusbridge.dev/tests/servers/promotion-steps||
crossplane-changelog|github.com/crossplane/crossplane-runtime/v2|changelog-client|statusbridge.dev/tests/servers/crossplane-changelog||
kpt|github.com/kptdev/kpt|kpt-live|statusbridge.dev/tests/servers/kpt||-X main.version=v@V@
kstatus|sigs.k8s.io/cli-utils|kstatus|statusbridge.dev/tests/servers/kstatus||
helm|helm.sh/helm/v3|helm|helm.sh/helm/v3/cmd/helm||-X helm.sh/helm/v3/internal/version.version=v@V@ -X '$helm'/chartutil.k8sVersionMajor=1 -X '$helm'/chartutil.k8sVersionMinor=36 -X '$helm'/lint/rules.k8sVersionMajor=1 -X '$helm'/lint/rules.k8sVersionMinor=36
victoria-metrics-cluster|github.com/VictoriaMetrics/VictoriaMetrics|vminsert vmselect vmstorage|github.com/VictoriaMetrics/VictoriaMetrics/app/vminsert github.com/VictoriaMetrics/VictoriaMetrics/app/vmselect github.com/VictoriaMetrics/VictoriaMetrics/app/vmstorage||-X github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version=v@V@
thanos|github.com/thanos-io/thanos|thanos|github.com/thanos-io/thanos/cmd/thanos|slicelabels|-X '$common'=@V@
mimir|github.com/grafana/mimir|mimir|github.com/grafana/mimir/cmd/mimir|netgo stringlabels|-X '$mimir'.Version=@V@
ocm|open-cluster-management.io/ocm|ocm-placement ocm-work|statusbridge.dev/tests/servers/ocm/placement statusbridge.dev/tests/servers/ocm/work||
kubefleet|go.goms.io/fleet|kubefleet-updaterun|statusbridge.dev/tests/servers/kubefleet||
etcd-old|go.etcd.io/etcd/server/v3|etcd-old|go.etcd.io/etcd/server/v3||
kube-state-metrics|k8s.io/kube-state-metrics/v2|kube-state-metrics|k8s.io/kube-state-metrics/v2||-X '$common'=@V@
otel-collector|github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver|otel-collector|statusbridge.dev/tests/servers/otel-collector|remove_all_sd|-X main.version=v@V@
actionlint|github.com/rhysd/actionlint|actionlint|github.com/rhysd/actionlint/cmd/actionlint||-X github.com/rhysd/actionlint.version=@V@
kubeconform|github.com/yannh/kubeconform|kubeconform|github.com/yannh/kubeconform/cmd/kubeconform||-X main.version=v@V@
'
# The others are asked for by name: by `make long`, `make bench`, deploy/check and deploy/lint.
default_names="kubernetes etcd prometheus victoria-metrics victoria-metrics-cluster kustomize-controller argocd-lua promotion-steps crossplane-changelog kpt kstatus helm thanos mimir etcd-old"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

select_server() { # sets name, module_dir, module, programs, packages, tags, ldflags, version, dir
  local line
  line=$(grep "^$1|" <<<"$servers") || die "no server is named '$1'"
  IFS='|' read -r name module programs packages tags ldflags <<<"$line"
  module_dir=$here
  [ ! -e "$here/$name/go.mod" ] || module_dir=$here/$name
  version=$(sed -nE "s#^(require )?[[:space:]]*$module v([^ ]+).*#\2#p" "$module_dir/go.mod")
  [ -n "$version" ] || die "$module_dir/go.mod does not require $module"
  if [ "$name" = prometheus ]; then # the module v0.315.0 is the release 3.15.0
    version=$(sed -E 's/^0\.([0-9])([0-9]{2})\./\1.\2./' <<<"$version")
  fi
  if [ "$name" = mimir ]; then # its releases cannot be had as modules, a commit of its main branch can
    version=$(sed -E 's/^.*\.([0-9]{8})[0-9]{6}-([0-9a-f]{7}).*/main-\1-\2/' <<<"$version")
  fi
  dir=$cache/$name-$version-$({
    cat "$module_dir"/go.*
    find "$here/$name" -name '*.go' -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0r cat
    echo "$line"
  } | sha256sum | cut -c1-12)
}

from_assets() { # is program $1 to be taken from KUBEBUILDER_ASSETS?
  [ -n "$assets" ] && case $1 in kube-apiserver | kubectl | etcd) ;; *) return 1 ;; esac
}

wanted_programs() { # the programs of the selected server that have to be built
  local p out=
  for p in $programs; do from_assets "$p" || out="$out $p"; done
  echo "$out"
}

check_assets() {
  local p
  [ -n "$assets" ] || return 0
  for p in kube-apiserver etcd kubectl; do
    [ -x "$assets/$p" ] || die "KUBEBUILDER_ASSETS is set, but $assets/$p is no program"
  done
}

check_go() {
  local v needed
  needed=$(sed -n 's/^go //p' "$here/go.mod")
  command -v go >/dev/null || die "go is not on PATH: install Go $needed or newer (it builds the servers that the tests run)"
  # Asked inside a module that requires this version, so that a go that fetches newer toolchains by itself passes.
  v=$(cd "$here" && go env GOVERSION 2>/dev/null) || v=
  [[ $v =~ ^go[0-9] ]] && printf '%s\n' "go$needed" "$v" | sort -CV ||
    die "$(go version 2>/dev/null | cut -d' ' -f3) is too old: install Go $needed or newer"
}

# Runs a command with its output in a log, telling every 30 seconds that it is still at work.
with_progress() { # log, command…
  local log=$1 started=$SECONDS ticker status=0
  shift
  # It ends by itself when this script is interrupted, and does not hold the lock.
  (while sleep 30 && kill -0 $$ 2>/dev/null; do say "      still building, $((SECONDS - started)) s so far"; done) 9>&- &
  ticker=$!
  "$@" >"$log" 2>&1 || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if [ $status -ne 0 ]; then
    grep -v '^go: downloading' "$log" | tail -n 20 >&2
    cp "$log" "$cache/last-failure.log"
    die "building $name $version failed; the whole output is in $cache/last-failure.log"
  fi
}

go_build() { # into the directory $1
  local flags major minor package program i=0
  IFS=. read -r major minor _ <<<"$version"
  flags=${ldflags//@V@/$version}
  flags=${flags//@MAJOR@/$major}
  flags=${flags//@MINOR@/$minor}
  local -a names
  read -ra names <<<"$programs"
  cd "$module_dir" || return
  for package in $packages; do
    program=${names[$((i++))]}
    from_assets "$program" && continue
    # The linker drops what a debugger needs, and the compiler takes a sixth of its time to write it. Another tenth is garbage
    # collection, of less than a gigabyte.
    CGO_ENABLED=0 GOWORK=off GOFLAGS="" GOGC=400 nice -n 10 go build -mod=readonly -trimpath -buildvcs=false -gcflags all=-dwarf=false \
      ${tags:+-tags "$tags"} -ldflags "-s -w $flags" -o "$1/$program" "$package" || return
  done
}

build() { # name: builds one server unless it is there
  local tmp started
  select_server "$1"
  [ -n "$(wanted_programs)" ] || return 0
  [ -d "$dir" ] && have_all "$dir" && return 0
  exec 9>"$cache/.lock-$name"
  flock -n 9 || { say "[$name] another build is at work on it: waiting"; flock 9; }
  if ! { [ -d "$dir" ] && have_all "$dir"; }; then
    check_go
    say "[$name] building $name $version"
    started=$SECONDS
    tmp=$(mktemp -d "$cache/.build-XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    mkdir "$tmp/bin"
    with_progress "$tmp/log" go_build "$tmp/bin"
    # With KUBEBUILDER_ASSETS unset later, an entry may have to be completed.
    mkdir -p "$dir"
    mv -f "$tmp"/bin/* "$dir/"
    rm -rf "$tmp"
    trap - EXIT
    say "[$name] done in $((SECONDS - started)) s"
  fi
  exec 9>&-
}

have_all() {
  local p
  for p in $(wanted_programs); do [ -x "$1/$p" ] || return 1; done
}

# Few versions of VictoriaMetrics are published where Go modules are. One of its cluster version is built above; the single
# node and vmagent are from the Debian package, unpacked without root, or programs on PATH.
vm_dir=$cache/victoria-metrics-debian
vm_programs="victoria-metrics vmagent"
vm_program() { # name
  if [ -x "$vm_dir/$1" ]; then
    echo "$vm_dir/$1"
  else
    command -v "$1" || command -v "$1-prod" || echo "$vm_dir/$1"
  fi
}

have_vm_programs() {
  local p
  for p in $vm_programs; do [ -x "$(vm_program "$p")" ] || return 1; done
}

fetch_victoria_metrics() {
  local tmp started=$SECONDS private p
  have_vm_programs && return 0
  exec 9>"$cache/.lock-victoria-metrics"
  flock 9
  if ! have_vm_programs; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
      die "put $vm_programs on PATH (they are fetched as a Debian package only where there is apt-get)"
    say "[victoria-metrics] fetching the Debian package (usually some seconds)"
    tmp=$(mktemp -d "$cache/.build-XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    # A machine whose package lists were never read, and no root to read them: lists of our own.
    private=(-o "Dir::State::lists=$tmp/lists" -o "Dir::Cache=$tmp/cache" -o APT::Sandbox::User= -o Debug::NoLocking=1)
    mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial"
    (
      cd "$tmp"
      apt-get -qq -o APT::Sandbox::User= download victoria-metrics ||
        { apt-get -qq "${private[@]}" update && apt-get -qq "${private[@]}" download victoria-metrics; }
    ) >"$tmp/log" 2>&1 || { tail -n 5 "$tmp/log" >&2; die "the Debian package victoria-metrics cannot be had; put $vm_programs on PATH"; }
    dpkg-deb -x "$tmp"/victoria-metrics_*.deb "$tmp/root"
    mkdir -p "$vm_dir"
    for p in $vm_programs; do mv -f "$tmp/root/usr/bin/$p" "$vm_dir/$p"; done
    rm -rf "$tmp"
    trap - EXIT
    say "[victoria-metrics] done in $((SECONDS - started)) s"
  fi
  exec 9>&-
}

print_paths() {
  local n p
  for p in $vm_programs; do echo "$p=$(vm_program "$p")"; done
  for n in $(cut -d'|' -f1 <<<"$servers"); do
    select_server "$n"
    for p in $programs; do
      if from_assets "$p"; then echo "$p=$assets/$p"; else echo "$p=$dir/$p"; fi
    done
  done
}

check_assets
if [ "${1:-}" = --print ]; then
  print_paths
  exit
fi
mkdir -p "$cache"
if [ $# -eq 0 ]; then
  say "servers that are missing are built, once: all of them in about 20 minutes on two cores"
  set -- $default_names
fi
for server in "$@"; do
  if [ "$server" = victoria-metrics ]; then fetch_victoria_metrics; else build "$server"; fi
done
