// Checkpoints: the same under every split, whole or refused, and never lost by a failure.
#include "runtime/io/weights/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/training/sharded_state.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

constexpr StateFormat kMixed{Element::bf16, Element::f32, Element::f32};
constexpr StateFormat kDouble{Element::f64, std::nullopt, Element::f64};

/// Writes the state of step `step` with tp × dp threads; the first error, or "".
std::string save(const std::string& directory, const ModelSpec& model, const StateFormat& format,
                 std::int64_t step, int tp, int dp, int keep = 5, const Disk& disk = Disk()) {
  std::vector<std::string> errors(static_cast<std::size_t>(tp * dp));
  together(tp * dp, [&](const CheckpointGroup& group) {
    RankState rank = rank_state(model, format, tp, group.member % tp, dp, group.member / tp);
    fill(rank, format);
    const Status written = write_checkpoint(directory, contents_of(model, format, step), rank.spans,
                                            group, {keep, 0}, disk);
    if (!written) errors[std::size_t(group.member)] = written.error().message();
  });
  std::string all;
  for (const std::string& error : errors) all += error.empty() ? "" : error + "\n";
  return all;
}

/// Alone, on this thread, so that what a fault throws arrives here.
Status save_alone(const std::string& directory, std::int64_t step, int keep, const Disk& disk) {
  RankState rank = rank_state(two_layer_llama(), kMixed, 1, 0, 1, 0);
  fill(rank, kMixed);
  return write_checkpoint(directory, contents_of(two_layer_llama(), kMixed, step), rank.spans, {},
                          {keep, 0}, disk);
}

RunIdentity identity(const ModelSpec& model) { return contents_of(model, kMixed, 0).run; }

