#!/usr/bin/env bash
# Pushes a directory as an OCI artifact and rolls it out in two waves. A step of a pipeline: it ends with an error as soon as
# a wave fails, and the clusters of later waves keep what they have. Needs flux, statusbridge, and a kubeconfig for the hub.
#
#   flux-waves.sh DIRECTORY COMMIT
set -euo pipefail

directory=$1 commit=$2
repository=${REPOSITORY:-oci://registry.example.com/payments}
package=${PACKAGE:-payments}
timeout=${TIMEOUT:-1h}

pushed=$(flux push artifact "$repository:$commit" --path "$directory" --source "${SOURCE:-unknown}" \
  --revision "sha1:$commit" --output json)
digest=$(sed -n 's/.*"digest": *"\([^"]*\)".*/\1/p' <<<"$pushed")
[ -n "$digest" ] || { echo "error: flux printed no digest: $pushed" >&2; exit 1; }

# First the gates: no old verdict lets anybody go on.
statusbridge set-revision "$package" "$digest" --namespace fleet
for wave in wave-1 wave-2; do
  flux tag artifact "$repository:$commit" --tag "$wave"
  statusbridge wait "gate/$package-$wave" --namespace fleet --revision "$digest" --timeout "$timeout"
done
