#!/usr/bin/env bash
# Has cargo-mutants break each function and operator of the core, and notes what no test of the core notices.
#
#   core_mutants MINUTES [PART…]    MINUTES: begins no other file after that; PART: of the path of a file
#
# Of each file core-mutants.tsv says how many mutants it has and what became of them. core-survivors.tsv names those that nothing noticed;
# its last column says, written by hand, why that is right. Files come first that were never tried as they are now. JOBS of them (2) are
# tried at a time, each in a copy of its own. It fails as long as a survivor is not explained.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/record.sh
export LC_ALL=C
minutes=${1:?for how many minutes?}
shift
version=27.1.0
here=$PWD
record=$here/tests/core-mutants.tsv survivors=$here/tests/core-survivors.tsv
targets=${CARGO_TARGET_DIR:-$here/target}/core-mutants
jobs=${JOBS:-2}
commit=$(git rev-parse --short HEAD)
cache=${STATUSBRIDGE_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or STATUSBRIDGE_CACHE}/.cache}/statusbridge}/tools
tool=$cache/cargo-mutants-$version
export CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=0 RUST_BACKTRACE=0
[ -x "$tool/bin/cargo-mutants" ] || "${CARGO:-cargo}" install --quiet --debug --locked --root "$tool" "cargo-mutants@$version"

mkdir -p "$targets"
rm -rf "$targets"/*/copy
git worktree prune

# A mutant that never ends must not take all memory meanwhile.
ulimit -v $((8 * 1024 * 1024))

# Properties with all their cases take longer than to compile: so many of each are asked.
export PROPTEST_CASES=16
# These take longer than all others together all the same: they are asked only of what the others did not notice.
slow=()
for test in history_tests:: rollout_history_tests:: many_exporters_of_a_cluster_do_not_fill_the_memory names_are_bounded_in_all \
  what_may_not_be_seen_changes_nothing_and_is_nowhere valid_whatever_the_labels_say it_is_what_a_look_at_every_minute_finds \
  a_viewer_that_is_told_of_changes_sees_what_a_new_one_sees ten_thousand_gates_in_one_circle_or_one_row fuzz::; do
  slow+=(--skip "$test")
done

# Its exit code says whether all were noticed: what it wrote says which.
mutants() { # file, seconds, more
  local file=$1 seconds=$2
  shift 2
  "$tool/bin/cargo-mutants" mutants --package statusbridge-core --file "$file" --in-place --baseline skip --no-config \
    --timeout "$seconds" --build-timeout 600 --output "$target" --colors never --cargo-arg=--locked "$@" >"$target/log" 2>&1 </dev/null ||
    case $? in
    2 | 3) ;;
    *) cat "$target/log" >&2; exit 1 ;;
    esac
  git checkout --quiet -- "$file"
}

lines() { if [ -e "$out/$1.txt" ]; then wc -l <"$out/$1.txt"; else echo 0; fi; }

# The same, without line and column, which move.
name() { sed -E 's/^[^:]*:[0-9]+:[0-9]+: //' "$@"; }

note() { # file
  printf '%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n' "$1" "$(git hash-object "$1")" "$(date -u +%F)" "$commit" \
    "$caught" "$endless" "$unviable" "$(lines missed)" | replace "$record" "$1"
  if [ -e "$out/missed.txt" ]; then name "$out/missed.txt"; fi | sort -u | while read -r mutant; do
    printf '%s\t%s\t%s\n' "$1" "$mutant" \
      "$(awk -F '\t' -v file="$1" -v mutant="$mutant" '$1 == file && $2 == mutant { print $3 }' "$survivors")"
  done | replace "$survivors" "$1"
}

# The files of one worker, each JOBS-th; first those of which it is not known, or known for longest, what became of their mutants.
files() { # worker, parts…
  local worker=$1 file
  shift
  git ls-files 'aggregator/core/src/*.rs' | grep -vE '/(testing|fuzz)(/|\.rs$)|tests(/|\.rs$)' | while read -r file; do
    if [ $# -gt 0 ] && ! grep -qF -e "$(printf '%s\n' "$@")" <<<"$file"; then continue; fi
    noted "$record" "$file" | awk -F '\t' -v file="$file" '{ when = $3 } END { print when ? when : 0, file }'
  done | sort | awk -v worker="$worker" -v jobs="$jobs" 'NR % jobs == worker { print $2 }'
}

try() { # file
  local file=$1 folder=${1#aggregator/core/src/} caught endless unviable floor below=()
  folder=${folder%%/*}
  rm -rf "$out" "$out.old"
  local first=(--lib -- "${folder%.rs}::" "${slow[@]}")
  if [ "$folder" = decide ] && ! grep -qs 'cfg(test)' "$file" "${file%/*}.rs"; then first=(--test=decide); fi
  mutants "$file" 60 -- "${first[@]}"
  [ -e "$out/caught.txt" ] || return 0 # it has nothing to break
  caught=$(lines caught) endless=$(lines timeout) unviable=$(lines unviable)
  if [ "$(lines missed)" != 0 ]; then
    # The tests of what a folder builds upon see nothing of it.
    for floor in verify fleet exposition; do
      case $folder in "$floor" | *.rs) break ;; esac
      below+=(--skip "$floor::")
    done
    # What never ended with few tests does not end with more.
    cat "$out/timeout.txt" >>"$out/caught.txt"
    mutants "$file" 200 --iterate -- --lib --test=decide -- "${below[@]}"
    caught=$((caught + $(lines caught))) endless=$((endless + $(lines timeout)))
  fi
  (flock 9 && note "$file") 9>"$targets/lock"
  printf '%s: %d noticed, %d never ended, %d did not compile, %d survived\n' "$file" "$caught" "$endless" "$unviable" "$(lines missed)"
}

work() { # worker, parts…
  target=$targets/$1
  copy=$target/copy out=$target/mutants.out
  export CARGO_TARGET_DIR=$target
  local all file
  all=$(files "$@")
  (flock 9 && git worktree add --quiet --detach "$copy" HEAD) 9>"$targets/lock"
  cd "$copy"
  # What fails by itself would be taken for noticing.
  "${CARGO:-cargo}" test --locked --quiet --package statusbridge-core --lib --test decide >&2
  for file in $all; do
    if [ $SECONDS -lt $((minutes * 60)) ]; then try "$file"; else printf '%s: not tried this time\n' "$file"; fi
  done
}

trap 'rm -rf "$targets"/*/copy; git -C "$here" worktree prune' EXIT
workers=()
for ((worker = 0; worker < jobs; worker++)); do
  work "$worker" "$@" &
  workers+=($!)
done
failed=0
for worker in "${workers[@]}"; do wait "$worker" || failed=1; done
[ $failed -eq 0 ]
awk -F '\t' 'NR > 1 && $3 == "" { print $1 ": " $2 ": nothing notices it, and nobody says why"; n++ } END { exit n > 0 }' "$survivors"
