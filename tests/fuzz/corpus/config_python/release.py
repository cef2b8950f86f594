from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.qwen3 import model_registry
from torchtitan.models.qwen3.config_registry import qwen3_32b


def plan():
    config = qwen3_32b()
    config.model_spec = model_registry("8B")
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.pipeline_parallel_microbatch_size = 2
    config.parallelism.data_parallel_shard_degree = 32
    config.training.seq_len = 4096
    config.training.local_batch_size = 16
    config.training.global_batch_size = 512
    config.training.disable_cuda_graphs = True
    config.activation_checkpoint = FullAC.Config()
    config.compile.enable = True
    return config
