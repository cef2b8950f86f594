// Frameworks: what each training framework does by construction. Facts, not fitted rates.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/defaults.hpp"
#include "core/framework/flash_kernels.hpp"
#include "core/framework/rules.hpp"
#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Whose kernels a framework runs, besides those of cuBLAS and cuDNN.
enum class KernelLibrary {
  torch,     ///< PyTorch's own, or those of torch.compile
  megatron,  ///< Megatron's, Apex's and TransformerEngine's fused ones
  own,       ///< written for it, with a launch path in C++
};

/// Which attention kernels a framework runs, where calibrations do not say it: a GPU family and
/// framework have one set of rates, but both have had several kernels.
enum class AttentionKernels {
  as_fitted,  ///< those of the runs that the rates were fitted to
  flash_1,    ///< FlashAttention-1, or its version in Triton
  flash_2,    ///< FlashAttention-2, whose instructions are Ampere's
  newest,     ///< FlashAttention-3 or cuDNN's, with the instructions of the GPU
};

/// What the stream of compute copies around ZeRO-2's and 3's collectives.
enum class UnitCopies {
  none,
  flat_gradient,   ///< gradients of views into that of the flat parameter (FSDP1)
  each_parameter,  ///< weights out of the gathered buffer, gradients into the reduced one (FSDP2)
};

