// torchtitan, and other training on PyTorch's FSDP2.
#include <array>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kTorchtitanDefaults = {
    FrameworkDefaults{.software = "torchtitan",
                      .why = "the same software",
                      .recompute = Recompute::selective,
                      .zero = 3},
    FrameworkDefaults{.software = "torchtune",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with the same building blocks",
                      .recompute = Recompute::full,
                      .zero = 3,
                      .not_priced_on_one_gpu =
                          "torchtune's single-GPU optimizers (8-bit, paged, in the backward pass) "
                          "are not priced"},
    FrameworkDefaults{.software = "olmo-core",
                      .same_code = false,
                      .why = "PyTorch FSDP2 with torch.compile",
                      .zero = 3},
    FrameworkDefaults{.software = "nemo-automodel",
                      .same_code = false,
                      .why = "PyTorch FSDP2 around HuggingFace models",
                      .zero = 3},
    FrameworkDefaults{
        .software = "ddp", .same_code = false, .why = "plain PyTorch with torch.compile"},
    FrameworkDefaults{
        .software = "",
        .evident = Evident::splits_data,
        .same_code = false,
        .why = "an unknown software; what only splits data is most like PyTorch FSDP2",
        .zero = 3},
};

}  // namespace

Framework torchtitan() {
  Framework f;
  f.name = "torchtitan";
  f.source =
      "torchtitan: FSDP2 (ZeRO-3, or ZeRO-2 when weights are not resharded after "
      "forward) with fp32 shards; combines with pipeline stages; no ZeRO-1";
  f.default_precision = "bf16:fsdp-fp32-shards";
  f.zero_allowed[1] = false;
  f.zero23_with_pipeline = true;
  f.cp_ring = true;
  f.expert_parallel = true;
  f.sequence_parallel_always = true;
  f.saves_gate_output = true;  // F.silu(w1(x)) * w3(x), unless compiled
  // activation_checkpoint "selective", option "op": attention and every second mm are kept
  f.selective_per_operator = true;
  // torch's cross entropy: bf16 logits and their gradient, fp32 copy, log-softmax, gradient
  f.logits_bytes = 16;
  // parallelism.data_parallel_replicate_degree and module_fqns_per_model_part
  f.hybrid_shard[2] = f.hybrid_shard[3] = true;
  f.any_layout = true;
  f.defaults = kTorchtitanDefaults;
  return f;
}

}  // namespace echelon
