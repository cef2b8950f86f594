// One step's loss and gradients of a small model, sharded in any way that a plan allows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/comm/world.hpp"
#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/model/initial.hpp"
#include "tests/runtime/model/test_models.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {

/// Fails the test; may be called by any thread.
inline void demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

struct ChunkRun {
  ModelSpec model;
  int tp = 1;
  int cp = 1;  ///< of run_chunks: 1
  CpComm cp_comm = CpComm::all_to_all;
  bool sequence_parallel = false;
  int chunks = 1;  ///< consecutive chunks
  int units = 1;
  std::vector<Recompute> recompute = {Recompute::none};  ///< of the model's layers, repeated
  bool halves = false;                                   ///< backward_input, then backward_weight
  bool at_once = false;  ///< each backward right after its forward: head and loss run in it
  int samples = 2;
  int sequence = 8;
  int microbatches = 2;
  int padding = 0;  ///< words beyond the least multiple of tp
  struct Nudge {    ///< of one weight
    std::string name;
    std::int64_t index;
    double by;
    int rank = -1;  ///< of this tensor-parallel rank alone; -1: of all
  };
  std::optional<Nudge> nudge = {};
  std::optional<Adapters> adapters = {};
  double adapter_scale = 1;
};

/// Tensors of the whole model, assembled from all ranks.
struct ChunkOutcome {
  double loss = 0;  ///< mean over all tokens
  std::map<std::string, std::vector<double>> gradients;
};

/// Weights that mask no error: no zeros, no ones. golden/make_golden.py has the same formula.
inline double test_weight(const Parameter& p, std::int64_t index) {
  Numbers numbers(hash_of_name(p.name) + static_cast<std::uint64_t>(index));
  return (p.fill == Parameter::Fill::ones ? 1 : 0) + 0.25 * numbers.between(-1, 1);
}
inline std::int32_t test_token(const ModelSpec& model, std::uint64_t seed, std::int64_t index) {
  return static_cast<std::int32_t>(Numbers(seed * 1000003 + static_cast<std::uint64_t>(index))
                                       .below(static_cast<std::size_t>(model.vocab)));
}

/// A block of exactly `bytes`, filled with NaN, that detects writes past its end.
class GuardedBlock {
 public:
  explicit GuardedBlock(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_((bytes_ + 192) / 8, kGuard) {}
  [[nodiscard]] std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return reinterpret_cast<std::byte*>((at + 63) / 64 * 64);
  }
  template <class E>
  [[nodiscard]] E* as() {
    return reinterpret_cast<E*>(data());
  }
  void forget() { std::memset(data(), 0xff, bytes_); }
  void check() {
    for (std::size_t i = 0; i < 64; ++i) {
      demand(data()[bytes_ + i] == std::byte{0xff}, "wrote past the end of a block");
    }
  }

 private:
  static constexpr std::uint64_t kGuard = ~std::uint64_t{0};
  std::size_t bytes_;
  std::vector<std::uint64_t> memory_;
};

inline ChunkSpec chunk_spec(const ChunkRun& run, int chunk, int tp_rank) {
  const int layers = run.model.layers;
  ChunkSpec spec;
  spec.model = run.model;
  spec.first_layer = chunk * layers / run.chunks;
  spec.layers = (chunk + 1) * layers / run.chunks - spec.first_layer;
  spec.embedding = chunk == 0;
  spec.loss = chunk == run.chunks - 1;
  spec.units = run.units;
  spec.tp = run.tp;
  spec.tp_rank = tp_rank;
  spec.cp = run.cp;
  spec.cp_comm = run.cp_comm;
  spec.sequence_parallel = run.sequence_parallel;
  spec.microbatch = run.samples;
  spec.sequence = run.sequence;
  for (int l = 0; l < spec.layers; ++l) {
    spec.recompute.push_back(
        run.recompute[static_cast<std::size_t>(spec.first_layer + l) % run.recompute.size()]);
  }
  spec.adapters = run.adapters;
  spec.adapter_scale = run.adapter_scale;
  spec.padded_vocab = ((run.model.vocab + run.tp - 1) / run.tp + run.padding) * run.tp;
  return spec;
}

