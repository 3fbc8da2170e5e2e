#!/usr/bin/env bash
# Holds dashboards/*.json against Grafana's own types, with the TypeScript compiler. Needs node and npm, and the first
# time npm's registry; where they cannot be had it says so, which is a failure where CI=true.
#
# The packages that package-lock.json pins are kept in ${STATUSBRIDGE_CACHE:-~/.cache/statusbridge}/grafana-HASH.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
boards=$here/../../dashboards
cache=${STATUSBRIDGE_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or STATUSBRIDGE_CACHE}/.cache}/statusbridge}

skip() { # why
  echo "skipped: $1, so the dashboards are not held against Grafana's types" >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  skip "there is no node and npm"
fi

packages=$cache/grafana-$(cat "$here"/package*.json | sha256sum | cut -c1-12)
if [ ! -e "$packages/complete" ]; then
  mkdir -p "$packages"
  cp "$here"/package.json "$here"/package-lock.json "$packages/"
  if ! npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --loglevel=error; then
    skip "npm cannot fetch Grafana's types"
  fi
  touch "$packages/complete"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$packages/node_modules" "$work/node_modules"
cp "$here/dashboard.ts" "$work/"

# JSON as it stands becomes a literal, so that fields which the types do not have are found as well.
typed() { # name, file with JSON
  {
    echo "import type { Dashboard } from './dashboard';"
    echo "export const dashboard: Dashboard ="
    cat "$2"
    echo ";"
  } >"$work/$1.ts"
}
compile() {
  node "$packages/node_modules/typescript/lib/tsc.js" --noEmit --strict --skipLibCheck --target es2022 \
    --module esnext --moduleResolution bundler "$@"
}

files=()
for file in "$boards"/*.json; do
  name=$(basename "$file" .json)
  typed "$name" "$file"
  files+=("$work/$name.ts")
done
compile "${files[@]}"

# What the types have to refuse, to know that they are looked at: each spoils one thing in a dashboard.
refused() { # what, sed expression
  sed -E "$2" "$boards/package.json" >"$work/spoiled.json"
  cmp -s "$work/spoiled.json" "$boards/package.json" && { echo "error: nothing to spoil for: $1" >&2; exit 1; }
  typed spoiled "$work/spoiled.json"
  if compile "$work/spoiled.ts" >"$work/log"; then
    echo "error: Grafana's types let pass: $1" >&2
    exit 1
  fi
}
refused "a kind of panel that there is none of" 's/"type": "state-timeline"/"type": "state-time"/'
refused "an option that there is none of" 's/"mergeValues"/"mergeValue"/'
refused "a word that is none of an option's" 's/"showValue": "auto"/"showValue": "yes"/'
refused "a field that there is none of" 's/"noValue"/"novalue"/'
refused "a number where a text belongs" 's/"schemaVersion": 41/"schemaVersion": "41"/'

echo "${#files[@]} dashboards are what Grafana's types ($(node -p "require('$packages/node_modules/@grafana/schema/package.json').version")) say"
