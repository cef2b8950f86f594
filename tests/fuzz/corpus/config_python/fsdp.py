from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.llama3.config_registry import llama3_8b


def plan():
    config = llama3_8b()
    config.parallelism.data_parallel_shard_degree = 64
    config.parallelism.tensor_parallel_degree = 1
    config.training.max_context_length = 8192
    config.training.num_tokens_per_microbatch_per_dp_rank = 8192
    config.training.num_tokens_per_train_step = 512 * 8192
    config.activation_checkpoint = SelectiveAC.Config()
    config.compile.enable = True
    return config
