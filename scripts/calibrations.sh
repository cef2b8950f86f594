#!/bin/sh
# scripts/calibrations.sh [PLAN]: fits calibrations to the published runs in tests/validation/ with
# PLAN, the built program (default: ./plan, which builds it). Those of a GPU family and framework
# are compiled into the program, for planning; those of single software releases, which only
# predict measured runs, go to tests/validation/calibrations.
set -eu
plan=${1:-./plan}
case $plan in /* | ./*) ;; *) plan=$PWD/$plan ;; esac
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
planning=costmodel/catalog/calibrations
releases=tests/validation/calibrations
fitted=$(mktemp -d)
trap 'rm -rf -- "$fitted"' EXIT
"$plan" fit tests/validation/runs.csv --quiet -o "$fitted"
for file in "$planning"/*.json "$releases"/*.json; do
  if grep -q '"evidence": "calibrated"' "$file"; then rm -- "$file"; fi
done
value() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$2"; }
for file in "$fitted"/*.json; do
  case $(value name "$file") in
    "$(value gpu "$file")-$(value framework "$file")") mv -- "$file" "$planning" ;;
    *) mv -- "$file" "$releases" ;;
  esac
done
