#!/bin/bash
# Megatron-LM core_v0.16.1 and d98e8a64 (2026-08-22): bash FILE on every node
# gpt3-175b on 64 GPUs, 8 on a node
# fill in data-path: prefix of the tokenized data
# fill in tokenizer-type: tokenizer
# fill in tokenizer-model: path of the tokenizer
# fill in train-iters: number of steps
# fill in lr: learning rate
torchrun --nproc_per_node 8 --nnodes 8 \
  --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
  pretrain_gpt.py \
  --num-layers 96 \
  --hidden-size 12288 \
  --num-attention-heads 96 \
  --ffn-hidden-size 49152 \
  --vocab-size 50257 \
  --max-position-embeddings 2048 \
  --position-embedding-type learned_absolute \
  --kv-channels 128 \
  --seq-length 2048 \
  --bf16 \
  --tensor-model-parallel-size 8 \
  --context-parallel-size 1 \
  --pipeline-model-parallel-size 8 \
  --expert-model-parallel-size 1 \
  --micro-batch-size 1 \
  --global-batch-size 64 \
  --pipeline-model-parallel-layout 'Et*11|t*12|t*13|(t*12|)*3t*13|t*11L' \
  --sequence-parallel \
  --overlap-grad-reduce \
  --data-path FILL_IN \
  --tokenizer-type FILL_IN \
  --tokenizer-model FILL_IN \
  --train-iters FILL_IN \
  --lr FILL_IN
