#include "evaluation/row_quality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "evaluation/run_cluster.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

const std::vector<MeasuredRun>& flag_table() {
  static const std::vector<MeasuredRun> rows =
      *read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  return rows;
}

MeasuredRun run_named(std::string_view id) {
  const auto found = std::ranges::find(flag_table(), id, &MeasuredRun::row_id);
  REQUIRE(found != flag_table().end());
  return *found;
}

std::string flag_names(const MeasuredRun& row) {
  std::string names;
  const auto flags = quality_flags_of(std::vector{row});
  for (const RowQualityFlag& flag : flags[0]) {
    names += (names.empty() ? "" : "; ") + std::string(flag.name);
  }
  return names;
}

TEST_CASE("an ordinary row carries no flag") {
  CHECK(flag_names(run_named("nanotron-0001")).empty());
  CHECK(flag_names(run_named("mosaic-0081")).empty());
}

TEST_CASE("packed samples, natural routing and untuned configurations are flagged") {
  MeasuredRun run = run_named("nanotron-0001");
  run.notes = "SFT on SQuAD packed to 4096";
  CHECK(flag_names(run) == "uneven-work");
  run.notes = "natural routing; real data";
  CHECK(flag_names(run) == "uneven-work; uneven-experts");
  run.notes = "MoE force-balanced routing";
  CHECK(flag_names(run).empty());
  run.notes = "first figures, not tuned";
  CHECK(flag_names(run) == "untuned");
  run.notes = "flash attention 3; loss of reinforcement learning, output head in chunks of 2048";
  CHECK(flag_names(run) == "other-loss");
  run.notes.clear();
  run.framework = "torchtitan";
  CHECK(flag_names(run).empty());
  run.overlap_detail = "dispatcher=deepep";
  CHECK(flag_names(run) == "other-buffers");
}

TEST_CASE("a microbatch of seconds where a fraction is expected is a stall") {
  const MeasuredRun stalled = run_named("nanotron-0932");  // tp 32, pp 1: 8.7 s per microbatch
  CHECK(flag_names(stalled) == "stalled");
  MeasuredRun sound = stalled;
  sound.step_seconds = generous_step(stalled);
  CHECK(flag_names(sound).empty());
}

TEST_CASE("the expected time grows with the network latency that the job measured") {
  MeasuredRun row = run_named("nanotron-0135");  // a slow network, tp > 1
  REQUIRE(has_slow_network(row));
  const double slow = generous_step(row);
  row.net_allgather_busbw_GBps = row.net_reducescatter_busbw_GBps = 226;
  CHECK_FALSE(has_slow_network(row));
  CHECK(generous_step(row) < slow);
}

TEST_CASE("the ring step a job measured is its own latency") {
  const auto healthy = measured_ring_step(run_named("nanotron-0811"));  // 128 GPUs
  REQUIRE(healthy.has_value());
  CHECK(healthy->in(1_us) == Approx(28).margin(2));
  CHECK_FALSE(measured_ring_step(run_named("mosaic-0081")).has_value());
}

TEST_CASE("a stage that ran although it needs more memory than the GPU has is overfull") {
  MeasuredRun row = run_named("nanotron-1343");
  CHECK(flag_names(row) == "overfull");
  row.static_memory_bytes = 1e9;
  CHECK(flag_names(row).empty());
}

TEST_CASE("grade C disqualifies time, and also memory except for nanotron") {
  MeasuredRun row = run_named("nanotron-0001");
  row.grade = "C";
  auto flags = quality_flags_of(std::vector{row})[0];
  REQUIRE(flags.size() == 1);
  CHECK((flags[0].time && !flags[0].memory));
  row = run_named("mosaic-0081");
  row.grade = "C";
  flags = quality_flags_of(std::vector{row})[0];
  REQUIRE(flags.size() == 1);
  CHECK((flags[0].time && flags[0].memory));
}

TEST_CASE("two different outcomes of one configuration flag both rows for fitting, not for time") {
  MeasuredRun ran = run_named("nanotron-0001");
  MeasuredRun ended = ran;
  ended.status = "oom";
  ended.global_batch = 2 * *ran.global_batch;  // does not change what is in flight
  const auto both = quality_flags_of(std::vector{ran, ended});
  for (const auto& flags : both) {
    REQUIRE(flags.size() == 1);
    CHECK(flags[0].name == "twin-ran");
    CHECK((flags[0].fits && !flags[0].time));
  }
  ended.microbatch = 2 * *ran.microbatch;
  CHECK(quality_flags_of(std::vector{ran, ended})[1].empty());
  ended.microbatch = ran.microbatch;
  ended.torch_compile = !ran.torch_compile.value_or(false);
  CHECK(quality_flags_of(std::vector{ran, ended})[1].empty());
}

TEST_CASE("head dimensions that do not fill tensor cores are flagged") {
  MeasuredRun row = run_named("mosaic-0081");
  row.head_dim = 100;
  CHECK(flag_names(row) == "odd-heads");
  row.head_dim = 96;
  CHECK(flag_names(row).empty());
}

TEST_CASE("every flag disqualifies something and gives the reason") {
  for (const RowQualityFlag& flag : row_quality_flags()) {
    CHECK((flag.time || flag.memory || flag.fits));
    CHECK_FALSE(flag.why.empty());
  }
}

TEST_CASE("the list of flagged rows follows from the rules") {
  const auto flags = quality_flags_of(flag_table());
  std::string list = "row_id,flags\n";
  for (std::size_t i = 0; i < flag_table().size(); ++i) {
    if (flags[i].empty()) continue;
    std::string names;
    for (const RowQualityFlag& flag : flags[i]) {
      names += (names.empty() ? "" : "; ") + std::string(flag.name);
    }
    list += fmt::format("{},{}\n", flag_table()[i].row_id, names);
  }
  const std::string path = ECHELON_SOURCE_DIR "/tests/validation/flags.csv";
  if (const char* update = std::getenv("ECHELON_UPDATE_GOLDENS"); update != nullptr && *update) {
    std::ofstream(path, std::ios::binary) << list;
  }
  INFO("ECHELON_UPDATE_GOLDENS=1 rewrites " << path);
  CHECK(slurp(path) == list);
}

}  // namespace
}  // namespace echelon
