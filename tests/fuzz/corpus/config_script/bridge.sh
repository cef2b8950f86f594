#!/bin/bash
# Megatron-Bridge 067f987d: bash FILE on every node
# llama3-8b on 16 GPUs, 8 on a node
# fill in recipe: recipe of the model, for example llama3_8b_pretrain_config
# fill in dataset.data_path: prefix of the tokenized data
# fill in train.train_iters: number of steps
# fill in optimizer.lr: learning rate
torchrun --nproc_per_node 8 --nnodes 2 \
  --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
  scripts/training/run_recipe.py \
  mixed_precision=bf16_mixed \
  ddp.grad_reduce_in_fp32=true \
  dataset.seq_length=8192 \
  model.tensor_model_parallel_size=2 \
  model.context_parallel_size=1 \
  model.pipeline_model_parallel_size=2 \
  model.expert_model_parallel_size=1 \
  train.micro_batch_size=1 \
  train.global_batch_size=64 \
  model.virtual_pipeline_model_parallel_size=2 \
  ddp.use_distributed_optimizer=true \
  model.sequence_parallel=true \
  ddp.overlap_grad_reduce=true \
  comm_overlap.tp_comm_overlap=false \
  --recipe FILL_IN \
  dataset.data_path=FILL_IN \
  train.train_iters=FILL_IN \
  optimizer.lr=FILL_IN