/// What a training framework does by construction. Rates live in a Calibration; these are yes/no
/// facts and byte counts that can be read in its source. One file per framework defines its table
/// (core/framework/megatron_core.cpp); no other code compares a framework's name.
struct Framework {
  std::string name;
  std::string source;
  /// Other names that --framework takes for it, where the rules are the same.
  std::span<const std::string_view> also_called{};
  /// The framework whose calibrations are its own too; "": it has its own. Such a calibration
  /// counts as extrapolated.
  std::string calibrated_as;
  KernelLibrary kernels = KernelLibrary::torch;
  AttentionKernels attention = AttentionKernels::as_fitted;
  std::string default_precision = "bf16:adam-fp32-master";
  /// Recipes that differ in the states they keep, of which `--precision FORMAT:any` searches those
  /// of a format: the widest states of each first.
  std::span<const std::string_view> state_recipes{};
  bool trains_fp16 = true;  ///< it has the scaled loss that gradients in fp16 need
  /// PrecisionRecipe::needs_distributed_optimizer is refused at ZeRO-0.
  bool narrow_states_need_zero = false;
  bool zero_allowed[4] = {true, true, true, true};
  bool tensor_parallel = true;        ///< offers tp > 1
  bool pipeline_parallel = true;      ///< offers pp > 1
  bool zero23_with_pipeline = false;  ///< ZeRO-2/3 can be combined with pp > 1
  /// … and then reduces gradients once, after a stage's last microbatch, from whole fp32 ones, and
  /// keeps a layer's gathered weights from its backward to its next forward.
  bool reduces_once_in_pipeline = false;
  /// At ZeRO-2/3 without a pipeline, too, gradients are reduced once, after the last of several
  /// microbatches (FSDP's no_sync); weights are gathered in each as ever.
  bool accumulates_whole = false;
  UnitCopies unit_copies = UnitCopies::none;
  bool zero3_with_experts = true;         ///< ZeRO-3 can be combined with ep > 1
  bool sequence_parallel = true;          ///< offers sequence parallelism
  bool sequence_parallel_always = false;  ///< … and always uses it when tp > 1
  /// A model with experts and tp > 1 needs sequence parallelism, whatever ep is.
  /// Source: Megatron-LM core_v0.16.1, megatron/core/transformer/moe/moe_layer.py:379.
  bool experts_need_sequence_parallel = true;
  /// Every tensor-parallel rank routes all rows of the sequence and has a part of every expert, as
  /// of a dense MLP (etp = tp): its products are those of one expert over the rows of one rank,
  /// without padding, and the buffers of routed rows hold as many as can come, ep·T·min(k, E/ep) of
  /// T tokens that visit k of E experts. Rows are dispatched once more for the weights' gradients.
  bool splits_experts_as_mlp = false;
  /// Slices of a sequence per context-parallel rank; two balance the causal mask (slices_of).
  /// Source: Megatron-LM d98e8a64, core/utils.py, get_batch_on_this_cp_rank.
  int slices_per_context_rank = 2;
  bool interleaved = true;  ///< offers vpp > 1
  /// Interleaves in groups of any number of microbatches from pp on; else in groups of pp, so that
  /// pp divides the microbatches. Source: Megatron-LM d98e8a64,
  /// core/pipeline_parallel/schedules.py, microbatch_group_size_per_vp_stage.
  bool microbatch_groups = false;
  bool cp_ring = false;        ///< context parallelism by a ring of keys and values
  bool cp_all_to_all = false;  ///< … by an all-to-all over heads (Ulysses)
  bool cp_all_gather = false;  ///< … of sparse attention: its keys are gathered
  /// … around gated delta nets and state spaces, by an all-to-all over heads.
  bool context_of_recurrences = false;
  /// A kernel before the all-to-all, or behind it, moves the heads of a rank to one place;
  /// attention's output is saved in both forms, and its recomputation repeats the all-to-all.
  /// Before a ring another one packs keys and values, and its recomputation repeats the ring.
  bool packs_heads = false;
  /// In latent attention every tensor-parallel rank makes the latents of all tokens, from the
  /// gathered hidden states; else of its own tokens, whose latents are gathered.
  bool latents_of_all_tokens = false;
  bool expert_parallel = false;    ///< experts split over ranks
  bool experts_take_tp = false;    ///< … and each over tp ranks unless told otherwise (etp)
  bool rank_orders = false;        ///< offers pp inside dp besides the default order
  bool offload_optimizer = false;  ///< master weights and moments can live in host memory
  bool zero_bubble = false;        ///< offers ZB-H1
  bool dualpipe_v = false;         ///< offers DualPipeV
  bool dualpipe = false;           ///< offers DualPipe, each stage on two pipeline ranks
  /// Without sequence parallelism each of tp ranks sends 1/tp of a pipeline message, and the
  /// receivers gather it; else each sends all of it.
  bool scatters_messages = false;
  bool overlaps_every_message = false;  ///< pipeline messages overlap compute without interleaving
  bool materialised_attention = true;   ///< offers attention that keeps its matrix of scores
  /// Kernels of attention without one (flash attention); why_no_flash() asks them.
  std::span<const FlashKernel> flash_kernels = kFlashAttnPackage;
  bool context_needs_flash = true;  ///< its context parallelism needs one of them
  /// Has sparse attention (DSA), with an indexer that its loss over the chosen keys trains.
  bool sparse_attention = false;
  bool any_model = false;  ///< trains whatever module of transformers its user brings
  /// … and layers can be transformers' modules (LayerCode), which it wraps.
  bool wraps_transformers = false;
  bool packed_documents = false;  ///< offers attention within the documents of a sequence,
                                  ///< whose kernels leave out all other pairs
  bool counts_recomputed = true;  ///< full recomputation of some layers only; else of all
  bool counts_recomputed_in_pipeline = true;  ///< … with pp > 1
  bool per_stage_recompute = false;           ///< recomputed layers may differ between stages
  bool mixed_recompute = false;  ///< … and a stage may recompute some selectively as well
  /// At ZeRO-n the states may be split over fewer ranks than all data-parallel ones (HSDP).
  bool hybrid_shard[4] = {false, false, false, false};
  /// Its optimizer takes all ranks of dp x cp for data-parallel ones: sources that name dp mean
  /// them. Source: Megatron-LM core_v0.16.1, core/parallel_state.py, get_data_parallel_group
  /// (with_context_parallel).
  bool shards_over_dp_cp = false;
  /// Any layers in any chunk; the very first (embedding) and the very last (loss) may hold none.
  bool any_layout = false;
  /// Who deals the layers of stages without interleaving; of interleaved ones `any_layout` says
  /// whether chunks must be equal.
  StageLayers stage_layers = StageLayers::chosen;
  bool reduces_in_ddp = false;       ///< buckets of torch's DDP at ZeRO-0, all at once with ZeRO;
                                     ///< else Megatron-Core's buckets
  bool overlaps_dp = true;           ///< gradient reduction overlaps the last backward
  bool overlaps_gather = true;       ///< ZeRO-1/2 parameter gather overlaps the next forward
  bool awaits_first_gather = false;  ///< … which begins when its first bucket is there
  bool overlaps_tp_backward = true;  ///< dgrad collectives overlap the wgrad GEMM
  /// Sequence parallelism gathers and scatters along the second dimension of microbatch, sequence
  /// and hidden width, which copies the whole tensor behind a gather (of several sequences) and
  /// before a reduce-scatter; and a product keeps its gathered input, else its shard, which the
  /// backward gathers again.
  bool splits_second_dimension = false;
  /// … gathers in fp8 where products take it with one scale per tensor.
  bool gathers_fp8 = false;
  /// Queries, keys and values, and gate and up, are products of their own, so that the gradients of
  /// their input are summed.
  bool separate_projections = false;
  /// Token dispatchers that it offers, by Dispatcher.
  bool dispatchers[kDispatchers] = {true, false, false, false};
  /// DeepEP's and HybridEP's buffers are made for all tokens of a rank's local batch, with stages
  /// those of all microbatches of a step. Source: torchtitan v0.3.0,
  /// torchtitan/models/common/token_dispatcher.py:1232, update_ep_token_dispatcher_config; b5bcd76c
  /// makes them for one microbatch. Those of other frameworks have no price.
  bool exchanges_local_batch = false;
  bool overlaps_experts =
      false;  ///< offers overlap of dispatch and combine with another microbatch
  bool overlaps_shared_experts = false;  ///< … with the shared experts
  /// DeepEP and HybridEP send the tokens, and the gradients into the experts, in fp8 where GEMMs
  /// take it, with a 4-byte scale per 128 values; both combines stay in 16 bits. Megatron-Core's
  /// paths send bf16 (Megatron-LM d98e8a64, core/transformer/moe/fused_a2a.py); DeepSeek's own
  /// framework does it (arXiv 2412.19437, section 3.3.3).
  bool fp8_dispatch = false;
  bool graphs_of_layers = false;  ///< offers CUDA graphs of layers
  bool graphs_of_step = false;    ///< … and of a whole step
  bool dropout = true;            ///< applies the model's dropout; else it trains without
  /// Adds a loss that balances the experts' loads; else the tokens' loss alone trains the router.
  bool balances_experts = true;
  /// Trains the model's modules for multi-token prediction; else it trains without them.
  bool prediction_modules = false;
  int default_vocab = 0;  ///< of its launcher, where a run names none; 0: no default
  /// The gradient buffer has the format in which it is reduced; else it stays fp32.
  bool gradients_as_reduced = false;
  double logits_bytes = 6;  ///< alive per logit at the peak: bf16 logits + fp32 softmax
  std::optional<double> compiled_logits_bytes{};  ///< … of a compiled loss, if it has one
  double loss_traffic = 20;                       ///< HBM bytes per logit, forward + backward
  int gather_buffers = 1;  ///< full-sequence buffers alive in a sequence-parallel layer
  /// Full-sequence tensors per sequence-parallel layer and pass whose memory comes back only once
  /// their collective has run, however far ahead the host is (calibration:
  /// pending_collective_share).
  double pending_collective_buffers = 0;
  int pending_after = 0;       ///< … of all but so many microbatches: there the host has waited
  double pending_at_most = 0;  ///< … and of no more tensors: the queue of kernel launches is full
  double zero1_gather_local = 0;  ///< transient copy at ZeRO-1, bytes per local parameter
  double zero1_gather_shard = 0;  ///< … and per sharded parameter
  /// Copies of the gradients while the optimizer steps at ZeRO-n: bytes per owned parameter.
  double step_copies[4] = {0, 0, 0, 0};
  double step_group = 0;                ///< … of so many parameters at a time at ZeRO-3
  double bucket_buffers = 0;            ///< elements in the buffers of ZeRO's buckets of gradients
  bool dummy_weight_gradients = false;  ///< TransformerEngine keeps one bf16 gradient per shape
  bool saves_swiglu_product = true;     ///< product of gate and up is kept rather than recomputed
  bool saves_gate_output = false;       ///< … and the activated gate: no kernel fuses the two
  bool saves_fp8_inputs = false;        ///< fp8 GEMMs keep their quantised input, not the original
  /// … and so is that of an MLP's activation. Source: Megatron-LM d98e8a64,
  /// --activation-func-fp8-input-store.
  bool saves_fp8_activation_input = false;
  bool saves_expert_output = true;  ///< the experts' output waits for the routing weights'
                                    ///< gradient; else these are applied before the down GEMM
  /// Modules that selective recomputation can name; without any, it is the framework's own one.
  RecomputeModules recompute_modules{};
  /// Setting that keeps parameters in host memory, which has no price; "": there is none.
  std::string parameter_offload{};
  /// Modules whose saved inputs can wait in host memory for the backward.
  OffloadModules offload_modules{};
  bool reduces_own_gradients = true;    ///< a 16-bit gradient next to the accumulator even at dp 1
  bool selective_per_operator = false;  ///< selective recomputation keeps attention and every
                                        ///< second product, instead of all but the attention core
  bool remakes_pointwise = false;       ///< results of norms and activations are recomputed in the
                                        ///< backward, and attention's output with its core
  /// The kernels of its backward are priced one by one: those that recompute norms and activations
  /// (remakes_pointwise), that sum gradients of biases, and that make the head slice by slice
  /// (loss_rows). Else rates that are fitted to its runs include them.
  bool backward_by_kernels = false;
  /// Shares of a layer's launches, and of what a layer of experts adds to them, that the host makes
  /// itself; the rest is replayed as CUDA graphs.
  double host_share = 1;
  double host_experts_share = 1;
  double host_products_share = 1;  ///< … and of those that every local expert adds
  bool captures_layers = false;    ///< layers are CUDA graphs, whatever the plan says
  /// A forward or backward without communication and recomputation becomes a CUDA graph where the
  /// host would fall behind.
  bool replays_passes = false;
  /// The host reads how many rows each expert gets before it launches their products, and a
  /// calibration counts that apart (host_wait); others' is part of host_experts.
  bool awaits_counts = false;
  bool product_per_expert = false;  ///< a GEMM and casts of its own for every local expert
  bool fused_experts = false;  ///< one kernel for the products of all local experts, which also
                               ///< applies the activation and casts its result
  /// Rotary embeddings whose cosines and sines have a factor (YaRN's) run operation by operation.
  bool unfused_scaled_rotation = false;
  /// HBM traffic of element-wise kernels in units of fused ones', and what it is of a run without
  /// torch.compile, where the calibrations are those of compiled runs.
  double pointwise_passes = 1;
  double eager_passes = 1;
  /// All memory is allocated before the first step, each block for the largest use it will have
  /// (costmodel/memory/block_memory.cpp).
  bool fixed_blocks = false;
  /// ZeRO-2/3 (FSDP) is another wrapper of the model than that of ZeRO-0 and 1, with checkpoints of
  /// its own format, and its authors call it experimental with tensor parallelism.
  bool fsdp_is_another_wrapper = false;
  /// A pipeline takes models of classes of its own, not those that users have: a search has no
  /// stages unless they are pinned.
  bool pipeline_needs_own_model = false;
  /// What trains low-rank adapters on frozen weights in it; "": it trains all parameters.
  std::string_view trains_adapters{};
  /// … and gives each linear module of transformers one of its own, queries, keys and values three;
  /// else one for a layer's projection into all heads, and one for gate and up.
  bool adapts_each_module = false;
  /// … in models without experts and latent attention alone.
  bool adapts_dense_alone = false;
  /// … and splits of an adapter over tensor-parallel ranks only what its matrix splits: A of a
  /// column-parallel one and B of a row-parallel one are whole on every rank, so that the matrix's
  /// own collectives are all that a pass has. Else both are split, and narrow results exchanged.
  bool replicates_adapters = false;
  /// What keeps frozen weights in 4 bits under them (QuantizedWeights); "": they stay as they are.
  std::string_view quantizes_weights{};
  /// It casts all parameters to the format of compute, whatever they were loaded in.
  bool casts_parameters = false;
  /// Frozen units at ZeRO-2 and 3 hold the inputs of recomputed layers, and gradients of them,
  /// until a backward has ended: a hook's closure has the leaf that reentrant checkpoints make of
  /// each. Source: torch 2.15, torch/distributed/fsdp/_runtime_utils.py,
  /// _register_post_backward_reshard_only_hook; autograd/graph.py, register_multi_grad_hook;
  /// utils/checkpoint.py, CheckpointFunction.backward.
  bool holds_input_gradients = false;
  int loss_rows = 0;        ///< rows of logits that exist at once; 0: all of a microbatch
  int vocab_padding = 128;  ///< vocabulary padded to a multiple of this · tp
  /// What a run leaves unsaid, for this framework and for the software it stands for.
  std::span<const FrameworkDefaults> defaults{};
  std::span<const FrameworkRule> rules{};      ///< combinations it refuses besides the facts above
  std::span<const RemarkRule> remark_rules{};  ///< what it asks for and warns of

