#!/bin/sh
# scripts/accuracy.sh [PLAN]: writes docs/accuracy.md and docs/accuracy.svg from the published runs
# in tests/validation/ with PLAN, the built program (./plan, which builds it, unless given).
set -eu
plan=${1:-./plan}
case $plan in /* | ./*) ;; *) plan=$PWD/$plan ;; esac
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
"$plan" validate tests/validation/runs.csv --leave-out publisher --first-runs 1,3,6 \
  --ablation --quiet --plot docs/accuracy.svg --page docs/accuracy.md >/dev/null
echo "docs/accuracy.md and docs/accuracy.svg are written"
