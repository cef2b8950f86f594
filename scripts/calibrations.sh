#!/bin/sh
# scripts/calibrations.sh [PLAN]: fits the calibrations of every GPU family and framework, which are
# compiled into the program, to the published runs in tests/validation/ with PLAN, the built program
# (default: ./plan, which builds it). Those that scripts/gpu_day.sh measured stay as they are.
set -eu
plan=${1:-./plan}
case $plan in /* | ./*) ;; *) plan=$PWD/$plan ;; esac
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
catalog=costmodel/catalog/calibrations
fitted=$(mktemp -d)
trap 'rm -rf -- "$fitted"' EXIT
"$plan" fit tests/validation/runs.csv --catalog --quiet -o "$fitted"
for file in "$catalog"/*-*.json; do
  case $file in */prior-*) continue ;; esac
  if grep -q '"fitted_to": "scripts/gpu_day.sh on ' "$file"; then
    rm -f -- "$fitted/${file##*/}"
  else
    rm -- "$file"
  fi
done
mv -- "$fitted"/*.json "$catalog"