  /// Whether a plan's pipeline messages are scattered (scatters_messages).
  [[nodiscard]] bool scatters(const ParallelPlan& plan) const {
    return scatters_messages && plan.tp > 1 && !plan.sequence_parallel;
  }
  /// Whether a plan's ZeRO-2/3 keeps gathered weights for the next microbatch
  /// (reduces_once_in_pipeline).
  [[nodiscard]] bool keeps_gathered(const ParallelPlan& plan) const {
    return reduces_once_in_pipeline && plan.zero >= 2 && plan.pp > 1;
  }
  /// Whether it reduces gradients only behind the last microbatch.
  [[nodiscard]] bool reduces_once(const ParallelPlan& plan) const {
    return keeps_gathered(plan) || (accumulates_whole && plan.zero >= 2);
  }
  /// Whether fewer than all layers can be recomputed fully on so many pipeline stages.
  [[nodiscard]] bool recomputes_some_layers(int pp) const {
    return counts_recomputed && (pp == 1 || counts_recomputed_in_pipeline);
  }
  [[nodiscard]] bool offers(Dispatcher dispatcher) const {
    return dispatchers[static_cast<std::size_t>(dispatcher)];
  }
  [[nodiscard]] bool offers(CudaGraphs scope) const {
    switch (scope) {
      case CudaGraphs::none: return true;
      case CudaGraphs::layers: return graphs_of_layers;
      case CudaGraphs::full_iteration: return graphs_of_step;
    }
    return false;
  }
  [[nodiscard]] bool offers_cp(CpComm comm) const {
    switch (comm) {
      case CpComm::ring: return cp_ring;
      case CpComm::all_to_all: return cp_all_to_all;
      case CpComm::all_gather: return cp_all_gather;
    }
    return false;
  }
  /// A ring always has two slices. Source: TransformerEngine, context_parallel.py,
  /// AttnFuncWithCPAndKVP2P.
  [[nodiscard]] int slices_of(CpComm comm) const {
    return comm == CpComm::ring ? 2 : slices_per_context_rank;
  }
  /// By any.
  [[nodiscard]] bool offers_cp() const { return cp_ring || cp_all_to_all || cp_all_gather; }
  /// The framework that its calibrations name.
  [[nodiscard]] const std::string& calibration_key() const {
    return calibrated_as.empty() ? name : calibrated_as;
  }
};

