#!/bin/sh
# scripts/bench_train.sh BUILD [MODEL [SEQUENCE [BATCH [ROUNDS]]]]: a training step of MODEL (gpt2)
# in fp32 on all cores, beside PyTorch and llm.c. BUILD: where plan, bench_train and plan-run were
# built. They take turns, ROUNDS times; of each the least time counts, for what else runs on the
# machine can only add to it. Threads wait asleep, so that the time of all threads on processors
# (in brackets) says the same on a busy machine.
#
#   PYTHON=...  a python that has torch; without it PyTorch is left out
#   LLMC=...    a checkout of llm.c (github.com/karpathy/llm.c): its train_gpt2.c is compiled in a
#               temporary folder, for gpt2 alone; needs PYTHON, which need not have torch then
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")
[ $# -ge 1 ] || { sed -n '2,/^set/p' "$0" | grep '^#' >&2; exit 2; }
build=$1 model=${2:-gpt2} sequence=${3:-256} batch=${4:-4} rounds=${5:-2}
cores=$(nproc)
case $model in
gpt2) shape='12 768 12' ;;
gpt2-medium) shape='24 1024 16' ;;
gpt2-large) shape='36 1280 20' ;;
gpt2-xl) shape='48 1600 25' ;;
*) echo "bench_train.sh: found model '$model', expected gpt2, gpt2-medium, gpt2-large or gpt2-xl" >&2; exit 2 ;;
esac
temp=$(mktemp -d)
trap 'rm -rf -- "$temp"' EXIT
trap 'exit 129' HUP INT TERM
export OMP_NUM_THREADS="$cores" OMP_WAIT_POLICY=passive

"$build/cli/plan" predict --model "$model" --cluster this-machine --gpus 1 --seq "$sequence" \
  --global-batch "$batch" --microbatch "$batch" --precision fp32 --recompute none -q -o "$temp/plan.json" >/dev/null

llmc=
if [ -n "${LLMC:-}" ] && [ "$model" = gpt2 ]; then
  # Three steps; its validation before the first takes longer than they do and is no part of them.
  sed "s/int B = 4;/int B = $batch;/; s/int T = 64;/int T = $sequence;/; s/if (step % 10 == 0) {/if (0) {/; s/step <= 40;/step <= 2;/" \
    "$LLMC/train_gpt2.c" >"$temp/train.c"
  for changed in "if (0) {" "step <= 2;"; do
    grep -q "$changed" "$temp/train.c" || { echo "bench_train.sh: found no place for '$changed' in $LLMC/train_gpt2.c" >&2; exit 2; }
  done
  # Flags: llm.c's Makefile.
  cc -Ofast -fno-finite-math-only -march=native -Wno-unused-result -fopenmp -DOMP -I "$LLMC" \
    "$temp/train.c" -lm -o "$temp/train"
  "$PYTHON" "$here/bench_train.py" --llmc "$temp"
  llmc=yes
fi

round=0
while [ "$round" -lt "$rounds" ]; do
  round=$((round + 1))
  "$build/bench/bench_train" "$temp/plan.json" 4 >>"$temp/ours"
  if [ -n "${PYTHON:-}" ] && "$PYTHON" -c 'import torch' 2>/dev/null; then
    # shellcheck disable=SC2086  # three numbers
    "$PYTHON" "$here/bench_train.py" $shape "$sequence" "$batch" 4 "$cores" >>"$temp/torch"
  fi
  if [ -n "$llmc" ]; then
    (cd "$temp" && ./train 2>/dev/null | sed -n '/^step [12]:/s/.*took \([0-9]*\).*/\1/p') >>"$temp/llmc"
  fi
done

echo "$model, $batch x $sequence tokens, fp32, $cores threads; load $(cut -d' ' -f1-3 /proc/loadavg); $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
least() { sed -n "s/^$2 //p" "$temp/$1" | sort -n | head -n 1; }
most() { sed -n "s/^$1 //p" "$temp/ours" | sort -n | tail -n 1; }
echo "echelon $(least ours step_ms) ms a step ($(least ours step_ms_processor))"
if [ -f "$temp/torch" ]; then
  echo "pytorch $(least torch step_ms) ms a step ($(least torch step_ms_processor)), $("$PYTHON" -c 'import torch; print(torch.__version__)')"
fi
if [ -n "$llmc" ]; then echo "llm.c   $(sort -n "$temp/llmc" | head -n 1) ms a step"; fi
echo "peak    $(most gemm_GFLOPs) GFLOP/s of a product of 2048 x 2048 matrices; a core ($(most gemm_GFLOPs_processor))"
echo "model   $(most model_GFLOPs) GFLOP/s, $(most of_peak) of the peak of its round; a core ($(most model_GFLOPs_processor), $(most of_peak_processor))"
echo "copy    $(most copy_GBps) GB/s, a byte copied counted once"
