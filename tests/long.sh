#!/usr/bin/env bash
# Tries what takes too long to be tried at each change, and notes in long.txt what was tried: attacks of minutes, and recipes and
# pipelines with programs of others that take minutes to build.
#
#   long.sh          builds what is missing, and tries everything
#   long.sh --check  fails where something is another than was tried
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C
# What is tried are the pinned ones, and with the pinned ones.
unset KUBEBUILDER_ASSETS
record=tests/long.txt
others=(source-controller flux-operator argocd argo-rollouts ocm kubefleet otel-collector)

# What a trial is of: each program as install.sh builds it, the recipes, and the tests that are marked as part of it.
subject() {
  local printed server tests
  printed=$(tests/servers/install.sh --print)
  for server in "${others[@]}"; do
    sed -nE "s#^.*/($server-[0-9][^/]*)/.*#\1#p" <<<"$printed" | sort -u | grep .
  done
  mapfile -t tests < <(grep -rlF 'make long"]' tests/tests | sort)
  sha256sum deploy/pipelines/otel-collector.yaml \
    deploy/recipes/{argo-rollouts,argocd-cm,argocd-rollout,argocd-waves,flux-rollout,flux-waves,kubefleet,open-cluster-management}* \
    "${tests[@]}"
}

try() { # part of the tests' names
  "${CARGO:-cargo}" test -p statusbridge-tests --test end_to_end -- --ignored "$1"
}

here=$(subject)
if [ "${1:-}" = --check ]; then
  diff -U0 --label "tried ($record)" --label "here" <(grep -v '^#' "$record") - <<<"$here" ||
    { echo "error: this was not tried as it is: run \`make long\` and commit $record" >&2; exit 1; }
  exit
fi
tests/servers/install.sh kubernetes etcd prometheus victoria-metrics kustomize-controller "${others[@]}"
try e2e::
RUST_TEST_THREADS=${ATTACK_THREADS:-2} try attacks::
[ "$(subject)" = "$here" ] || { echo "error: something was changed meanwhile" >&2; exit 1; }
printf '%s\n' "# All of these were tried together on $(date -u +%F), and did what they should." "$here" >"$record.new"
mv "$record.new" "$record"
