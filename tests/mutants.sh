#!/usr/bin/env bash
# Breaks rules on purpose, one after the other, and notes which tests notice: in mutants.tsv, and as a page in docs/mutants.md.
#
#   mutants MINUTES [NAME…]    MINUTES: begins no other one after that; NAME: that of a file in tests/mutants, or a part of it
#
# Each patch in tests/mutants begins with two lines: `What:`, the rule that it breaks, and `Test:`, the arguments of `cargo test` that
# run what should notice. Those come first that were never tried as they are now, then those that were tried longest ago. A patch that
# nothing notices, that does not apply any more, or that does not compile, makes this fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${1:?for how many minutes?}
shift
here=$PWD
record=tests/mutants.tsv page=docs/mutants.md
target=${CARGO_TARGET_DIR:-$here/target}/mutants
copy=$target/copy
mkdir -p "$target"
# Each mutant is the commit with one patch: what is not committed is not looked at.
commit=$(git rev-parse --short HEAD)
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

# What was noted of a patch, unless it is another one now: its hash, when it was tried, at which commit, what noticed.
noted() { awk -F '\t' -v patch="${1#tests/mutants/}" -v hash="$(git hash-object "$1")" '$1 == patch && $2 == hash' "$record"; }

# Takes the place of what was noted of the patch, and of patches that are gone.
note() { # patch, what noticed
  {
    head -n 1 "$record"
    {
      tail -n +2 "$record" | while IFS=$'\t' read -r patch rest; do
        if [ -e "tests/mutants/$patch" ] && [ "tests/mutants/$patch" != "$1" ]; then printf '%s\t%s\n' "$patch" "$rest"; fi
      done
      printf '%s\t%s\t%s\t%s\t%s\n' "${1#tests/mutants/}" "$(git hash-object "$1")" "$(date -u +%FT%TZ)" "$commit" "$2"
    } | sort
  } >"$record.new"
  mv "$record.new" "$record"
}

try() { # patch
  local arguments failed
  read -ra arguments < <(sed -n 's/^Test: //p;/^diff/q' "$1")
  git -C "$copy" checkout --quiet -- . # as committed
  if ! git -C "$copy" apply "$here/$1"; then
    seen="**does not apply**" missed=1
  elif (cd "$copy" && "${CARGO:-cargo}" test --locked --no-fail-fast "${arguments[@]}") >"$log" 2>&1; then
    seen="**none**" missed=1
  elif failed=$(grep -E '^test .* \.\.\. FAILED$' "$log" | sort -u) && [ -n "$failed" ]; then
    seen=$(awk '{ n++; if (n == 1) first = $2 } END { print n ": `" first "`" (n > 1 ? " …" : "") }' <<<"$failed")
  else
    seen="**does not compile**" missed=1
    tail -n 30 "$log" >&2
  fi
}

what() { sed -n 's/^What: //p;/^diff/q' "$1"; }

while read -r _ patch; do
  is_asked_for "$patch" "$@" || continue
  [ $SECONDS -lt $((minutes * 60)) ] || break
  try "$patch"
  printf '%s: %s\n' "$(what "$patch")" "$seen"
  note "$patch" "$seen"
done < <(for patch in tests/mutants/*/*.patch; do
  when=$(noted "$patch" | cut -f 3)
  printf '%s %s\n' "${when:-0}" "$patch"
done | sort)

{
  cat <<'TEXT'
# Rules broken on purpose

`make mutants` writes this page. It applies each patch in `tests/mutants` to what is committed and runs the tests that should notice: the table
says how many did, with the first of them, and when that was tried, at which commit. See [how the second promise is proved](proof.md).

| what was broken | tests that notice | tried |
|---|---|---|
TEXT
  for patch in tests/mutants/*/*.patch; do
    noted "$patch" | awk -F '\t' -v what="$(what "$patch")" '
      { printf "| %s | %s | %s, %s |\n", what, $5, substr($3, 1, 10), $4; n++ }
      END { if (!n) printf "| %s | not tried yet | |\n", what }'
  done
} >"$page"
exit $missed
