#!/usr/bin/env bash
# Looks for bytes that break what reads them from outside: libFuzzer runs each test of a module called `fuzz` for so long, as many at a
# time as there are cores.
#
#   fuzz SECONDS [NAME…]    NAME: that of the test, or a part of it
#
# It begins with the corpus beside the test, and keeps what it learns in the target directory, to go on from there. What breaks a test is
# kept beside it, for `cargo test` to try for ever.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:?how many seconds for each?}
shift
packages=(-p statusbridge-core -p statusbridge-aggregator -p statusbridge-exporter -p statusbridge-expression -p statusbridge-kstatus)
target=${CARGO_TARGET_DIR:-target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
cores=$(nproc 2>/dev/null || echo 1)
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

build() {
  RUSTFLAGS="--cfg fuzzing --cfg fuzzing_libfuzzer $coverage" \
    "${CARGO:-cargo}" test --locked --profile fuzz --target "$host" --target-dir "$target" --lib --no-run "${packages[@]}" 2>&1
}

run() { # program, test, arguments of libFuzzer…
  local program=$1 test=$2
  shift 2
  BOLERO_LIBTEST_HARNESS=1 BOLERO_TEST_NAME=$test BOLERO_LIBFUZZER_ARGS="$*" \
    "$program" "$test" --exact --nocapture --quiet --test-threads 1
}

fuzz() { # program, test
  local program=$1 test=$2 place learnt broken=0
  # Where the corpus lies is said by the test itself.
  place=$(CARGO_BOLERO_SELECT=all "$program" "$test" --exact --nocapture | sed -n 's/.*"work_dir":"\([^"]*\)".*/\1/p')
  learnt=$target/learnt/${place##*/}
  mkdir -p "$place/corpus" "$learnt" "$place/crashes"
  printf '\n== %s, %d s\n' "$test" "$seconds"
  run "$program" "$test" "$learnt" "$place/corpus" "$place/crashes" "-artifact_prefix=$place/crashes/" "-max_total_time=$seconds" \
    -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 -print_funcs=0 -verbosity=0 || broken=1
  rmdir --ignore-fail-on-non-empty "$place/crashes"
  return $broken
}

# What each prints is told in one piece.
told() { # program, test
  log=$(mktemp)
  trap 'cat "$log"; rm -f "$log"' EXIT
  fuzz "$@" >"$log" 2>&1
}
export -f run fuzz told
export seconds target

programs=$(build | tee /dev/stderr | sed -n 's/^ *Executable .* (\(.*\))$/\1/p')
[ -n "$programs" ] || exit 1

for program in $programs; do
  tests=$("$program" --list --format terse 'fuzz::' | sed -n 's/: test$//p')
  for test in $tests; do
    if [ $# -gt 0 ] && ! grep -qF -e "$(printf '%s\n' "$@")" <<<"$test"; then continue; fi
    printf '%s\0%s\0' "$program" "$test"
  done
done | xargs -0 -r -n 2 -P "$cores" bash -euo pipefail -c 'told "$@"' told
