torchrun --nproc-per-node 8 --nnodes 8 pretrain_hybrid.py --pipeline-model-parallel-size 2 \
  --hybrid-layer-pattern 'M-M-M-M*-M-|M-M-M*-M-M-/*-' --mamba-state-dim 128 \
  --mamba-num-heads 128 --mamba-head-dim 64 --mamba-num-groups 8 --hidden-size 4096 \
  --num-attention-heads 32 --seq-length 8192 --micro-batch-size 1 --bf16 --vocab-size 131072
