#!/usr/bin/env bash
# Tries recipes and pipelines with programs of others that take long to build, and notes in integrations.txt what was tried.
#
#   integrations.sh          builds what is missing, and tries everything
#   integrations.sh --check  fails where something is another than was tried
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
record=tests/integrations.txt
servers="kubernetes etcd prometheus victoria-metrics kustomize-controller source-controller flux-operator argocd argo-rollouts ocm kubefleet otel-collector"

# What a trial is of: versions, recipes, and the tests.
subject() {
  local server
  for server in $servers; do
    tests/servers/install.sh --print | sed -nE "s#^.*/($server-[0-9][^/]*)-[0-9a-f]{12}/.*#\1#p" | sort -u
  done
  sha256sum deploy/recipes/* deploy/pipelines/* $(grep -rlF 'make integrations"]' tests/tests | LC_ALL=C sort)
}

if [ "${1:-}" = --check ]; then
  diff -U0 --label "tried ($record)" --label "here" <(grep -v '^#' "$record") <(subject) ||
    { echo "error: this was not tried as it is: run \`make integrations\` and commit $record" >&2; exit 1; }
  exit
fi
tests/servers/install.sh $servers
"${CARGO:-cargo}" test -p statusbridge-tests --test end_to_end -- --ignored e2e::
{
  echo "# All of these were tried together on $(date -u +%F), and did what they should."
  subject
} >"$record.new"
mv "$record.new" "$record"
