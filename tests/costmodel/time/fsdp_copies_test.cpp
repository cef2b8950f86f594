// Copies of FSDP around its collectives, against the bytes that tests/external/count_fsdp.py
// counts.
#include "costmodel/time/rates.hpp"
#include "tests/costmodel/time/term_case.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Bytes per parameter that the copies take, forward and backward, of one microbatch.
struct Copied {
  double forward, backward;
};

/// Of half of the layers, on ranks that all split the data.
Copied copied(TermCase c, int zero, int microbatches = 1) {
  c.job.global_batch = c.cluster.gpus() * microbatches;
  const auto times = [&] {
    return of_stage_model(c, c.plan(1, 1, zero), [&](const StageModel& m, const ShardingCosts&) {
      return m.times({.index = 1, .layers = {c.model.layers / 2, 0}});
    });
  };
  const StageTimes with = times();
  c.framework.unit_copies = UnitCopies::none;
  const StageTimes without = times();
  CHECK(with.compute.in(1_us) == Approx(without.compute.in(1_us)));
  // A layer: 4·4096² of attention, 3·4096·11008 of the MLP, two norms.
  const double layer = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2 * 4096;
  const BytesPerSecond rate = device_rates(c.cluster.gpu(), c.calibration, Dtype::bf16).memory;
  const Seconds of_byte = Bytes{c.model.layers / 2 * layer} / rate;
  return {(with.forward - without.forward) / of_byte, (with.backward - without.backward) / of_byte};
}

}  // namespace

TEST_CASE("FSDP2 copies gathered weights and reduced gradients beside its collectives") {
  const TermCase c("torchtitan");
  // bf16 weights are read and written, bf16 gradients read and written in fp32.
  CHECK(copied(c, 3).forward == Approx(2 + 2));
  CHECK(copied(c, 3).backward == Approx((2 + 2) + (2 + 4)));
  CHECK(copied(c, 2).forward == Approx(2 + 2));
  CHECK(copied(c, 2).backward == Approx(2 + 4));
  CHECK(copied(c, 1).forward == Approx(0).margin(1e-9));
  CHECK(copied(c, 1).backward == Approx(0).margin(1e-9));
}

TEST_CASE("FSDP2 that reduces once adds up whole gradients") {
  TermCase c("torchtitan");
  c.framework.accumulates_whole = true;
  // First bf16 to fp32, then three times bf16 added to fp32, in the end fp32 to the buffer.
  CHECK(4 * copied(c, 2, 4).backward == Approx((2 + 4) + 3 * (2 + 4 + 4) + (4 + 4)));
  CHECK(copied(c, 2, 4).forward == Approx(2 + 2));
}

TEST_CASE("FSDP1 puts gradients together to that of its flat parameter") {
  const TermCase c("llm-foundry");
  CHECK(copied(c, 3).forward == Approx(0).margin(1e-9));
  CHECK(copied(c, 3).backward == Approx(2 + 2));
}
