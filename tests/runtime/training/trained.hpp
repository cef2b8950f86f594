// Small models trained by whole plans, with all their numbers in coordinates of the whole model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_io.hpp"
#include "core/schedule/schedule_check.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/schedule/lower_plan.hpp"
#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/io/data/samples.hpp"
#include "runtime/model/initial.hpp"
#include "runtime/training/training_device.hpp"
#include "tests/runtime/training/small_models.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

/// GPT-2-like: learned positions, biases, tied embeddings. The vocabulary needs padding.
inline ModelSpec small_gpt2(int layers = 4) {
  ModelSpec m = load_model("gpt2").value();
  m.name = "small-gpt2";
  m.layers = layers;
  m.hidden = 16;
  m.heads = m.kv_heads = 4;
  m.head_dim = 4;
  m.ffn_hidden = 64;
  m.vocab = 50;
  m.max_positions = 16;
  m.hidden_dropout = m.attention_dropout = 0;
  return m;
}

/// Llama-like: RMSNorm, SwiGLU, rotary positions, two key-value heads, untied.
inline ModelSpec small_llama(int layers = 4) {
  ModelSpec m = load_model("llama3-8b").value();
  m.name = "small-llama";
  m.layers = layers;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn_hidden = 24;
  m.vocab = 50;
  m.max_positions = 16;
  return m;
}

/// Qwen-3-like: Llama's with norms of query and key heads.
inline ModelSpec small_qwen3(int layers = 4) {
  ModelSpec m = load_model("qwen3-8b").value();
  const ModelSpec llama = small_llama(layers);
  m.name = "small-qwen3";
  m.layers = llama.layers;
  m.hidden = llama.hidden;
  m.heads = llama.heads;
  m.kv_heads = llama.kv_heads;
  m.head_dim = llama.head_dim;
  m.ffn_hidden = llama.ffn_hidden;
  m.vocab = llama.vocab;
  m.max_positions = llama.max_positions;
  return m;
}

/// Mixtral-like: Llama's with four experts in every layer, of which a token visits two.
inline ModelSpec small_mixtral(int layers = 4) {
  ModelSpec m = small_llama(layers);
  m.name = "small-mixtral";
  m.moe.experts = 4;
  m.moe.experts_per_token = 2;
  m.moe.expert_ffn_hidden = 24;
  return m;
}

/// Qwen3-MoE-like: norms of heads; after a dense layer, experts in every second one, whose weights
/// are not normalized.
inline ModelSpec small_qwen3_moe(int layers = 4) {
  ModelSpec m = small_qwen3(layers);
  m.name = "small-qwen3-moe";
  m.moe.experts = 8;
  m.moe.experts_per_token = 3;
  m.moe.expert_ffn_hidden = 12;
  m.moe.first_dense_layers = 1;
  m.moe.every = 2;
  m.moe.router_normalized = false;
  return m;
}

/// Qwen2-MoE-like: biases of q, k and v; next to the routed experts of each layer shared ones with
/// a gate.
inline ModelSpec small_qwen2_moe(int layers = 4) {
  ModelSpec m = like_qwen2_moe(
      small_llama(layers),
      {.experts = 4, .experts_per_token = 2, .expert_ffn_hidden = 12, .shared_ffn_hidden = 20});
  m.name = "small-qwen2-moe";
  return m;
}

/// DeepSeek-V3-like attention: latents of queries, keys and values, heads of three widths.
inline ModelSpec small_deepseek(int layers = 4) {
  ModelSpec m = like_deepseek(small_llama(layers), {.kv_lora_rank = 8,
                                                    .q_lora_rank = 12,
                                                    .qk_nope_head_dim = 4,
                                                    .qk_rope_head_dim = 2,
                                                    .v_head_dim = 3});
  m.name = "small-deepseek";
  return m;
}

/// DeepSeek-V2-Lite-like: queries from the hidden state; after a dense layer, experts in every one.
inline ModelSpec small_deepseek_lite(int layers = 4) {
  ModelSpec m = small_deepseek(layers);
  m.name = "small-deepseek-lite";
  m.mla.q_lora_rank = 0;
  m.moe.experts = 8;
  m.moe.experts_per_token = 3;
  m.moe.expert_ffn_hidden = 12;
  m.moe.first_dense_layers = 1;
  m.moe.router_normalized = false;
  return m;
}

/// DeepSeek-V3's mixture, with GLM-4.5's attention: half of each head is rotated; from the second
/// layer on experts with sigmoid scores, a correction and groups, next to shared ones.
inline ModelSpec small_glm4_moe(int layers = 4) {
  ModelSpec m = small_qwen3(layers);
  m.name = "small-glm4-moe";
  m.qkv_bias = true;
  m.constants->rope.rotated_part = 0.5;
  m.moe = like_deepseek_v3(
      {.experts = 8, .experts_per_token = 3, .expert_ffn_hidden = 12, .shared_ffn_hidden = 12});
  return m;
}

/// DeepSeek-V3 as a whole: its mixture behind its attention.
inline ModelSpec small_deepseek_v3(int layers = 4) {
  ModelSpec m = small_deepseek(layers);
  m.name = "small-deepseek-v3";
  m.moe = small_glm4_moe().moe;
  return m;
}

