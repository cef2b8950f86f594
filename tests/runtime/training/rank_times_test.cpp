#include "runtime/training/rank_times.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a rank is behind by what it computes longer than the lower median of its stage") {
  std::vector<RankTime> ranks;
  const double seconds[] = {2, 2, 5, 2.5, 1, 9};
  for (int rank = 0; rank < 6; ++rank) {
    ranks.push_back(
        {.rank = rank, .stage = rank / 4, .computes = Seconds{seconds[rank]}, .behind = {}});
  }
  compare_ranks(ranks);
  const double behind[] = {0, 0, 3, 0.5, 0, 8};
  for (int rank = 0; rank < 6; ++rank) {
    INFO("rank " << rank);
    CHECK(ranks[static_cast<std::size_t>(rank)].behind.in(kSecond) == Approx(behind[rank]));
  }
}

TEST_CASE("waiting and a missing core are not a rank's own computing") {
  Program program;
  for (std::uint32_t id = 0; id < 3; ++id) {
    Instruction i;
    i.id = id;
    i.queue = id == 1 ? Queue::reduce : Queue::compute;
    program.instructions.push_back(i);
  }
  StepTimes step;
  step.spans.resize(3);
  for (InstructionSpan& span : step.spans) span.end = Seconds{10};
  step.spans[0].within[static_cast<std::size_t>(Within::tp_comm)] = Seconds{4};
  step.spans[2].within[static_cast<std::size_t>(Within::kernels_without_core)] = Seconds{3};
  const std::vector<StepTimes> steps = {step, step};
  CHECK(own_compute(program, steps).in(kSecond) == Approx(6 + 7));
  CHECK(own_compute(program, {}).in(kSecond) == 0);
}
