// Checkpoints written from a copy, phase by phase, while the state changes.
#include "runtime/io/weights/async_checkpoint.hpp"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>

#include "tests/runtime/training/sharded_state.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;
using echelon::test::lacks;

constexpr StateFormat kAsyncFormat{Element::bf16, Element::f32, Element::f32};
constexpr int kTp = 2;
constexpr int kDp = 2;

/// Runs `work(member's checkpoint, its state, its group)` on every rank.
template <class Work>
void on_all(const TempDir& dir, const Disk& disk, const Work& work) {
  together(kTp * kDp, [&](const CheckpointGroup& group) {
    RankState rank = rank_state(two_layer_llama(), kAsyncFormat, kTp, group.member % kTp, kDp,
                                group.member / kTp);
    fill(rank, kAsyncFormat);
    AsyncCheckpoint async(dir.path().string(), {2, 0}, disk, group.member, group.members,
                          rank.spans, kAsyncFormat);
    work(async, rank, group);
  });
}

CheckpointContents at_step(std::int64_t step) {
  return contents_of(two_layer_llama(), kAsyncFormat, step);
}

Result<std::optional<FoundCheckpoint>> newest_in(const TempDir& dir) {
  return find_checkpoint(dir.path().string(), at_step(0).run, kAsyncFormat);
}

TEST_CASE("an asynchronous checkpoint holds the state of its step, whatever happens meanwhile") {
  const TempDir dir;
  const Disk disk;
  std::mutex mutex;
  std::multiset<double> copies;
  on_all(dir, disk, [&](AsyncCheckpoint& async, RankState& rank, const CheckpointGroup& group) {
    async.start(at_step(3), rank.spans, {});
    for (auto& memory : rank.memory) std::fill(memory.begin(), memory.end(), '\x55');
    int meetings = 0;
    while (async.in_flight()) {
      ++meetings;
      if (!async.advance(group.exchange, false)) break;
    }
    const std::lock_guard lock(mutex);
    CHECK(meetings >= CheckpointWriter::kPhases);
    copies.insert(async.copy().in(kByte));
  });
  const auto found = newest_in(dir);
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK((*found)->contents.progress.step == 3);
  RankState whole = rank_state(two_layer_llama(), kAsyncFormat, 1, 0, 1, 0);
  REQUIRE(CheckpointReader::open((*found)->path, kAsyncFormat)->read(whole.spans).ok());
  CHECK(wrong_spans(whole, kAsyncFormat) == 0);
  // One copy of every rank's own part: no more than its shard of 14 bytes a parameter.
  double all = 0;
  for (const double bytes : copies) all += bytes;
  const auto once = static_cast<double>(checkpoint_bytes(two_layer_llama(), kAsyncFormat));
  CHECK(all > 0.5 * once);
  CHECK(*copies.rbegin() < 0.6 * once);
}

TEST_CASE("a member that is not done holds up the phase, not the others' steps") {
  const TempDir dir;
  std::atomic<bool> stuck = true;
  std::mutex mutex;
  const Disk disk([&](std::string_view what, const std::string& path) {
    while (stuck && what == "write" && path.ends_with("exp_avg.safetensors"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  on_all(dir, disk, [&](AsyncCheckpoint& async, RankState& rank, const CheckpointGroup& group) {
    async.start(at_step(3), rank.spans, {});
    bool fine = true;
    for (int step = 0; step < 20 && fine; ++step) fine = async.advance(group.exchange, false).ok();
    const bool flies = fine && async.in_flight();
    (void)group.exchange("");
    stuck = false;
    if (flies) fine = async.advance(group.exchange, true).ok();
    const std::lock_guard lock(mutex);
    CHECK(flies);
    CHECK(fine);
    CHECK(!async.in_flight());
  });
  CHECK(fs::exists(dir.path() / "step_3/manifest.json"));
}

TEST_CASE("a full disk in the background is reported by every member, and the one before stays") {
  const TempDir dir;
  const Disk fine;
  on_all(dir, fine, [&](AsyncCheckpoint& async, RankState& rank, const CheckpointGroup& group) {
    async.start(at_step(1), rank.spans, {});
    (void)async.advance(group.exchange, true);
  });
  const Disk full([](std::string_view what, const std::string& path) {
    return what == "allocate" && path.ends_with("master.safetensors") ? ENOSPC : 0;
  });
  std::mutex mutex;
  std::vector<std::string> errors;
  on_all(dir, full, [&](AsyncCheckpoint& async, RankState& rank, const CheckpointGroup& group) {
    async.start(at_step(2), rank.spans, {});
    const Status done = async.advance(group.exchange, true);
    const std::lock_guard lock(mutex);
    errors.push_back(done ? "" : done.error().message());
  });
  REQUIRE(errors.size() == kTp * kDp);
  for (const std::string& error : errors) {
    CHECK(lacks(error, "master.safetensors: cannot be written: no space left on the device: ") ==
          "");
    CHECK(lacks(error, " are needed, ") == "");
    CHECK(error == errors.front());
  }
  const auto found = newest_in(dir);
  REQUIRE(found.ok());
  CHECK((*found)->contents.progress.step == 1);
  CHECK(!fs::exists(dir.path() / "step_2.tmp"));
}

}  // namespace
}  // namespace echelon