/// Runs work(rank, its tensor-parallel group, the members with the same kv head), one thread each.
inline void on_tp_ranks(int tp, const ModelSpec& model,
                        const std::function<void(int, Communicator*, Communicator*)>& work) {
  ParallelPlan plan;
  plan.tp = tp;
  RunThreads run_threads(Seconds{60});
  const std::unique_ptr<World> world = thread_world(run_threads, plan, model);
  for (int rank = 0; rank < tp; ++rank) {
    run_threads.add("rank " + std::to_string(rank), [&, rank] {
      work(rank, &world->at(rank, GroupRole::tp), &world->at(rank, GroupRole::kv_replicas));
    });
  }
  run_threads.run();
}

/// One chunk on one rank, with memory for all microbatches.
template <class T>
class ChunkOnRank {
 public:
  /// `kernels`: null for ordinary ones.
  ChunkOnRank(const ChunkRun& run, int number, int rank, Communicator* tp, Communicator* kv,
              Kernels<T>* kernels = nullptr, Communicator* cp = nullptr)
      : run_(run),
        rank_(rank),
        processor_(cpu_processor<T>(1)),
        kernels_(kernels != nullptr ? *kernels : processor_->on(Queue::compute)),
        tp_(tp == nullptr ? nullptr
                          : std::make_unique<TimedCommunicator>(*tp, kernels_, Within::tp_comm)),
        cp_(cp == nullptr ? nullptr
                          : std::make_unique<TimedCommunicator>(*cp, kernels_, Within::cp_comm)),
        chunk_(kernels_, spec_of(run, number, rank, cp), tp_.get(), kv, cp_.get()),
        workspace_(chunk_.memory().workspace) {
    for (const FlatParameters& flat : chunk_.parameters().flat_params) {
      gradients_.emplace_back(static_cast<std::size_t>(flat.padded));
      weights_.emplace_back(static_cast<std::size_t>(flat.padded));
      for (const Parameter& p : flat.parameters) fill(p, weights_.back());
    }
    const std::int64_t boundary = chunk_.boundary_count() * static_cast<std::int64_t>(sizeof(T));
    for (int m = 0; m < run.microbatches; ++m) {
      saved_.emplace_back(chunk_.memory().saved);
      weight_inputs_.emplace_back(run.halves ? chunk_.memory().weight_inputs : 0);
      outputs_.emplace_back(boundary);
      running_.emplace_back(boundary);
      load(m);
    }
  }

  /// Σ cross entropy. `before` holds the input.
  double forward(int m, ChunkOnRank* before) {
    double loss = 0;
    for (int unit = 0; unit < run_.units; ++unit) {
      workspace_.forget();
      ChunkArguments<T> p = args(m, unit, before);
      p.loss = &loss;
      chunk_.forward(unit, p);
    }
    check();
    return loss;
  }
  /// Σ cross entropy, if the forward left it.
  double backward(int m, ChunkOnRank* before, ChunkOnRank* after) {
    double loss = 0;
    for (int unit = run_.units - 1; unit >= 0; --unit) {
      ChunkArguments<T> p = args(m, unit, before);
      workspace_.forget();
      p.loss = &loss;
      p.gradient = running_[std::size_t(m)].template as<T>();
      if (after != nullptr) {
        p.output_gradient = after->running_[std::size_t(m)].template as<T>();
      }
      if (run_.halves) {
        chunk_.backward_input(unit, p);
      } else {
        chunk_.backward(unit, p);
      }
    }
    check();
    return loss;
  }
  void backward_weight(int m, ChunkOnRank* before) {
    for (int unit = run_.units - 1; unit >= 0; --unit) {
      workspace_.forget();
      chunk_.backward_weight(unit, args(m, unit, before));
    }
    check();
  }
  void finish() {
    for (int unit = 0; unit < run_.units; ++unit) {
      chunk_.finish_gradients(unit, gradients_[std::size_t(unit)].data());
    }
  }
  /// First and last chunk add up the gradients of their copies of the word embedding.
  void tie(ChunkOnRank& last) {
    if (!chunk_.parameters().tied || run_.adapters || this == &last) return;
    for (std::size_t i = 0; i < gradients_.back().size(); ++i) {
      gradients_.back()[i] += last.gradients_.back()[i];
      last.gradients_.back()[i] = gradients_.back()[i];
    }
  }
  /// Counted blocks to `out`; if `compare`, all blocks must equal its content.
  void collect(ChunkOutcome& out, bool compare) const {
    for (std::size_t r = 0; r < gradients_.size(); ++r) {
      if (chunk_.parameters().flat_params[r].frozen) continue;
      for (const Parameter& p : chunk_.parameters().flat_params[r].parameters) {
        std::vector<double>& whole = out.gradients[p.name];
        whole.resize(static_cast<std::size_t>(p.rows * p.columns));
        if (!p.counted && !compare) continue;
        for_each_piece(
            p, 0, p.count(), [&](std::int64_t global, std::int64_t local, std::int64_t count) {
              for (std::int64_t i = 0; i < count; ++i) {
                const double here(gradients_[r][static_cast<std::size_t>(p.offset + local + i)]);
                double& there = whole[static_cast<std::size_t>(global + i)];
                if (!compare) there = here;
                demand(!(there != here), "replicas differ in " + p.name);
              }
            });
      }
    }
  }

