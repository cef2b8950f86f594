#!/bin/bash
#SBATCH --nodes=8
TP=${TP:-4}
MODEL_ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
  --position-embedding-type rope --hidden-dropout 0 --attention-dropout 0 --vocab-size 128256
)
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py "${MODEL_ARGS[@]}" \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 --sequence-parallel \
  --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 512 --bf16 \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
