// Collectives of a chunk that run beside its kernels: their place among them, and that the result
// does not depend on when they run.
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "runtime/cpu/cpu_kernels.hpp"
#include "tests/runtime/model/chunk_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// A queue whose collectives run as late as they may: when the queue waits for them. Kernels run at
/// once. So a kernel that reads a result too early, or overwrites an operand, changes the bits.
/// Records products ("dgrad", "wgrad"), and of collectives when they begin and when they are
/// awaited.
class LateKernels final : public CpuKernels<double>, private SideStream {
 public:
  [[nodiscard]] SideStream* side() override { return this; }
  void later(const std::string& what, std::function<void()> call) {
    noted_ += what + "( ";
    waiting_.push_back({what, std::move(call)});
  }
  [[nodiscard]] std::string take_notes() { return std::exchange(noted_, {}); }
  [[nodiscard]] bool all_awaited() const { return waiting_.empty(); }

  void multiply_back(Rows<double> dy, const double* weight, std::int64_t in, double* dx) override {
    noted_ += "dgrad ";
    CpuKernels::multiply_back(dy, weight, in, dx);
  }
  void add_weight_gradient(Rows<double> dy, Rows<double> x, double* dw) override {
    noted_ += "wgrad ";
    CpuKernels::add_weight_gradient(dy, x, dw);
  }

 private:
  void fork() override {}
  [[nodiscard]] Mark mark() override { return static_cast<Mark>(over_ + waiting_.size()); }
  void join(Mark mark) override {
    for (; over_ < static_cast<std::size_t>(mark); ++over_) {
      noted_ += ")" + waiting_.front().first + " ";
      waiting_.front().second();
      waiting_.pop_front();
    }
  }

  std::deque<std::pair<std::string, std::function<void()>>> waiting_;
  std::size_t over_ = 0;
  std::string noted_;
};

class LateCommunicator final : public Communicator {
 public:
  LateCommunicator(Communicator& to, LateKernels& on) : to_(to), on_(on) {}
  [[nodiscard]] int rank() const override { return to_.rank(); }
  [[nodiscard]] int size() const override { return to_.size(); }
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override {
    on_.later("AR", [=, this] { to_.all_reduce(data, count, element, how); });
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    on_.later("RS", [=, this] { to_.reduce_scatter(in, out, count, element); });
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    on_.later("AG", [=, this] { to_.all_gather(in, out, count, element); });
  }
  void all_to_all(const void*, const ExchangeParts&, void*, const ExchangeParts&,
                  Element) override {
    FAIL("not called");
  }
  void broadcast(void*, std::int64_t, Element, int) override { FAIL("not called"); }
  void send(const void*, std::int64_t, Element, int) override { FAIL("not called"); }
  void receive(void*, std::int64_t, Element, int) override { FAIL("not called"); }
  void barrier() override { FAIL("not called"); }
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  Communicator& to_;
  LateKernels& on_;
};

/// As run_chunks, of one chunk, with late collectives. `notes`: rank 0's, of the first microbatch's
/// backward, then (in halves) of its weights.
ChunkOutcome run_late(const ChunkRun& run, std::vector<std::string>& notes) {
  ChunkOutcome out;
  std::vector<double> losses(std::size_t(run.tp));
  std::vector<std::unique_ptr<LateKernels>> kernels;
  std::vector<std::unique_ptr<ChunkOnRank<double>>> chunks(std::size_t(run.tp));
  for (int rank = 0; rank < run.tp; ++rank) kernels.push_back(std::make_unique<LateKernels>());
  std::vector<std::unique_ptr<LateCommunicator>> late(std::size_t(run.tp));
  on_tp_ranks(run.tp, run.model, [&](int rank, Communicator* tp, Communicator* kv) {
    const auto at = std::size_t(rank);
    late[at] = std::make_unique<LateCommunicator>(*tp, *kernels[at]);
    chunks[at] =
        std::make_unique<ChunkOnRank<double>>(run, 0, rank, late[at].get(), kv, kernels[at].get());
    const auto note = [&](int microbatch) {
      const std::string noted = kernels[at]->take_notes();
      if (rank == 0 && microbatch == 0) notes.push_back(noted);
      demand(kernels[at]->all_awaited(), "a collective is pending after its instruction");
    };
    for (int m = 0; m < run.microbatches; ++m) losses[at] += chunks[at]->forward(m, nullptr);
    static_cast<void>(kernels[at]->take_notes());
    for (int m = 0; m < run.microbatches; ++m) {
      chunks[at]->backward(m, nullptr, nullptr);
      note(m);
    }
    for (int m = 0; run.halves && m < run.microbatches; ++m) {
      chunks[at]->backward_weight(m, nullptr);
      note(m);
    }
    chunks[at]->finish();
  });
  for (const bool compare : {false, true}) {
    for (const auto& chunk : chunks) chunk->collect(out, compare);
  }
  out.loss = losses.front() / (run.microbatches * run.samples * run.sequence);
  return out;
}

ChunkRun two_layers(bool split, bool halves) {
  ChunkRun run;
  run.model = test_llama();
  run.model.layers = 2;
  run.model.qkv_bias = run.model.mlp_bias = true;
  run.tp = 2;
  run.sequence_parallel = split;
  run.halves = halves;
  return run;
}

TEST_CASE("collectives that run as late as they may give the bits of those that run at once") {
  for (const bool split : {false, true}) {
    for (const bool halves : {false, true}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const int units : {1, 2}) {
          INFO("split " << split << ", halves " << halves << ", units " << units);
          ChunkRun run = two_layers(split, halves);
          run.recompute = {recompute};
          run.units = units;
          std::vector<std::string> notes;
          const ChunkOutcome late = run_late(run, notes);
          const ChunkOutcome at_once = run_chunks<double>(run);
          CHECK(late.loss == at_once.loss);
          CHECK(late.gradients == at_once.gradients);
        }
      }
    }
  }
}

TEST_CASE("the backward's collectives run beside its products") {
  const auto notes_of = [](bool split, bool halves) {
    std::vector<std::string> notes;
    static_cast<void>(run_late(two_layers(split, halves), notes));
    return notes;
  };
  // Behind an exposed gather: the row-parallel matrix's gradients, then the column-parallel one's.
  const std::string half = "AG( )AG dgrad AG( wgrad dgrad RS( )AG wgrad )RS ";
  const std::string head = "AG( )AG dgrad RS( wgrad )RS ";
  const std::string embedding = "AG( )AG ";
  CHECK(notes_of(true, false) ==
        std::vector<std::string>{head + half + half + half + half + embedding});
  const std::string whole = "dgrad wgrad dgrad AR( wgrad )AR ";
  CHECK(notes_of(false, false) ==
        std::vector<std::string>{"dgrad AR( wgrad )AR " + whole + whole + whole + whole});

  // In halves the sums are exposed, and the gathers for one weight run beside another's product.
  const std::string input = "AG( )AG dgrad dgrad RS( )RS ";
  const std::string next = ")AG wgrad AG( ";
  CHECK(notes_of(true, true) ==
        std::vector<std::string>{
            head + input + input + input + input + embedding,
            "AG( AG( " + next + next + next + next + next + next + ")AG wgrad )AG wgrad "});
}

}  // namespace
}  // namespace echelon
