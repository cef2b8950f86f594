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
check=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
if [ $# = 0 ]; then
  # shellcheck disable=SC2046  # no file of ours has a space in its name
  set -- $(find core topologies costmodel planner evaluation interop report runtime cli gui tests bench \
    \( -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort)
fi
[ -n "$check" ] || exec "$tool" -i "$@"
unformatted=$("$tool" --dry-run "$@" 2>&1 | sed -n 's/: warning: code should be.*//; t keep; d; :keep; s/:[0-9:]*$//; p' |
  sort | uniq -c)
[ -z "$unformatted" ] || {
  printf 'places that differ, by file; scripts/format.sh formats them:\n%s\n' "$unformatted" >&2
  exit 1
}
