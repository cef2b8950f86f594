#!/bin/sh
# scripts/anchors.sh [--check] [PLAN]: the table of docs/anchors.md: predictions for plans tuned by
# experts, and the winners of our own search for the same model, machine and batch; below it a
# sentence on each difference. PLAN is the program (default: ./plan). Markdown on standard output.
# --check only predicts the published plans, and fails where one is refused.
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")/..
check=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
plan=${1:-$here/plan}
case $plan in /*) ;; *) plan=$PWD/$plan ;; esac
cd "$here"
export COLUMNS=160 PLAN_NO_INSTALL=1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# field NAME: the text of line NAME in the output of `plan ... -q` on stdin, continuation lines joined.
field() {
  awk -v name="$1" '
    /^[^ ]/ { on = index($0, name " ") == 1 }
    on { line = $0; if (index($0, name " ") == 1) line = substr($0, length(name) + 1)
         gsub(/^ +/, "", line); out = out (out == "" ? "" : " ") line }
    END { print out }'
}

# figures ANSWER: "8.37 s, 527 TFLOP/s, 61.2 GiB" from a quiet answer, with the excess if it does not
# fit.
figures() {
  step=$(printf '%s\n' "$1" | field step | sed 's/ (.*//; s/,.*//')
  rate=$(printf '%s\n' "$1" | field MFU | sed -n 's/^[^=]*= \([0-9.]*\) TFLOP.*/\1/p')
  memory=$(printf '%s\n' "$1" | field memory | sed -n 's/.* \([0-9.]*\) GiB reserved.*/\1/p')
  short=$(printf '%s\n' "$1" | field memory | sed -n 's/.* \([0-9.]* GiB\) too much.*/, \1 too much/p')
  printf '%s, %s TFLOP/s, %s GiB%s' "$step" "$rate" "$memory" "$short"
}

# anchor NAME | JOB FLAGS | PLAN FLAGS (- for none published) | PUBLISHED
anchor() {
  if [ -n "$check" ]; then
    [ "$3" != - ] || return 0
    # shellcheck disable=SC2086  # flags are words
    answer=$("$plan" predict $2 $3 -q --no-config 2>&1) || case $answer in
    plan:*) printf '%s: %s\n' "$1" "$answer" && refused=yes ;;
    esac
    return 0
  fi
  # shellcheck disable=SC2086  # flags are words
  set -- "$1" "$2" "$3" "$4" "$(rm -f "$work"/*.json; "$plan" search $2 -q --no-config -o "$work/ours.json" 2>&1 || true)"
  ours="$(printf '%s\n' "$5" | field 'best plan' | tr -d '|')"
  case $ours in
  '') ours=$(printf '%s\n' "$5" | head -n 2 | tr '\n' ' ') ;;
  *) ours="$ours → $(figures "$5")" ;;
  esac
  if [ "$3" = - ]; then
    theirs='–'
  else
    # shellcheck disable=SC2086
    answer=$("$plan" predict $2 $3 -q --no-config -o "$work/theirs.json" 2>&1 || true)
    case $answer in
    plan:*) theirs="not legal here: $(printf '%s\n' "$answer" | head -n 1 | sed 's/^plan: //')" ;;
    *) theirs=$(figures "$answer") ;;
    esac
  fi
  printf '| %s | `%s` | `%s` | %s | %s | %s |\n' "$1" "$2" "$3" "$4" "$theirs" "$ours"
  if [ -f "$work/ours.json" ] && [ -f "$work/theirs.json" ]; then
    "$plan" compare "$work/theirs.json" "$work/ours.json" --json |
      scripts/anchor_difference.py "$1" >>"$work/differences" || true
    echo >>"$work/differences"
  fi
}

