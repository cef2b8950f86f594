#!/bin/sh
# scripts/format.sh [--check] [FILES...]: formats all C++ of the tree (or FILES) by .clang-format;
# --check only says what is not formatted and fails. Versions of clang-format differ: 14 decides.
set -eu
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
tool=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$tool" ]; then
  echo "format: clang-format is missing (apt-get install clang-format)" >&2
  exit 3
fi
case $("$tool" --version) in
*"version 14."*) ;;
*) echo "format: $("$tool" --version); version 14 decides, this one may differ" >&2 ;;
esac
mode=-i
if [ "${1:-}" = --check ]; then
  mode='--dry-run -Werror'
  shift
fi
if [ $# -gt 0 ]; then
  # shellcheck disable=SC2086
  "$tool" $mode "$@"
else
  # shellcheck disable=SC2086
  find core topologies costmodel planner report runtime cli gui tests bench -name '*.[ch]pp' \
    -print0 2>/dev/null | xargs -0 -r -n 50 "$tool" $mode
fi
