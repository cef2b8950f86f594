#!/bin/sh
# scripts/fuzz.sh [SECONDS [ENTRY...]]: compiles all libraries but the window's with clang, and lets
# libFuzzer change the inputs of every ENTRY of tests/fuzz/entries.hpp for SECONDS (5): always from the
# same seed. Fails when one of them crashes, leaks or gives a wrong answer, and says where the input is.
# Needs clang, libclang-rt-dev and libomp-dev.
set -eu
cd "$(dirname -- "$(readlink -f -- "$0")")/.."
tree=build/fuzz
program=$tree/tests/fuzz/fuzz

# fuzz.sh --one SECONDS ENTRY FOLDER...
if [ "${1:-}" = --one ]; then
  seconds=$2
  entry=$3
  shift 3
  rm -rf $tree/new/"$entry"*
  mkdir -p "$tree/new/$entry"
  $program "$entry" -seed=1 -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="$tree/new/$entry." "$tree/new/$entry" "$@" \
    >"$tree/new/$entry.log" 2>&1 </dev/null && exit 0
  tail -n 40 "$tree/new/$entry.log" >&2
  echo "fuzz: $entry failed, and its input is in $tree/new" >&2
  exit 1
fi

here=$PWD
me=fuzz
# shellcheck source=scripts/wrapper.sh
. scripts/wrapper.sh
tree=build/fuzz # wrapper.sh names another
seconds=${1:-5}
[ $# = 0 ] || shift
mkdir -p $tree
quietly $tree/fuzz.log cmake --preset fuzz
quietly $tree/fuzz.log cmake --build $tree --parallel "$(jobs)"
$program | while read -r entry folders; do
  case " ${*:-$entry} " in *" $entry "*) echo "$entry $folders" ;; esac
done >$tree/entries
xargs -P "$(getconf _NPROCESSORS_ONLN)" -L 1 scripts/fuzz.sh --one "$seconds" <$tree/entries
printf 'fuzz: %d entries, %d s each: nothing was found\n' "$(wc -l <$tree/entries)" "$seconds"
