#!/bin/sh
# tests/external/megatron.sh [PLAN]: asks Megatron-Core itself whether it accepts the plans that the
# planner recommends for questions.tsv, and writes the answer into docs/anchors.md. PLAN is the
# planner's program (default: build/release/cli/plan). Exit codes: 0 all accepted, 1 some refused.
# MEGATRON_VENV: where the packages of requirements.txt are or will be installed (6 GB).
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")
root=$here/../..
plan=${1:-$root/build/release/cli/plan}
venv=${MEGATRON_VENV:-${TMPDIR:-/tmp}/venv-megatron}
questions=$root/examples/questions.tsv
[ -f "$questions" ] || questions=$here/questions.tsv
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
fi
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
exec "$venv/bin/python" "$here/ask_megatron.py" "$plan" "$questions" "$root/docs/anchors.md"