 private:
  static ChunkSpec spec_of(const ChunkRun& run, int number, int rank, const Communicator* cp) {
    ChunkSpec spec = chunk_spec(run, number, rank);
    if (cp != nullptr) spec.cp_rank = cp->rank();
    return spec;
  }
  void fill(const Parameter& p, std::vector<T>& flat) const {
    for_each_piece(
        p, 0, p.count(), [&](std::int64_t global, std::int64_t local, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) {
            double value = test_weight(p, global + i);
            const auto& nudge = run_.nudge;
            const bool here = nudge && (nudge->rank < 0 || nudge->rank == rank_);
            if (here && nudge->name == p.name && nudge->index == global + i) {
              value += run_.nudge->by;
            }
            flat[static_cast<std::size_t>(p.offset + local + i)] = T(static_cast<Wide<T>>(value));
          }
        });
    // Padding words are large: counting them changes the result.
    const std::int64_t real =
        std::min(p.local_rows, std::max<std::int64_t>(0, p.rows - p.first_row));
    for (std::int64_t i = real * p.local_columns; i < p.count(); ++i) {
      flat[static_cast<std::size_t>(p.offset + i)] = T(Wide<T>(9));
    }
  }
  void load(int m) {
    const std::int64_t rows = chunk_.shape().rows;
    tokens_.emplace_back();
    targets_.emplace_back();
    for (std::int64_t r = 0; r < rows; ++r) {
      tokens_.back().push_back(test_token(run_.model, 1, m * rows + r));
      targets_.back().push_back(test_token(run_.model, 2, m * rows + r));
    }
  }
  ChunkArguments<T> args(int m, int unit, ChunkOnRank* before) {
    const auto at = static_cast<std::size_t>(m);
    ChunkArguments<T> p;
    p.weights = weights_[std::size_t(unit)].data();
    if (const auto frozen = chunk_.parameters().frozen_of(unit)) {
      p.adapters = p.weights;
      p.weights = weights_[*frozen].data();
    }
    p.gradients = gradients_[std::size_t(unit)].data();
    if (chunk_.parameters().tied) {
      p.tied = weights_.back().data();
      p.tied_gradients = gradients_.back().data();
    }
    p.tokens = tokens_[at].data();
    p.targets = targets_[at].data();
    p.input = before == nullptr ? nullptr : before->outputs_[at].template as<T>();
    p.output = outputs_[at].template as<T>();
    p.saved = saved_[at].data();
    p.weight_inputs = weight_inputs_[at].data();
    p.workspace = workspace_.data();
    p.loss_in_backward = run_.at_once;
    p.loss_scale = 1.0 / static_cast<double>(run_.microbatches * chunk_.shape().rows);
    return p;
  }
  void check() {
    workspace_.check();
    for (auto* blocks : {&saved_, &weight_inputs_, &outputs_, &running_}) {
      for (GuardedBlock& block : *blocks) block.check();
    }
  }

  ChunkRun run_;
  int rank_;
  std::unique_ptr<Processor<T>> processor_;
  Kernels<T>& kernels_;
  std::unique_ptr<TimedCommunicator> tp_;
  std::unique_ptr<TimedCommunicator> cp_;
  Chunk<T> chunk_;
  GuardedBlock workspace_;
  std::vector<std::vector<T>> weights_;
  std::vector<std::vector<Wide<T>>> gradients_;
  std::vector<GuardedBlock> saved_, weight_inputs_, outputs_, running_;
  std::vector<std::vector<std::int32_t>> tokens_, targets_;
};

