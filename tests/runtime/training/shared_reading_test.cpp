// What replicas need is read once, by all of them together.
#include "runtime/training/shared_reading.hpp"

#include <filesystem>
#include <mutex>
#include <numeric>

#include "runtime/comm/thread_communicator.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"
#include "tests/runtime/training/whole_runs.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// What four threads read together of `count` numbers, number i being i; `broken`: whose reads
/// fail.
struct ReadByFour {
  std::vector<std::vector<double>> got;
  std::vector<Status> ends;
  std::vector<std::int64_t> read;  ///< elements
};

ReadByFour read_by_four(std::int64_t count, int broken = -1) {
  RunThreads run_threads(Seconds{60});
  const auto ends = thread_communicators(run_threads, {"replicas", {0, 1, 2, 3}});
  ReadByFour all{std::vector(4, std::vector<double>(static_cast<std::size_t>(count), -1)),
                 std::vector<Status>(4, Status(Done{})), std::vector<std::int64_t>(4)};
  for (std::size_t member = 0; member < 4; ++member) {
    run_threads.add("member", [&, member] {
      all.ends[member] =
          read_together<double>(*ends[member], count, all.got[member].data(),
                                [&](std::int64_t first, std::int64_t last, double* to) -> Status {
                                  if (static_cast<int>(member) == broken)
                                    return environment_error("file", "is broken");
                                  std::iota(to, to + (last - first), static_cast<double>(first));
                                  all.read[member] += last - first;
                                  return Done{};
                                });
    });
  }
  run_threads.run();
  return all;
}

TEST_CASE("four members read each element once, and have all") {
  for (const std::int64_t count : {0, 1, 3, 4, 1003, 1'000'003}) {
    CAPTURE(count);
    const ReadByFour all = read_by_four(count);
    std::vector<double> expected(static_cast<std::size_t>(count));
    std::iota(expected.begin(), expected.end(), 0.0);
    for (std::size_t member = 0; member < 4; ++member) {
      CHECK(all.ends[member].ok());
      CHECK((all.got[member] == expected));
      CHECK(all.read[member] <= (count + 3) / 4);
    }
    CHECK(std::accumulate(all.read.begin(), all.read.end(), std::int64_t{0}) == count);
  }
}

TEST_CASE("a member that cannot read does not keep the others waiting") {
  const ReadByFour all = read_by_four(1'000'003, 2);
  for (std::size_t member = 0; member < 4; ++member) CHECK(all.ends[member].ok() == (member != 2));
  CHECK(all.got[0].front() == 0);
  CHECK(all.got[2].back() == 1'000'002);
}

/// The number with which the report's line begins.
std::int64_t bytes_read_by(const Ran& ran) {
  const auto at = ran.report.environment.find("read at the start");
  REQUIRE(at != ran.report.environment.end());
  return std::stoll(at->second);
}

struct FileBytes {
  std::int64_t heads = 0;  ///< with their length, which is read twice
  std::int64_t data = 0;
};

FileBytes bytes_of_files(const fs::path& directory) {
  FileBytes bytes;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::open(entry.path().string()).value();
    bytes.heads += file.header().data + 8;
    bytes.data += static_cast<std::int64_t>(fs::file_size(entry.path())) - file.header().data;
  }
  return bytes;
}

TrainedCase replicas_case(int dp, int zero, int shard_group, const char* precision) {
  TrainedCase c;
  c.model = small_gpt2();
  c.plan = plan_for(c.model, 1, 1, dp);
  c.plan.zero = zero;
  c.plan.shard_group = shard_group;
  c.precision = precision;
  c.global_batch = 8;
  return c;
}

TEST_CASE("replicas read a checkpoint once") {
  struct Split {
    int zero;
    int shard_group;
    const char* precision;
  };
  for (const Split split :
       {Split{0, 1, "fp32"}, Split{0, 1, "bf16"}, Split{1, 4, "bf16"}, Split{1, 2, "bf16"},
        Split{2, 4, "fp32"}, Split{3, 2, "bf16"}, Split{3, 4, "bf16"}}) {
    CAPTURE(split.zero, split.shard_group, split.precision);
    const PlanFile plan =
        plan_file(replicas_case(4, split.zero, split.shard_group, split.precision));
    const TempDir folder;
    RunSettings settings = settings_for(3);
    settings.checkpoint_dir = (folder.path() / "whole").string();
    const Ran whole = run(plan, settings);
    CHECK(whole.report.environment.count("read at the start") == 0);
    settings.checkpoint_dir = (folder.path() / "parts").string();
    settings.steps = 2;
    (void)run(plan, settings);
    const FileBytes expected = bytes_of_files(folder.path() / "parts/step_2");
    settings.resume = Resume::yes;
    settings.steps = 1;
    const Ran rest = run(plan, settings);
    CHECK(bytes_read_by(rest) == expected.data + 4 * expected.heads);
    check_same_files(folder.path() / "whole/step_3", folder.path() / "parts/step_3");
  }
}

TEST_CASE("replicas and shards read given weights once, each parameter where it is theirs") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    for (const int zero : {0, 3}) {
      CAPTURE(model.name, zero);
      TrainedCase c = replicas_case(4, zero, zero > 0 ? 4 : 1, "fp32");
      c.model = model;
      const PlanFile plan = plan_file(c);
      const TempDir folder;
      RunSettings settings = settings_for(2);
      settings.export_to = (folder.path() / "weights").string();
      (void)run(plan, settings);
      const FileBytes expected = bytes_of_files(settings.export_to);
      settings.init_from = settings.export_to;
      settings.export_to.clear();
      CHECK(bytes_read_by(run(plan, settings)) == expected.data + expected.heads);
    }
  }
}

}  // namespace
}  // namespace echelon
