from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.deepseek_v3.config_registry import deepseek_v3_671b
def plan():
    config = deepseek_v3_671b()
    config.parallelism.expert_parallel_degree = 32
    config.parallelism.data_parallel_replicate_degree = 2
    config.parallelism.data_parallel_shard_degree = 32
    config.training.max_context_length = 4096
    config.training.num_tokens_per_microbatch_per_dp_rank = 4096
    config.training.num_tokens_per_train_step = -1
    config.activation_checkpoint = FullAC.Config()
    return config
