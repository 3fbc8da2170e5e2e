#!/usr/bin/env bash
# Plays generated histories for so long, with seeds that were not played before, and notes them in histories.tsv.
#
#   histories MINUTES [EACH]    EACH: histories of a seed (50000)
#
# Of each seed so many are the model's. A twenty-fifth as many more are random histories of the reconciler alone, and as many of
# rollouts. It ends at the first that breaks what is promised, which it prints. What was played until then is noted: from each line the
# same histories can be played again, with `make model SEED=… N=…` at its commit, or with PROPTEST_RNG_SEED and PROPTEST_CASES.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:?for how many minutes?} each=${2:-50000}
record=tests/histories.tsv
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- '*.rs' || commit+=+ # with changes that are not committed

# Together, so that what both need is compiled once.
built=$("${CARGO:-cargo}" test --locked --release -p statusbridge-core -p statusbridge-aggregator --lib --no-run 2>&1 | tee /dev/stderr)
program() { # crate
  sed -n "s/^ *Executable .* (\(.*\/$1-[^/]*\))$/\1/p" <<<"$built" | grep .
}
core=$(program statusbridge_core)
model=$(program statusbridge_aggregator)

first=$(awk -F '\t' '/^[0-9]/ { last = $2 } END { print last + 1 }' "$record")
earlier=$(cat "$record")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
seed=$first
while [ $SECONDS -lt $((minutes * 60)) ]; do
  if ! STATUSBRIDGE_MODEL_SEED=$seed STATUSBRIDGE_MODEL_HISTORIES=$each "$model" --nocapture model:: >"$log" 2>&1 ||
    ! PROPTEST_RNG_SEED=$seed PROPTEST_CASES=$((each / 25)) "$core" history_tests:: >"$log" 2>&1; then
    cat "$log"
    printf 'seed %s breaks the promise\n' "$seed"
    exit 1
  fi
  printf '%s\n%s\t%s\t%s\t%s\t%s\t%s\n' "$earlier" "$first" "$seed" "$each" "$((each / 25))" "$commit" "$(date -u +%F)" >"$record.new"
  mv "$record.new" "$record"
  seed=$((seed + 1))
done
awk -F '\t' '
  /^[0-9]/ { all += ($2 - $1 + 1) * $3; more += ($2 - $1 + 1) * $4 * 2 }
  END { printf "%d histories of the model and %d of the reconciler in all, none broke what is promised\n", all, more }' "$record"
