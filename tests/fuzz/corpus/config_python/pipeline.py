"""Two stages."""
from torchtitan.models.llama3.config_registry import llama3_70b
def plan():
    c = llama3_70b(); p = c.parallelism
    p.pipeline_parallel_degree = 2; p.num_pp_microbatches = 16
    p.tensor_parallel_degree = 8
    p.pipeline_parallel_schedule = 'Interleaved1F1B'
    p.module_fqns_per_model_part = [["tok_embeddings", "layers.0"], ["layers.1"],
                                    ["layers.2"], ["layers.3", "norm", "lm_head"]]
    c.training.max_context_length = 8192
    c.training.num_tokens_per_microbatch_per_dp_rank = 1*8192  # one sequence
    c.activation_checkpoint = None
    return c
