// What the wait for the counts of experts' rows counts as.
#include <array>
#include <string>
#include <vector>

#include "runtime/cpu/cpu_kernels.hpp"
#include "tests/runtime/model/chunk_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Notes what is copied to the host, within which parts of a pass.
class PartNotingKernels final : public CpuKernels<double> {
 public:
  [[nodiscard]] const std::string& notes() const { return notes_; }
  void start(Within part) override {
    notes_ += part == Within::ep_comm ? "ep(" : part == Within::host ? "host(" : "other(";
    CpuKernels::start(part);
  }
  void stop() override {
    notes_ += ")";
    CpuKernels::stop();
  }
  void download(const void* from, void* to, std::int64_t bytes) override {
    notes_ += "counts";
    CpuKernels::download(from, to, bytes);
  }

 private:
  std::string notes_;
};

/// Of one layer's forward on the rank.
std::string notes_of_forward(int ep, Communicator& among) {
  ChunkRun run;
  run.model = test_mixtral();
  run.model.moe.experts = 4;
  run.chunks = 3;
  ChunkSpec spec = chunk_spec(run, 1, 0);
  spec.ep = ep;
  spec.ep_rank = ep > 1 ? among.rank() : 0;
  PartNotingKernels kernels;
  TimedCommunicator experts(among, kernels, Within::ep_comm);
  const Chunk<double> chunk(kernels, spec, nullptr, nullptr, nullptr, ep > 1 ? &experts : nullptr);
  std::vector<std::vector<double>> weights;
  for (const FlatParameters& flat : chunk.parameters().flat_params) {
    auto& all = weights.emplace_back();
    for (const Parameter& p : flat.parameters) {
      for (std::int64_t i = 0; i < p.count(); ++i) all.push_back(test_weight(p, i));
    }
  }
  const auto count = static_cast<std::size_t>(chunk.boundary_count());
  std::vector<double> input;
  for (std::size_t i = 0; i < count; ++i) input.push_back(static_cast<double>(i % 7) - 3);
  std::vector<double> output(count);
  GuardedBlock saved(chunk.memory().saved);
  GuardedBlock workspace(chunk.memory().workspace);
  ChunkArguments<double> args;
  args.weights = weights.front().data();
  args.experts = weights.back().data();
  args.input = input.data();
  args.output = output.data();
  args.saved = saved.data();
  args.workspace = workspace.data();
  chunk.forward(0, args);
  return kernels.notes();
}

TEST_CASE("the wait for the counts of experts' rows is their communication, or the host's") {
  ParallelPlan plan;
  plan.dp = plan.ep = 2;
  const ModelSpec model = test_mixtral();
  RunThreads run_threads(Seconds{60});
  const std::unique_ptr<World> world = thread_world(run_threads, plan, model);
  std::array<std::string, 2> shared;
  std::array<std::string, 2> alone;
  for (int rank = 0; rank < 2; ++rank) {
    run_threads.add("rank " + std::to_string(rank), [&, rank] {
      Communicator& among = world->at(rank, GroupRole::ep);
      shared[std::size_t(rank)] = notes_of_forward(2, among);
      alone[std::size_t(rank)] = notes_of_forward(1, among);
    });
  }
  run_threads.run();
  for (const std::string& notes : shared) {
    // The counts of all ranks, the wait for them, the weights, the rows there and back.
    CHECK(notes == "ep()ep(counts)ep()ep()ep()");
  }
  for (const std::string& notes : alone) CHECK(notes == "host(counts)");
}

}  // namespace
}  // namespace echelon