struct TrainedCase {
  ModelSpec model;
  ParallelPlan plan;
  std::int64_t global_batch = 8;
  int sequence = 8;
  int steps = 3;
  double clip = 0;
  double rate = 1e-2;  ///< the largest learning rate
  std::int64_t noise_every = 0;
  std::optional<RunThreads::PickNext> pick_next;  ///< a directed run
  int threads = 1;
  bool in_order = false;  ///< one thread per rank, as for devices with queues of their own
  bool late = false;      ///< … the end of a step is awaited when the next one is issued, where
                          ///< nothing is read between them
  const char* precision = "bf16";
  std::optional<Adapters> adapters = {};
  double lora_alpha = 32;
  /// Of a weight, by its index in the whole tensor; null: by fill_initial.
  std::function<double(const Parameter&, std::int64_t)> initial = {};
  /// Of the sample of a number; null: of synthetic data.
  std::function<void(std::int64_t, std::int32_t*)> read = {};
};

using WholeTensors = std::map<std::string, std::vector<double>>;
struct Trained {
  std::vector<StepResult> steps;
  WholeTensors weights;    ///< after the last step
  WholeTensors frozen;     ///< the same of those that are not trained
  WholeTensors gradients;  ///< of the first step: Adam's first moment over 1 − β₁
  StepTimes times;         ///< rank 0's second step
};

inline ParallelPlan plan_for(const ModelSpec& model, int tp, int pp, int dp) {
  ParallelPlan p;
  p.tp = tp;
  p.pp = pp;
  p.dp = dp;
  if (model.moe.experts > 0) p.etp = tp;
  p.layers_per_stage.assign(static_cast<std::size_t>(pp), model.layers / pp);
  p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return p;
}

inline TrainingJob job_of(const TrainedCase& c) {
  TrainingJob job;
  job.sequence = c.sequence;
  job.global_batch = c.global_batch;
  job.precision = find_precision(c.precision).value();
  job.adapters = c.adapters;
  return job;
}

/// The program that a plan file would contain.
inline Schedule program_of(const TrainedCase& c) {
  const ClusterTopology cluster =
      ClusterTopology::load("dgx-h100", static_cast<int>(c.plan.gpus())).value();
  const Framework framework = find_framework("echelon").value();
  const TrainingJob job = job_of(c);
  const CostModel cost_model(c.model, job, cluster, framework,
                             prior_calibration(cluster.gpu(), framework).value());
  const PlanCosts prediction = cost_model.price(c.plan);
  Schedule schedule = schedule_of(cost_model, c.plan, prediction.memory.contents);
  const std::vector<ScheduleFault> faults = check_schedule(schedule);
  INFO((faults.empty() ? "" : faults.front().what));
  REQUIRE(faults.empty());
  return schedule;
}

/// Copies this rank's counted part of its states into whole tensors. `from`: null for those that
/// are left out.
template <class T, class From>
void gather_whole(Processor<T>& processor, OptimizerState<T>& states, const From& from,
                  WholeTensors& out) {
  for (FlatState<T>& r : states.flat_states()) {
    if (states.groups_of(r).replica != 0 || from(r) == nullptr) continue;
    using E = std::remove_pointer_t<decltype(from(r))>;
    std::vector<E> own(static_cast<std::size_t>(r.own()));
    processor.read(from(r), own.data(), static_cast<std::int64_t>(own.size() * sizeof own[0]));
    for (const Parameter& p : r.layout->parameters) {
      if (!p.counted) continue;
      std::vector<double>& whole = out[p.name];
      whole.resize(static_cast<std::size_t>(p.rows * p.columns));
      const std::int64_t begin = std::max(r.begin, p.offset);
      const std::int64_t end = std::min(r.end, p.offset + p.count());
      if (begin >= end) continue;
      const auto* block = own.data() + (begin - r.begin);
      for_each_piece(p, begin - p.offset, end - p.offset,
                     [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                       for (std::int64_t k = 0; k < count; ++k) {
                         whole[static_cast<std::size_t>(global + k)] =
                             static_cast<double>(Wide<E>(block[local - (begin - p.offset) + k]));
                       }
                     });
    }
  }
}

/// Elements [begin, end) of flat parameters.
template <class T>
std::vector<T> initial_weights(const TrainedCase& c, const FlatParameters& flat, std::int64_t begin,
                               std::int64_t end) {
  std::vector<T> weights(static_cast<std::size_t>(end - begin));
  fill_initial(flat, 7, begin, end, weights.data());
  if (!c.initial) return weights;
  for (const Parameter& p : flat.parameters) {
    const std::int64_t first = std::max(begin, p.offset) - p.offset;
    const std::int64_t last = std::min(end, p.offset + p.count()) - p.offset;
    if (first >= last) continue;
    for_each_piece(p, first, last,
                   [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                     for (std::int64_t k = 0; k < count; ++k) {
                       weights[static_cast<std::size_t>(p.offset + local + k - begin)] =
                           T(static_cast<Wide<T>>(c.initial(p, global + k)));
                     }
                   });
  }
  return weights;
}

