#!/usr/bin/env bash
# Breaks rules on purpose, one after the other, and prints which tests notice: a table of docs/proof.md.
#
#   mutants [NAME…]    NAME: that of a file in tests/mutants, or a part of it
#
# Each patch in tests/mutants begins with two lines: `What:`, the rule that it breaks, and `Test:`, the arguments of `cargo test` that
# run what should notice. A patch that nothing notices, that does not apply any more, or that does not compile, makes this fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$PWD
target=${CARGO_TARGET_DIR:-$here/target}/mutants
copy=$target/copy
table=$target/table.md
mkdir -p "$target"
# Each mutant is the commit with one patch: what is not committed is not looked at.
git worktree remove --force "$copy" 2>/dev/null || true
git worktree prune
git worktree add --quiet --detach "$copy" HEAD
trap 'git -C "$here" worktree remove --force "$copy"' EXIT
export CARGO_TARGET_DIR=$target RUST_BACKTRACE=0
log=$target/log
missed=0

is_asked_for() { # patch, names…
  local patch=$1 name
  shift
  [ $# -gt 0 ] || return 0
  for name in "$@"; do
    [[ $patch == *"$name"* ]] && return 0
  done
  return 1
}

printf '| what was broken | tests that notice |\n|---|---|\n' | tee "$table"
for patch in "$here"/tests/mutants/*/*.patch; do
  is_asked_for "$patch" "$@" || continue
  what=$(sed -n 's/^What: //p;/^diff/q' "$patch")
  read -ra arguments < <(sed -n 's/^Test: //p;/^diff/q' "$patch")
  git -C "$copy" checkout --quiet -- . # as committed
  if ! git -C "$copy" apply "$patch"; then
    seen="**does not apply**" missed=1
  elif (cd "$copy" && "${CARGO:-cargo}" test --locked --no-fail-fast "${arguments[@]}") >"$log" 2>&1; then
    seen="**none**" missed=1
  elif failed=$(grep -E '^test .* \.\.\. FAILED$' "$log" | sort -u) && [ -n "$failed" ]; then
    seen=$(awk '{ n++; if (n == 1) first = $2 } END { print n ": `" first "`" (n > 1 ? " …" : "") }' <<<"$failed")
  else
    seen="**does not compile**" missed=1
    tail -n 30 "$log" >&2
  fi
  printf '| %s | %s |\n' "$what" "$seen" | tee -a "$table"
done
exit $missed