/// All forwards, then all backwards (unless at once), then (in halves) all gradients of weights.
template <class T>
ChunkOutcome run_chunks(const ChunkRun& run) {
  ChunkOutcome out;
  std::vector<std::vector<ChunkOnRank<T>>> ranks(static_cast<std::size_t>(run.tp));
  std::vector<double> losses(ranks.size());
  on_tp_ranks(run.tp, run.model, [&](int rank, Communicator* tp, Communicator* kv) {
    std::vector<ChunkOnRank<T>>& chain = ranks[std::size_t(rank)];
    chain.reserve(std::size_t(run.chunks));
    for (int c = 0; c < run.chunks; ++c) chain.emplace_back(run, c, rank, tp, kv);
    const auto at = [&](int c) {
      return c < 0 || c >= run.chunks ? nullptr : &chain[std::size_t(c)];
    };
    const auto backward = [&](int m) {
      for (int c = run.chunks - 1; c >= 0; --c)
        losses[std::size_t(rank)] += at(c)->backward(m, at(c - 1), at(c + 1));
    };
    for (int m = 0; m < run.microbatches; ++m) {
      for (int c = 0; c < run.chunks; ++c)
        losses[std::size_t(rank)] += at(c)->forward(m, at(c - 1));
      if (run.at_once) backward(m);
    }
    for (int m = 0; !run.at_once && m < run.microbatches; ++m) backward(m);
    for (int m = 0; run.halves && m < run.microbatches; ++m) {
      for (int c = 0; c < run.chunks; ++c) at(c)->backward_weight(m, at(c - 1));
    }
    for (ChunkOnRank<T>& chunk : chain) chunk.finish();
    chain.front().tie(chain.back());
  });
  for (const bool compare : {false, true}) {
    for (const auto& chain : ranks) {
      for (const ChunkOnRank<T>& chunk : chain) chunk.collect(out, compare);
    }
  }
  for (const double loss : losses) demand(loss == losses.front(), "ranks differ in their loss");
  out.loss = losses.front() / (run.microbatches * run.samples * run.sequence);
  return out;
}

/// Largest |a − b| of a tensor over max(|b|∞, floor·√Σb²), the sum over all tensors; the worst
/// tensor. (Gradients of a key's bias are zero but for rounding, without rotation.)
struct Distance {
  double largest = 0;
  std::string tensor;
};
inline Distance distance(const ChunkOutcome& a, const ChunkOutcome& b, double floor = 1e-6) {
  Distance d{std::abs(a.loss - b.loss) / std::abs(b.loss), "loss"};
  demand(a.gradients.size() == b.gradients.size(), "not the same tensors");
  double squares = 0;
  for (const auto& [name, values] : b.gradients) {
    for (const double x : values) squares += x * x;
  }
  for (const auto& [name, values] : b.gradients) {
    const std::vector<double>& others = a.gradients.at(name);
    double largest = floor * std::sqrt(squares);
    for (const double x : values) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double here = std::abs(values[i] - others[i]) / largest;
      if (!(here <= d.largest)) d = {here, name};
    }
  }
  return d;
}

}  // namespace echelon
