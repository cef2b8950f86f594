torchrun --nproc-per-node 8 pretrain_mamba.py --num-layers 52 --hidden-size 4096 \
  --num-attention-heads 32 --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5 \
  --mtp-num-layers 1 --mtp-hybrid-override-pattern '*-' --seq-length 8192 --micro-batch-size 1
