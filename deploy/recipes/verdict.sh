#!/usr/bin/env bash
# Asks the aggregator for a verdict on a revision until that is open, in any pipeline that has bash and curl:
#
#   AGGREGATOR=https://statusbridge-aggregator.statusbridge-system.svc:8080 TOKEN=… \
#     verdict.sh 'source=flux-kustomization&namespace=flux-system&package=payments&clusters=eu-1,eu-2&revision=8f95cab951bd'
#
# TIMEOUT (3600) and INTERVAL (15) are seconds. TOKEN is looked at with authorizeScrapes only. Set CURL_CA_BUNDLE to the
# certificate of your authority where the machine does not trust it. Exit codes:
#
#   0  open (200)
#   1  refused (400, 401, 403) or anything else that is no verdict: asking again would not help
#   2  wrong arguments
#   4  the time is over: closed (409), nothing can be said now (503), or nobody answered
set -euo pipefail
if [ $# -ne 1 ] || [ -z "${AGGREGATOR:-}" ]; then
  echo "usage: AGGREGATOR=https://… TOKEN=… $0 QUESTION" >&2
  exit 2
fi
timeout=${TIMEOUT:-3600}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
while true; do
  : >"$answer"
  # curl reads the header from its standard input, because others on the machine can read arguments.
  status=$(curl -sS --max-time 10 -H @- -o "$answer" -w '%{http_code}' "$AGGREGATOR/v1alpha1/verdict?$1" \
    <<<"${TOKEN:+Authorization: Bearer $TOKEN}") || status=000
  echo "$status $(grep -o '"message":"[^"]*"' "$answer" | head -n 1)"
  case $status in
    200)
      grep -q '"open":true' "$answer" || { echo "this is no verdict: $(head -c 200 "$answer")" >&2; exit 1; }
      exit 0
      ;;
    # 000: no answer. 502 and 504: a proxy gets none.
    000 | 409 | 502 | 503 | 504) ;;
    *)
      echo "refused: $(head -c 2000 "$answer")" >&2
      exit 1
      ;;
  esac
  if ((SECONDS >= timeout)); then
    echo "the time is over: not open after $timeout s" >&2
    exit 4
  fi
  sleep "${INTERVAL:-15}"
done
