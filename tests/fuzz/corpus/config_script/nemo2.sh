nemo llm pretrain --yes --factory llama3_8b trainer.devices=8 trainer.num_nodes=8 \
  trainer.strategy.tensor_model_parallel_size=4 trainer.strategy.pipeline_model_parallel_size=2 \
  trainer.strategy.virtual_pipeline_model_parallel_size=4 trainer.strategy.sequence_parallel=true \
  trainer.strategy.ddp.overlap_grad_reduce=true data.seq_length=8192 data.micro_batch_size=1 \
  data.global_batch_size=512 model.config.recompute_granularity=selective