Result<std::optional<FoundCheckpoint>> found_in(const fs::path& directory) {
  return find_checkpoint(directory.string(), identity(two_layer_llama()), kMixed);
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Ranks of a split whose memory is wrong after reading.
int wrong_after_reading(const std::string& path, const ModelSpec& model, const StateFormat& format,
                        int tp, int dp) {
  int wrong = 0;
  const auto reader = CheckpointReader::open(path, format);
  REQUIRE(reader.ok());
  for (int rank = 0; rank < tp * dp; ++rank) {
    RankState state = rank_state(model, format, tp, rank % tp, dp, rank / tp);
    const Status read = reader->read(state.spans);
    INFO((read ? "" : read.error().message()));
    CHECK(read.ok());
    wrong += wrong_spans(state, format) != 0;
  }
  return wrong;
}

bool reports(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("a checkpoint written under one split is read under every other") {
  const TempDir dir;
  for (const ModelSpec& model : {two_layer_llama(), two_layer_gpt2()}) {
    for (const StateFormat& format : {kMixed, kDouble}) {
      const std::string where = (dir.path() / "run").string();
      REQUIRE(save(where, model, format, 1, 2, 3) == "");
      for (const auto& [tp, dp] : {std::pair(1, 1), {2, 3}, {4, 1}, {4, 2}, {1, 5}}) {
        CAPTURE(tp, dp);
        CHECK(wrong_after_reading(where + "/step_1", model, format, tp, dp) == 0);
      }
      fs::remove_all(where);
    }
  }
}

TEST_CASE("the files are the same bytes whatever the split that wrote them") {
  const TempDir dir;
  std::set<std::string> manifests;
  std::set<std::string> weights;
  for (const auto& [tp, dp] : {std::pair(1, 1), {2, 2}, {4, 1}, {1, 3}}) {
    const std::string where = (dir.path() / std::to_string(tp * 10 + dp)).string();
    REQUIRE(save(where, two_layer_llama(), kMixed, 7, tp, dp) == "");
    CHECK(names_in(where) == std::vector<std::string>{"step_7"});
    CHECK(names_in(where + "/step_7") ==
          std::vector<std::string>{"exp_avg.safetensors", "exp_avg_sq.safetensors", "manifest.json",
                                   "master.safetensors", "weights.safetensors"});
    manifests.insert(slurp(where + "/step_7/manifest.json"));
    weights.insert(slurp(where + "/step_7/weights.safetensors"));
  }
  CHECK(manifests.size() == 1);
  CHECK(weights.size() == 1);
}

TEST_CASE("the state needed to resume a run is restored bit by bit") {
  const TempDir dir;
  REQUIRE(save(dir.path(), two_layer_llama(), kMixed, 9, 1, 1) == "");
  const auto found = found_in(dir.path());
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  const CheckpointContents expected = contents_of(two_layer_llama(), kMixed, 9);
  CHECK((*found)->contents.progress == expected.progress);
  CHECK((*found)->contents.format == expected.format);
  CHECK((*found)->contents.run.model == expected.run.model);
  CHECK((*found)->notes.empty());
  CHECK((*found)->path == (dir.path() / "step_9").string());
}

TEST_CASE("a directory without checkpoints is no error, and the newest keep-many are kept") {
  const TempDir dir;
  const auto nothing = found_in(dir.path() / "not-there");
  REQUIRE(nothing.ok());
  CHECK_FALSE(nothing->has_value());
  for (const int step : {8, 9, 10, 11}) {
    REQUIRE(save(dir.path(), two_layer_llama(), kMixed, step, 1, 1, 2) == "");
  }
  CHECK(names_in(dir.path()) == std::vector<std::string>{"step_10", "step_11"});
  const auto found = found_in(dir.path());
  REQUIRE(found.ok());
  CHECK((*found)->contents.progress.step == 11);
}

/// The disk operations while step 2 is written next to an earlier one.
std::vector<std::string> operations(int keep, std::int64_t earlier = 1) {
  const TempDir dir;
  std::vector<std::string> all;
  REQUIRE(save_alone(dir.path(), earlier, keep, Disk()).ok());
  const Disk recording([&](std::string_view what, const std::string& path) {
    all.push_back(std::string(what) + " " + fs::path(path).filename().string());
    return 0;
  });
  REQUIRE(save_alone(dir.path(), 2, keep, recording).ok());
  return all;
}

/// After a failure: step 1 or 2 is complete and nothing is damaged; the next checkpoint can be
/// written, and only checkpoints remain.
void check_recovery(const TempDir& dir) {
  const auto found = found_in(dir.path());
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK((*found)->notes.empty());
  CHECK(wrong_after_reading((*found)->path, two_layer_llama(), kMixed, 2, 2) == 0);
  REQUIRE(save_alone(dir.path(), 3, 2, Disk()).ok());
  for (const std::string& name : names_in(dir.path())) CHECK_FALSE(name.ends_with(".tmp"));
}

/// Step 2 is written next to step `first` or, if that is step 2, in place of it; the disk crashes
/// before each operation in turn.
void check_crashes(const std::vector<std::string>& all, std::int64_t first) {
  for (std::size_t at = 0; at < all.size(); ++at) {
    CAPTURE(all[at]);
    const TempDir dir;
    REQUIRE(save_alone(dir.path(), first, 1, Disk()).ok());
    std::size_t done = 0;
    const Disk crashing([&](std::string_view, const std::string&) {
      if (done++ == at) throw std::runtime_error("crash");
      return 0;
    });
    CHECK_THROWS_WITH(save_alone(dir.path(), 2, 1, crashing), "crash");
    check_recovery(dir);
  }
}

TEST_CASE("a crash before any operation on the disk leaves an intact checkpoint to resume from") {
  const std::vector<std::string> all = operations(1);
  CHECK(all.size() > 50);
  check_crashes(all, 1);
}

TEST_CASE("a failure of any operation on the disk is reported and leaves an intact checkpoint") {
  const std::vector<std::string> all = operations(1);
  for (std::size_t at = 0; at < all.size(); ++at) {
    CAPTURE(all[at]);
    const TempDir dir;
    REQUIRE(save_alone(dir.path(), 1, 1, Disk()).ok());
    std::size_t done = 0;
    const Disk failing(
        [&](std::string_view, const std::string&) { return done++ == at ? ENOSPC : 0; });
    const Status written = save_alone(dir.path(), 2, 1, failing);
    REQUIRE_FALSE(written.ok());
    CHECK(reports(written.error().message(), "no space left on the device"));
    check_recovery(dir);
  }
}

TEST_CASE(
    "a step that is written again replaces the one before, at every failure one or the other") {
  check_crashes(operations(2, 2), 2);
}

TEST_CASE("every file and directory is on the disk before the name it goes by") {
  const std::vector<std::string> all = operations(2);
  std::size_t renamed = 0;
  while (all.at(renamed) != "rename step_2") ++renamed;
  for (const char* name : {"weights.safetensors", "master.safetensors", "exp_avg.safetensors",
                           "exp_avg_sq.safetensors", "manifest.json"}) {
    const std::string written = std::string("write ") + name;
    const std::string synced = std::string("sync ") + name;
    const auto last = std::find(all.rbegin(), all.rend(), written);
    REQUIRE(last != all.rend());
    CHECK(std::find(last.base(), all.begin() + std::ptrdiff_t(renamed), synced) !=
          all.begin() + std::ptrdiff_t(renamed));
    CHECK(all.rend() - last < std::ptrdiff_t(renamed));
  }
  CHECK(all.at(renamed - 1) == "sync_directory step_2.tmp");
  CHECK(all.at(renamed + 1).starts_with("sync_directory"));
}

TEST_CASE("a failed write of one member fails for all, and no member hangs") {
  const TempDir dir;
  REQUIRE(save(dir.path(), two_layer_llama(), kMixed, 1, 2, 2) == "");
  std::mutex mutex;
  int writes = 0;
  const Disk failing([&](std::string_view what, const std::string& path) {
    const std::lock_guard lock(mutex);
    return what == "write" && path.ends_with("exp_avg.safetensors") && ++writes == 40 ? EIO : 0;
  });
  const std::string reported = save(dir.path(), two_layer_llama(), kMixed, 2, 2, 2, 2, failing);
  CHECK(reports(reported, "exp_avg.safetensors: cannot be written: Input/output error"));
  const std::string first = reported.substr(0, reported.find('\n'));
  CHECK(reported == first + "\n" + first + "\n" + first + "\n" + first + "\n");  // all name it
  CHECK(names_in(dir.path()) == std::vector<std::string>{"step_1"});
}

TEST_CASE("elements that no rank wrote, or two ranks, are reported with the tensor's name") {
  const TempDir dir;
  RankState rank = rank_state(two_layer_llama(), kMixed, 1, 0, 1, 0);
  fill(rank, kMixed);
  const CheckpointContents contents = contents_of(two_layer_llama(), kMixed, 1);
  std::vector<StateSpan> spans = rank.spans;
  spans.push_back(spans.front());
  CHECK_FALSE(write_checkpoint(dir.path(), contents, spans, {}, {}).ok());
  spans.resize(spans.size() - 2);
  const Status missing = write_checkpoint(dir.path(), contents, spans, {}, {});
  REQUIRE_FALSE(missing.ok());
  CHECK(reports(missing.error().message(),
                "the members wrote 0 elements of head.weight, which has 104"));
  CHECK(names_in(dir.path()).empty());
}

/// find_checkpoint after `damage(step_2)`, with a complete step 1 next to it.
std::string note_after(const std::function<void(const fs::path&)>& damage) {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  REQUIRE(save_alone(dir.path(), 2, 5, Disk()).ok());
  damage(dir.path() / "step_2");
  const auto found = found_in(dir.path());
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  if ((*found)->notes.empty()) return "";
  CHECK((*found)->contents.progress.step == 1);
  CHECK((*found)->notes.size() == 1);
  return (*found)->notes.front();
}

TEST_CASE("a damaged checkpoint is skipped, with the reason, for the one before it") {
  CHECK(note_after([](const fs::path&) {}) == "");
  CHECK(reports(note_after([](const fs::path& step) { fs::remove(step / "manifest.json"); }),
                "manifest.json: cannot be read"));
  CHECK(reports(note_after([](const fs::path& step) { fs::remove(step / "exp_avg.safetensors"); }),
                "exp_avg.safetensors: cannot be read"));
  for (const char* name : {"weights.safetensors", "master.safetensors", "exp_avg.safetensors",
                           "exp_avg_sq.safetensors", "manifest.json"}) {
    CHECK(reports(note_after([&](const fs::path& step) {
                    fs::resize_file(step / name, fs::file_size(step / name) - 2);
                  }),
                  std::string("skipped a damaged checkpoint: ")));
  }
}

TEST_CASE("a flipped bit anywhere in a checkpoint is detected") {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  const auto whole = [&] { return found_in(dir.path()).ok(); };
  Numbers numbers(11);
  for (const char* name : {"weights.safetensors", "exp_avg_sq.safetensors", "manifest.json"}) {
    const std::string file = "step_1/" + std::string(name);
    const std::string right = slurp(dir.path() / file);
    for (int i = 0; i < 200; ++i) {
      std::string text = right;
      std::size_t at = numbers.below(text.size());
      // An exponent's letter may be of either case.
      while (text[at] == 'e' && std::string_view(name) == "manifest.json") ++at;
      text[at] = static_cast<char>(text[at] ^ (1 << numbers.below(8)));
      dir.write(file, text);
      CAPTURE(name, at);
      CHECK_FALSE(whole());
    }
    dir.write(file, right);
    CHECK(whole());
  }
}

TEST_CASE("if all checkpoints are damaged the run does not silently start over") {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  fs::resize_file(dir.path() / "step_1" / "master.safetensors", 100);
  const auto found = found_in(dir.path());
  REQUIRE_FALSE(found.ok());
  CHECK(reports(found.error().message(), "no intact checkpoint"));
  CHECK(reports(found.error().message(), "master.safetensors: 100 bytes"));
}

TEST_CASE("a checkpoint of another model is refused by its first difference") {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  RunIdentity run = identity(two_layer_llama());
  run.model.ffn_hidden = 24;
  const auto other = find_checkpoint(dir.path(), run, kMixed);
  REQUIRE_FALSE(other.ok());
  CHECK(reports(other.error().message(), "another model: ffn_hidden is 12, the plan's is 24"));
  run = identity(two_layer_llama());
  run.model.constants->rope.theta = 500000;
  CHECK(reports(find_checkpoint(dir.path(), run, kMixed).error().message(),
                R"(rope is {"theta":10000.0}, the plan's is {"theta":500000.0})"));
  run = identity(two_layer_llama());
  run.model.constants->norm_epsilon = 1e-6;
  CHECK(reports(find_checkpoint(dir.path(), run, kMixed).error().message(),
                "norm_epsilon is 1e-05, the plan's is 1e-06"));
}

TEST_CASE("a different plan and different data are reported, and the checkpoint is used") {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  RunIdentity run = identity(two_layer_llama());
  run.plan = "tp 4";
  run.plan_hash = "bbbb";
  run.data = "a.txt";
  const auto found = find_checkpoint(dir.path(), run, kMixed);
  REQUIRE(found.ok());
  REQUIRE((*found)->notes.size() == 2);
  CHECK(reports((*found)->notes[0],
                "written under another plan (tp 2, dp 2, aaaa); this one is tp 4 (bbbb)"));
  CHECK(reports((*found)->notes[1], "written while reading synthetic; now it is a.txt"));
}

TEST_CASE("weights of another element type are refused by name") {
  const TempDir dir;
  REQUIRE(save_alone(dir.path(), 1, 5, Disk()).ok());
  const RankState rank = rank_state(two_layer_llama(), kDouble, 1, 0, 1, 0);
  const auto reader = CheckpointReader::open(dir.path() / "step_1", kDouble);
  REQUIRE(reader.ok());
  const Status read = reader->read(rank.spans);
  REQUIRE_FALSE(read.ok());
  CHECK(reports(read.error().message(), "is BF16 [8]; expected F64 [8]"));
}

TEST_CASE("a checkpoint that does not fit on the disk is refused before anything is written") {
  const TempDir dir;
  ModelSpec model = two_layer_llama();
  model.hidden = 1 << 16;
  model.layers = 1000;
  model.ffn_hidden = 1 << 18;
  const Status written = write_checkpoint(dir.path(), contents_of(model, kMixed, 1), {}, {}, {});
  REQUIRE_FALSE(written.ok());
  CHECK(reports(written.error().message(), " GB are needed on the disk and "));
  CHECK(reports(written.error().message(), "--keep-last"));
  CHECK(names_in(dir.path()).empty());
}

}  // namespace
}  // namespace echelon