/// The framework that is planned for when a user names none.
inline constexpr const char* kDefaultFramework = "megatron-core";
/// The framework that `plan run` executes: our own runtime.
inline constexpr const char* kExecutingFramework = "echelon";

/// All frameworks in the order users see them: megatron-core, megatron-2021, megatron-deepspeed,
/// nanotron, torchtitan, llm-foundry, deepspeed, hai-llm, echelon.
[[nodiscard]] const std::vector<Framework>& frameworks();
/// Their names, blanks between them.
[[nodiscard]] const std::string& framework_choices();
/// The names of those with a feature, for errors: "megatron-core, deepspeed".
template <class Has>
[[nodiscard]] std::string frameworks_with(Has has) {
  std::string names;
  for (const Framework& framework : frameworks()) {
    if (std::invoke(has, framework)) names += (names.empty() ? "" : ", ") + framework.name;
  }
  return names;
}
/// By its name or one of those it is also called by.
[[nodiscard]] Result<Framework> find_framework(std::string_view name);
/// Of the framework that `plan run` executes.
[[nodiscard]] const Framework& executing_framework();

/// Why a plan's gradients are not reduced in buckets; "" where they are: over more than one rank,
/// overlapping the backward, at ZeRO-0 and 1 (from ZeRO-2 on layer by layer).
[[nodiscard]] std::string why_no_buckets(const Framework& framework, const ParallelPlan& plan);

