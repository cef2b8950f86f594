#include "runtime/cuda/repeats.hpp"

#include <string_view>

#include "runtime/clock.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/failure.hpp"

namespace echelon::cuda {

void Repeats::Destroy::operator()(CUgraphExec_st* graph) const {
  static_cast<void>(cudaGraphExecDestroy(graph));
}

void Repeats::forget(std::size_t instructions, Use use) {
  if (!capture_) capture_ = new_stream();
  use_ = use;
  of_.clear();
  of_.resize(instructions);
  graphs_ = 0;
}

bool Repeats::pays(const Of& of) const {
  constexpr double kFallsBehind = 0.5;
  if (use_ == Use::where_it_pays)
    return of.device > Seconds{} && of.host > kFallsBehind * of.device;
  return use_ == Use::always;
}

void Repeats::begin(std::uint32_t id, bool alike) {
  mode_ = Mode::outside;
  if (!alike || use_ == Use::never) return;
  id_ = id;
  hash_ = 0;
  begun_ = steady_now();
  Of& of = of_[id];
  if (of.graph) {
    mode_ = Mode::replay;
  } else if (of.alike > 0 && !of.kept_out && pays(of) &&
             cudaStreamBeginCapture(capture_.get(), cudaStreamCaptureModeThreadLocal) ==
                 cudaSuccess) {
    mode_ = Mode::record;
  } else {
    mode_ = Mode::direct;
  }
}

void Repeats::keep_out() {
  if (mode_ == Mode::direct || mode_ == Mode::record) of_[id_].kept_out = true;
}

void Repeats::learn(std::uint32_t id, Seconds device) { of_[id].device = device; }

/// What was recorded is on the stream already: where no graph comes of it nothing is lost.
void Repeats::finish_recording(Of& of) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t made = nullptr;
  const bool alike = hash_ == of.hash && !of.kept_out;
  const bool ended = cudaStreamEndCapture(capture_.get(), &recorded) == cudaSuccess;
  if (ended && alike && cudaGraphInstantiate(&made, recorded, 0) == cudaSuccess) {
    of.graph.reset(made);
    ++graphs_;
  } else {
    static_cast<void>(cudaGetLastError());
    of.kept_out = true;
  }
  if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
}

void Repeats::end(cudaStream_t stream) {
  const Mode mode = mode_;
  mode_ = Mode::outside;
  if (mode == Mode::outside) return;
  Of& of = of_[id_];
  if (mode == Mode::record) return finish_recording(of);
  if (mode == Mode::direct) {
    of.host = steady_now() - begun_;
    of.alike = hash_ == of.hash ? of.alike + 1 : 0;
    of.hash = hash_;
    return;
  }
  if (hash_ != of.hash) {
    throw RunFailure(RunFailure::Kind::defect,
                     "other calls than in the steps that its graph was recorded of");
  }
  check(cudaGraphLaunch(of.graph.get(), stream), "launch a graph");
}

Repeats::Use use_of_graphs() {
  const std::string_view given = chosen_by("ECHELON_CUDA_GRAPHS", {"always", "never"});
  if (given == "always") return Repeats::Use::always;
  if (given == "never") return Repeats::Use::never;
  return Repeats::Use::where_it_pays;
}

}  // namespace echelon::cuda
