#!/usr/bin/env bash
# Breaks rules on purpose, one after the other, and notes which tests notice: in mutants.tsv, and as a page in docs/mutants.md.
#
#   mutants MINUTES [NAME…]    MINUTES: begins no other one after that; NAME: that of a file in tests/mutants, or a part of it
#
# Each patch in tests/mutants begins with two lines: `What:`, the rule that it breaks, and `Test:`, the arguments of `cargo test` that
# run what should notice. Those come first that were never tried as they are now or that nothing noticed, then those that were tried
# longest ago. It fails as long as there is one that nothing noticed, that does not apply any more, or that could not be tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/record.sh
export LC_ALL=C
minutes=${1:?for how many minutes?}
shift
here=$PWD
record=$here/tests/mutants.tsv page=$here/docs/mutants.md
target=${CARGO_TARGET_DIR:-$here/target}/mutants
copy=$target/copy
mkdir -p "$target"
# Each mutant is the commit with one patch, as it is committed: what is not is not looked at.
commit=$(git rev-parse --short HEAD)
git worktree remove --force "$copy" 2>/dev/null || true
git worktree prune
git worktree add --quiet --detach "$copy" HEAD
export CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=0 RUST_BACKTRACE=0
log=$target/log
cd "$copy/tests/mutants"

is_asked_for() { # patch, names…
  local patch=$1 name
  shift
  [ $# -gt 0 ] || return 0
  for name in "$@"; do
    [[ $patch == *"$name"* ]] && return 0
  done
  return 1
}

what() { sed -n 's/^What: //p;/^diff/q' "$1"; }

# Sets `seen`.
try() { # patch
  local arguments failed
  read -ra arguments < <(sed -n 's/^Test: //p;/^diff/q' "$1") || { seen="**has no line \`Test:\`**"; return; }
  git -C "$copy" checkout --quiet -- . # as committed
  if ! git -C "$copy" apply "tests/mutants/$1"; then
    seen="**does not apply**"
  elif (cd "$copy" && timeout 30m "${CARGO:-cargo}" test --locked --no-fail-fast "${arguments[@]}") >"$log" 2>&1 </dev/null; then
    seen="**none**"
  elif failed=$(grep -E '^test .* \.\.\. FAILED$' "$log" | sort -u) && [ -n "$failed" ]; then
    seen=$(awk '{ n++; if (n == 1) first = $2 } END { print n ": `" first "`" (n > 1 ? " …" : "") }' <<<"$failed")
  elif grep -q 'could not compile' "$log"; then
    seen="**does not compile**"
  else
    seen="**crashed, or took more than 30 minutes**"
    tail -n 30 "$log" >&2
  fi
}

write_page() {
  {
    cat <<'TEXT'
# Rules broken on purpose

`make mutants` writes this page. It applies each patch in `tests/mutants` to what is committed and runs the tests that should notice: the table
says how many did, with the first of them, and when that was tried, at which commit. See [how the second promise is proved](proof.md).

| what was broken | tests that notice | tried |
|---|---|---|
TEXT
    for patch in */*.patch; do
      noted "$record" "$patch" | awk -F '\t' -v what="$(what "$patch")" '
        { printf "| %s | %s | %s, %s |\n", what, $5, substr($3, 1, 10), $4; n++ }
        END { if (!n) printf "| %s | not tried yet | |\n", what }'
    done
  } >"$page"
}

end() {
  write_page
  rm -f "$record.new"
  git -C "$here" worktree remove --force "$copy"
}
trap end EXIT

left=0
while read -r _ patch; do
  is_asked_for "$patch" "$@" || continue
  if [ $SECONDS -ge $((minutes * 60)) ]; then
    left=$((left + 1))
    continue
  fi
  try "$patch"
  printf '%s: %s\n' "$(what "$patch")" "$seen"
  printf '%s\t%s\t%s\t%s\t%s\n' "$patch" "$(git hash-object "$patch")" "$(date -u +%FT%TZ)" "$commit" "$seen" |
    replace "$record" "$patch"
done < <(for patch in */*.patch; do
  noted "$record" "$patch" | awk -F '\t' -v patch="$patch" '{ when = $5 ~ /^\*\*/ ? 0 : $3 } END { print when + 0 ? when : 0, patch }'
done | sort)
[ $left -eq 0 ] || printf '%d were not tried this time\n' "$left"

for patch in */*.patch; do
  noted "$record" "$patch"
done | awk -F '\t' '$5 ~ /^\*\*/ { print $1 ": " $5; n++ } END { exit n > 0 }'