/// Why the framework has no attention without a matrix of scores for the widest heads of the model,
/// in this format, on GPUs of this compute capability (0: unknown, or no CUDA): "none in fp32: its
/// kernels take bf16 and fp16"; "" where it has. Sparse attention has kernels of its own
/// (planner/space/legality.cpp, check_sparse). Checked by:
/// tests/core/framework/flash_kernels_test.cpp.
[[nodiscard]] std::string why_no_flash(const Framework& framework, double capability, Dtype compute,
                                       const ModelSpec& model);

/// The first of the framework's rules about `part` that the plan breaks, or null. A plan has to
/// keep those of every part; planner/space/legality.hpp asks them all.
[[nodiscard]] const FrameworkRule* broken_rule(const Framework& framework, RulePart part,
                                               const ModelSpec& model,
                                               const PrecisionRecipe& precision,
                                               const ParallelPlan& plan);

/// What the framework asks for and warns of when it runs this plan, in the order of its table: the
/// settings that the plan needs besides the ones its fields name (`--use-precision-aware-optimizer`
/// for offload, `--pipeline-model-parallel-layout` with the layout for unequal chunks), and the
/// warnings that it prints ("FSDP together with tensor parallelism"). Empty for a plan it runs
/// without a word. The plan has to be legal for the framework and the model (check_plan).
/// `compute_capability` of the GPUs, 0 where it is unknown or they have none. Reports,
/// exports and the choice among ties read it; none of them knows a framework's rules itself.
[[nodiscard]] std::vector<FrameworkRemark> remarks(const Framework& framework,
                                                   const ModelSpec& model, const ParallelPlan& plan,
                                                   const PrecisionRecipe& precision = {},
                                                   bool flash_attention = true,
                                                   double compute_capability = 0);

}  // namespace echelon
