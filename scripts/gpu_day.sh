#!/bin/sh
# scripts/gpu_day.sh: what a GPU is asked on the first day with one, in three steps.
#
#   scripts/gpu_day.sh pack DIR [BUILD]    here: a tree of at most 64 MiB with the programs of BUILD
#                                          (default: build/release) and all they need but a driver
#                                          and NVIDIA's libraries
#   DIR/scripts/gpu_day.sh run OUT.json    on the machine with GPUs: tests, calibration, training
#                                          and experiments in less than nine minutes
#   scripts/gpu_day.sh publish IN.json     here: the figures into docs/cuda.md, the table of runs
#                                          behind docs/accuracy.md, and the shipped calibration
#
# Every step takes --help. Exit codes of run: 0 every part ran and passed; 1 some did not, and the
# file says which and why; 3 there is no GPU.
set -eu
bench=$(dirname -- "$(readlink -f -- "$0")")/../bench/gpu
step=${1:-}
case $step in
pack) program=packed.py ;;
run) program=gpu_day.py ;;
publish) program=published.py ;;
*)
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
shift
exec "${PYTHON:-python3}" -B "$bench/$program" "$@"
