#!/bin/bash
#SBATCH --job-name=mixtral-8x7b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=FILL_IN

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nproc_per_node 8 --nnodes 8 --rdzv_id "$SLURM_JOB_ID" \
  --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:29500" \
  pretrain_gpt.py \
  --num-layers 32 \
  --hidden-size 4096 \
  --num-attention-heads 32 \
  --group-query-attention \
  --num-query-groups 8 \
  --swiglu \
  --ffn-hidden-size 14336 \
  --vocab-size 32000 \
  --max-position-embeddings 32768 \
  --normalization RMSNorm \
  --position-embedding-type rope \
  --untie-embeddings-and-output-weights \
  --disable-bias-linear \
  --hidden-dropout 0 \
  --attention-dropout 0 \
  --num-experts 8 \
  --moe-router-topk 2 \
  --moe-ffn-hidden-size 14336 \
  --kv-channels 128 \
  --seq-length 8192 \
  --bf16 \
  --tensor-model-parallel-size 2 \
  --context-parallel-size 1 \
  --pipeline-model-parallel-size 1 \
  --expert-model-parallel-size 8 \
  --expert-tensor-parallel-size 1 \
  --micro-batch-size 1 \
  --global-batch-size 64 \
  --use-distributed-optimizer \
  --sequence-parallel \
  --overlap-grad-reduce \
  --overlap-param-gather \
  --data-path FILL_IN \
  --tokenizer-type FILL_IN \
  --tokenizer-model FILL_IN \
  --train-iters FILL_IN \
  --lr FILL_IN