/// Another backend, to override parts of it.
template <class T>
class WrappedBackend : public Backend<T> {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend<T>> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] bool issues_in_order() const override { return inner_->issues_in_order(); }
  [[nodiscard]] World& world() override { return inner_->world(); }
  [[nodiscard]] World& host_world() override { return inner_->host_world(); }
  [[nodiscard]] Processor<T>& at(int rank) override { return inner_->at(rank); }
  void give_up() override { inner_->give_up(); }
  [[nodiscard]] std::map<std::string, std::string> environment() const override {
    return inner_->environment();
  }

 protected:
  std::unique_ptr<Backend<T>> inner_;
};

/// The CPU backend, driven like one with device queues.
template <class T>
class InOrder final : public WrappedBackend<T> {
 public:
  using WrappedBackend<T>::WrappedBackend;
  [[nodiscard]] bool issues_in_order() const override { return true; }
};

/// The training backend: the CPU, or the one that a test opens instead on the same world of
/// threads.
template <class T>
using OpenBackend = std::function<std::unique_ptr<Backend<T>>(RunThreads&, std::unique_ptr<World>,
                                                              const TrainedCase&)>;
template <class T>
std::unique_ptr<Backend<T>> open_cpu(RunThreads&, std::unique_ptr<World> world,
                                     const TrainedCase& c) {
  auto backend = cpu_backend<T>(std::move(world), c.threads);
  if (c.in_order) return std::make_unique<InOrder<T>>(std::move(backend));
  return backend;
}

/// Over 60 lines because it lists one run in order, from its schedule to its losses.
template <class T>
Trained train(const TrainedCase& c, const OpenBackend<T>& open = open_cpu<T>) {
  const Schedule schedule = program_of(c);
  const Result<Samples> samples =
      Samples::make(synthetic_tokens(4096, c.model.vocab), c.sequence, 5, "synthetic");
  Training t;
  t.model = c.model;
  t.job = job_of(c);
  t.plan = c.plan;
  t.rate = {.peak = c.rate, .min = 0.1 * c.rate, .warmup = 2, .total = 10};
  t.optimizer.weight_decay = 0.1;
  t.clip = c.clip;
  t.lora_alpha = c.lora_alpha;
  t.noise_every = c.noise_every;
  t.read = [&](std::int64_t number, std::int32_t* out) {
    if (c.read) return c.read(number, out);
    REQUIRE(samples->read(number, out).ok());
  };

  Trained out;
  const ProcessGrid grid(c.plan);
  std::mutex mutex;
  const auto run = [&](RunThreads& run_threads) {
    const auto backend = open(run_threads, thread_world(run_threads, c.plan, c.model), c);
    TrainingDevice<T> device(run_threads, *backend, schedule, t);
    for (const int rank : backend->world().local_ranks()) {
      Processor<T>& processor = backend->at(rank);
      for (OptimizerState<T>* states : device.states(rank)) {
        for (FlatState<T>& r : states->flat_states()) {
          const bool whole = r.weights != nullptr;
          const std::int64_t begin = whole ? 0 : r.begin;
          const std::int64_t end = whole ? r.layout->padded : r.end;
          const std::vector<T> weights = initial_weights<T>(c, *r.layout, begin, end);
          processor.write(weights.data(), whole ? r.weights : r.own_weights,
                          static_cast<std::int64_t>(weights.size() * sizeof(T)));
          states->take_weights_as_master(processor.on(Queue::compute), r);
        }
      }
    }
    ExecutorOptions options;
    options.in_order = backend->issues_in_order();
    options.measured = [](std::int64_t step) { return step == 1; };
    if (c.late)
      options.awaited = [&](std::int64_t step) { return step == 0 || step + 1 == c.steps; };
    options.on_step_end = [&](const StepEnd& over) {
      const std::lock_guard lock(mutex);
      if (over.rank == 0) out.steps.push_back(device.result(0));
      if (over.rank == 0 && over.times != nullptr) out.times = *over.times;
      const bool last = over.step + 1 == c.steps;
      for (OptimizerState<T>* states : device.states(over.rank)) {
        if (over.step == 0) {
          gather_whole(
              backend->at(over.rank), *states, [](auto& r) { return r.states[0]; }, out.gradients);
        }
        if (last)
          gather_whole(
              backend->at(over.rank), *states, [](auto& r) { return r.master; }, out.weights);
        if (last && c.adapters) {
          const auto frozen = [](auto& r) { return r.layout->frozen ? r.own_weights : nullptr; };
          gather_whole(backend->at(over.rank), *states, frozen, out.frozen);
        }
      }
      return !last;
    };
    Executor executor(run_threads, schedule, grid, device, options);
    executor.add_threads();
    run_threads.run();
  };
  if (c.pick_next) {
    RunThreads run_threads(*c.pick_next);
    run(run_threads);
  } else {
    RunThreads run_threads(Seconds{60});
    run(run_threads);
  }
  const double share = 1 - t.optimizer.beta1;
  for (auto& [name, values] : out.gradients) {
    for (double& value : values) value /= share;
  }
  return out;
}

}  // namespace echelon