refused=
[ -n "$check" ] || printf '| run | job | plan | published | that plan, predicted | our winner |\n|---|---|---|---|---|---|\n'
sc21='--cluster selene --framework megatron-2021 --no-flash-attention --seq 2048'
full='--recompute full --no-sequence-parallel --zero 0'
anchor 'SC21 1.7B' "--model megatron-1.7b --gpus 32 --global-batch 512 $sc21" "--tp 1 --microbatch 16 $full" '137 TFLOP/s'
anchor 'SC21 3.6B' "--model megatron-3.6b --gpus 64 --global-batch 512 $sc21" "--tp 2 --microbatch 16 $full" '138'
anchor 'SC21 7.5B' "--model megatron-7.5b --gpus 128 --global-batch 512 $sc21" "--tp 4 --microbatch 16 $full" '142'
anchor 'SC21 18B' "--model megatron-18b --gpus 256 --global-batch 1024 $sc21" "--tp 8 --microbatch 8 $full" '135'
anchor 'SC21 39B' "--model megatron-39b --gpus 512 --global-batch 1536 $sc21" "--tp 8 --pp 2 --microbatch 4 $full" '138'
anchor 'SC21 76B' "--model megatron-76b --gpus 1024 --global-batch 1792 $sc21" "--tp 8 --pp 4 --vpp 3 --microbatch 2 $full" '140'
anchor 'SC21 145B' "--model megatron-145b --gpus 1536 --global-batch 2304 $sc21" "--tp 8 --pp 8 --vpp 2 --microbatch 2 $full" '148'
anchor 'SC21 310B' "--model megatron-310b --gpus 1920 --global-batch 2160 $sc21" "--tp 8 --pp 16 --vpp 2 --microbatch 1 $full" '155'
anchor 'SC21 530B' "--model megatron-530b --gpus 2520 --global-batch 2520 $sc21" "--tp 8 --pp 35 --vpp 3 --microbatch 1 $full" '163'
anchor 'SC21 1T' "--model megatron-1t --gpus 3072 --global-batch 3072 $sc21" "--tp 8 --pp 64 --microbatch 1 $full" '163'
anchor 'MT-NLG, 2,240' "--model megatron-530b --gpus 2240 --global-batch 1920 $sc21" "--tp 8 --pp 35 --microbatch 1 $full" '126'
anchor 'MT-NLG, 2,800' "--model megatron-530b --gpus 2800 --global-batch 1920 $sc21" "--tp 8 --pp 35 --microbatch 1 $full" '121'
anchor 'MT-NLG, 3,360' "--model megatron-530b --gpus 3360 --global-batch 1920 $sc21" "--tp 8 --pp 35 --microbatch 1 $full" '113'
anchor 'BLOOM 176B' "--model bloom-176b --gpus 384 --global-batch 2048 --cluster selene --framework megatron-deepspeed --no-flash-attention --seq 2048" "--tp 4 --pp 12 --microbatch 2 --recompute full --no-sequence-parallel --zero 1" '104.7 s, 150 TFLOP/s'
# Trained by metaseq: FSDP with Megatron's tensor parallelism, of which ZeRO-3 of Megatron-DeepSpeed is
# nearest (torchtitan has no tensor parallelism for learned positions).
anchor 'OPT-175B' '--model opt-175b --cluster azure-ndmv4 --gpus 992 --seq 2048 --global-batch 992 --framework megatron-deepspeed --no-flash-attention' '--tp 8 --microbatch 8 --zero 3 --recompute full' '147'
anchor 'GLM-130B' '--model glm-130b --cluster dgx-a100-40gb --gpus 768 --seq 2048 --global-batch 4224 --framework megatron-deepspeed --no-flash-attention' '--tp 4 --pp 8 --microbatch 1 --recompute full --no-sequence-parallel --zero 1' '135'
anchor 'Falcon-180B' '--model falcon-180b --cluster aws-p4d --gpus 4096 --seq 2048 --global-batch 2048' '--tp 8 --pp 8 --microbatch 1 --zero 1 --recompute none' '–'
anchor 'MegaScale 175B' '--model gpt3-175b --cluster dgx-a100 --gpus 12288 --seq 2048 --global-batch 6144' '--tp 8 --pp 8 --vpp 6 --microbatch 1 --zero 1 --sequence-parallel' '55.2 % MFU = 172 TFLOP/s'
mlperf='--model gpt3-175b --seq 2048 --precision fp8'
mine='--tp 4 --pp 8 --vpp 12 --microbatch 1 --zero 1 --sequence-parallel'
anchor 'MLPerf 3.1, 768' "$mlperf --gpus 768 --global-batch 3072" "$mine" '11.08 s'
anchor 'MLPerf 3.1, 4,096' "$mlperf --gpus 4096 --global-batch 2048" "$mine" '1.609 s'
anchor 'MLPerf 3.1, 8,192' "$mlperf --gpus 8192 --global-batch 4096" "$mine" '1.619 s'
anchor 'MLPerf 3.1, 10,752' "$mlperf --gpus 10752 --global-batch 2688" "$mine" '0.930 s'
anchor 'GPT-3 175B, 1,024' '--model gpt3-175b --gpus 1024 --seq 2048 --global-batch 2048' "$mine" '9.01 s'
# Llama 3 leaves out the layer of the first and of the last chunk. Its autograd operators keep
# checkpoints in place of tensors (ISCA'25); nearest in Megatron-Core is to recompute the MLP.
meta='--pp 16 --vpp 8 --microbatch 1 --zero 1 --sequence-parallel --recompute selective:mlp'
anchor 'Llama 3 405B, 8,192' '--model 405b --gpus 8192 --seq 8192 --global-batch 2048' "--tp 8 $meta" '430 TFLOP/s'
anchor 'Llama 3 405B, 16,384' '--model 405b --gpus 16384 --seq 8192 --global-batch 2048' "--tp 8 $meta" '400'
anchor 'Llama 3 405B, 131k' '--model 405b --gpus 16384 --seq 131072 --global-batch 128' "--tp 8 --cp 16 $meta" '380'
# The performance recipes of NeMo and Megatron-Bridge keep gradients in bf16
# (grad_reduce_in_fp32=False); those of fp8 are fp8:bf16-gradients.
anchor '405B, 512 H100' '--model 405b --gpus 512 --seq 8192 --global-batch 256 --precision bf16:adam-bf16-gradients' '--tp 8 --pp 8 --cp 2 --vpp 8 --microbatch 1 --zero 1 --sequence-parallel' 'none: a configuration file'
anchor '405B, 256 GB200' '--model 405b --cluster gb200-nvl72 --gpus 256 --seq 8192 --global-batch 128 --precision bf16:adam-bf16-gradients' '--tp 4 --pp 8 --cp 2 --vpp 8 --microbatch 1 --zero 1 --sequence-parallel' '9.48 s, 1,134 TFLOP/s'
nemotron='--model nemotron-4-340b --seq 4096'
anchor 'Nemotron-4 340B, 6,144' "$nemotron --gpus 6144 --global-batch 2304" '--tp 8 --pp 12 --vpp 8 --microbatch 1 --zero 1 --sequence-parallel' '8.0 s, 41-42 % MFU'
anchor 'Nemotron-4 340B, 256' "$nemotron --gpus 256 --global-batch 64 --precision bf16:adam-bf16-gradients" '--tp 8 --pp 8 --vpp 12 --microbatch 1 --zero 1 --sequence-parallel' '4.31 s, 50.5 % MFU'
anchor 'Nemotron-4 340B, 128 B200' "$nemotron --cluster dgx-b200 --gpus 128 --global-batch 512 --precision fp8:bf16-gradients" '--tp 8 --pp 4 --vpp 12 --microbatch 1 --zero 1 --sequence-parallel' '21.54 s, 1,601 TFLOP/s'
# Trained, and measured by NVIDIA, with its module for multi-token prediction on the last stage.
deepseek='--model examples/models/deepseek-v3-mtp.json --seq 4096 --precision fp8'
# Its report recomputes all norms, the up projections of attention and the output of SwiGLU, which
# Megatron-Core has in fp8 with scales of blocks, as the report has too, and not with delayed scaling.
anchor 'DeepSeek-V3, 2,048 H800' "$deepseek:deepseek-v3 --cluster dgx-h800 --gpus 2048 --global-batch 15360" '--pp 16 --ep 64 --dispatcher deepep --microbatch 1 --zero 1 --recompute selective:layernorm,mla_up_proj,moe_act --layers-per-stage 4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1' '19.9 s (180 k GPU hours per T tokens)'
# Its schedule, dispatch in fp8 and recipe of states; layers per stage are not published.
anchor 'DeepSeek-V3, 2,048 H800, DualPipe' '--model examples/models/deepseek-v3-mtp.json --seq 4096 --precision fp8:deepseek-v3 --cluster dgx-h800 --gpus 2048 --global-batch 15360' '--framework hai-llm --schedule dualpipe --overlap dp,pp,ep --pp 16 --ep 64 --dispatcher deepep --microbatch 1 --zero 1 --recompute selective:layernorm,mla_up_proj,moe_act --layers-per-stage 3,4,4,4,4,4,4,4,4,4,4,4,4,4,4,2' '19.9 s'
anchor 'DeepSeek-V3, 2,048 H800, all recomputed' "$deepseek --cluster dgx-h800 --gpus 2048 --global-batch 15360" '--pp 16 --ep 64 --dispatcher deepep --microbatch 1 --zero 1 --recompute full --layers-per-stage 4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1' '19.9 s'
# Recipes of Megatron-Bridge: bf16 gradients, and 16-bit moments for DeepSeek-V3; the first and the
# last chunk are the shorter ones (Et|(tt|)*30mL and Et*4|(t*4|)*14tmL).
anchor 'DeepSeek-V3, 1,024 H100' '--model examples/models/deepseek-v3-mtp.json --seq 4096 --precision fp8:precision-aware --gpus 1024 --global-batch 8192' '--tp 2 --pp 8 --vpp 4 --ep 64 --dispatcher deepep --overlap pp,ep --microbatch 1 --zero 1 --sequence-parallel --recompute selective:mla_up_proj,mlp --layers-per-stage 7,8,8,8,8,8,8,6' '25.3 s, 338 TFLOP/s'
# Bridge's benchmarks put 64 GPUs of a rack to work (NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64).
anchor 'Kimi-K2, 256 GB300' '--model kimi-k2 --cluster gb300-nvl72 --gpus 256 --seq 4096 --global-batch 4096 --precision mxfp8:muon' '--pp 4 --vpp 4 --ep 64 --dispatcher hybridep --microbatch 2 --zero 1 --recompute selective:mla_up_proj --layers-per-stage 16,16,16,13' '5,372 tokens/s per GPU = 12.2 s, 1,099 TFLOP/s'
bridge='--seq 4096 --precision bf16'
unrun='none: a configuration file'
anchor 'Bridge OLMoE' "--model olmoe-7b --gpus 8 --global-batch 256 $bridge" '--ep 8 --microbatch 1 --zero 1' "$unrun"
anchor 'Bridge DeepSeek-V2' "--model deepseek-v2 --gpus 128 --global-batch 1024 $bridge" '--pp 4 --ep 32 --microbatch 1 --zero 1 --recompute full' "$unrun"
anchor 'Bridge GLM-4.5' "--model glm-4.5 --gpus 256 --global-batch 2048 $bridge" '--tp 2 --pp 8 --ep 16 --microbatch 1 --zero 1 --sequence-parallel --recompute selective:core_attn' "$unrun"
anchor 'Bridge Qwen3-235B' "--model qwen3-235b --gpus 512 --global-batch 2048 $bridge" '--tp 4 --pp 16 --cp 2 --ep 8 --microbatch 1 --zero 1 --sequence-parallel' "$unrun"
anchor 'Bridge DeepSeek-V3' '--model deepseek-v3 --gpus 1024 --global-batch 8192 --seq 4096 --precision bf16:precision-aware' '--tp 2 --pp 16 --ep 64 --microbatch 1 --zero 1 --sequence-parallel --layers-per-stage 4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1' "$unrun"
anchor 'Bridge Kimi-K2' '--model kimi-k2 --gpus 1024 --global-batch 8192 --seq 4096 --precision bf16:muon' '--tp 2 --pp 16 --ep 32 --microbatch 1 --zero 1 --sequence-parallel' "$unrun"
anchor '70B, 64 H100' '--model llama3-70b --gpus 64 --seq 8192 --global-batch 256 --precision fp8:bf16-gradients' '--tp 4 --pp 8 --vpp 5 --microbatch 1 --zero 1 --sequence-parallel' '19.7 s (1,664 tokens/s per GPU)'
anchor '70B, 256 H100' '--model 70b --gpus 256 --seq 4096 --global-batch 1024' '--tp 4 --pp 4 --vpp 5 --microbatch 1 --zero 1 --sequence-parallel' '–'
anchor '7B, 64 H100' '--model 7b --gpus 64 --seq 4096 --global-batch 1024' '--microbatch 1 --zero 1' '–'
anchor 'Mixtral 8x7B, 64' "--model mixtral-8x7b --gpus 64 --global-batch 256 $bridge" '--pp 4 --ep 8 --microbatch 1 --zero 1' '–'
if [ -n "$check" ]; then
  [ -z "$refused" ] || exit 1
  exit 0
fi
printf '\n'
cat "$work/differences"
