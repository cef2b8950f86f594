#!/bin/sh
# scripts/calibrations.sh [PLAN]: fits the shipped calibrations to the published runs in
# tests/validation/ with PLAN, the built program (./plan, which builds it, unless given).
set -eu
plan=${1:-./plan}
case $plan in /* | ./*) ;; *) plan=$PWD/$plan ;; esac
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
for file in costmodel/catalog/calibrations/*.json; do
  if grep -q '"evidence": "calibrated"' "$file"; then rm -- "$file"; fi
done
"$plan" fit tests/validation/runs.csv --quiet -o costmodel/catalog/calibrations
