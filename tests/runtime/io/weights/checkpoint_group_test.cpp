// Members of a run agree on one checkpoint, share its hashing, and name who cannot read it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/base/content_hash.hpp"
#include "tests/runtime/training/sharded_state.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;
using echelon::test::lacks;

constexpr StateFormat kGroupFormat{Element::bf16, Element::f32, Element::f32};

void save_step(const fs::path& directory, std::int64_t step) {
  RankState rank = rank_state(two_layer_llama(), kGroupFormat, 1, 0, 1, 0);
  fill(rank, kGroupFormat);
  REQUIRE(write_checkpoint(directory.string(), contents_of(two_layer_llama(), kGroupFormat, step),
                           rank.spans, {}, {0, 0})
              .ok());
}

/// What each of several members finds, in folders of their own; with the hashes of files as they
/// see them.
std::vector<std::string> found_by(const std::vector<fs::path>& folders,
                                  const StateFormat& format = kGroupFormat) {
  std::vector<std::string> out(folders.size());
  together(static_cast<int>(folders.size()), [&](const CheckpointGroup& group) {
    const auto at = static_cast<std::size_t>(group.member);
    const RunIdentity run = contents_of(two_layer_llama(), kGroupFormat, 0).run;
    const auto found = find_checkpoint(folders[at].string(), run, format, group);
    if (!found)
      out[at] = found.error().message();
    else if (!*found)
      out[at] = "none";
    else
      out[at] = "step " + std::to_string((*found)->contents.progress.step);
  });
  return out;
}

void flip_last_byte(const fs::path& file) {
  std::string content = slurp(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(file, std::ios::binary) << content;
}

/// With its hash, as a program that writes it would.
void edit_manifest(const fs::path& step, const std::string& key, const nlohmann::json& value) {
  using Json = nlohmann::ordered_json;
  Json manifest = Json::parse(slurp(step / "manifest.json"));
  manifest[key] = value;
  manifest.erase("hash");
  manifest["hash"] = content_hash(manifest.dump());
  std::ofstream(step / "manifest.json") << manifest.dump(1);
}

TEST_CASE("all members resume the checkpoint that the leader names") {
  const TempDir dir;
  save_step(dir.path(), 1);
  save_step(dir.path(), 2);
  CHECK(found_by({3, dir.path()}) == std::vector<std::string>(3, "step 2"));
  CHECK(found_by({3, dir.path() / "none"}) == std::vector<std::string>(3, "none"));
}

TEST_CASE(
    "a member whose folder lacks the leader's checkpoint, or has another, stops all by name") {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"}) save_step(dir.path() / name, 1);
  save_step(dir.path() / "a", 2);  // what a delayed mount does not show yet
  const std::vector<std::string> late =
      found_by({dir.path() / "a", dir.path() / "a", dir.path() / "b"});
  CHECK(lacks(late[0], "rank 2: ") == "");
  CHECK(lacks(late[0],
              "step_2/manifest.json: cannot be read: no such file or directory; rank 0 "
              "sees one with the hash ") == "");
  CHECK(lacks(late[0],
              "all ranks need the same --checkpoint-dir on a file system that they share") == "");
  CHECK(late[1] == late[0]);
  CHECK(late[2] == late[0]);
  edit_manifest(dir.path() / "c/step_1", "tokens", 7);
  const std::vector<std::string> other = found_by({dir.path() / "b", dir.path() / "c"});
  CHECK(lacks(other[0], "another manifest than rank 0 sees; rank 0 sees one with the hash ") == "");
  CHECK(other[1] == other[0]);
  // The leader decides, though another member sees more.
  CHECK(found_by({dir.path() / "b", dir.path() / "a"}) == std::vector<std::string>(2, "step 1"));
}

TEST_CASE("members share the hashing: a fault is found by the one whose piece it is") {
  const TempDir dir;
  for (const char* name : {"whole", "damaged"}) {
    save_step(dir.path() / name, 1);
    save_step(dir.path() / name, 2);
  }
  for (const char* file : {"exp_avg.safetensors", "exp_avg_sq.safetensors", "master.safetensors",
                           "weights.safetensors"}) {
    flip_last_byte(dir.path() / "damaged/step_2" / file);
  }
  // Each of the four files is one piece, so each of four members has one of them to look at, and a
  // member that sees the damaged folder skips the checkpoint for all.
  for (std::size_t member = 0; member < 4; ++member) {
    std::vector<fs::path> folders(4, dir.path() / "whole");
    folders[member] = dir.path() / "damaged";
    CAPTURE(member);
    CHECK(found_by(folders) == std::vector<std::string>(4, "step 1"));
  }
  // A fifth has nothing to look at.
  std::vector<fs::path> folders(5, dir.path() / "whole");
  folders[4] = dir.path() / "damaged";
  CHECK(found_by(folders) == std::vector<std::string>(5, "step 2"));
}

TEST_CASE("a checkpoint of a newer version is refused, not skipped as damaged") {
  const TempDir dir;
  save_step(dir.path(), 1);
  save_step(dir.path(), 2);
  edit_manifest(dir.path() / "step_2", "version", 99);
  for (const std::string& each : found_by({2, dir.path()})) {
    CHECK(lacks(each,
                "a checkpoint of version 99; expected version 4 or earlier; a newer version "
                "of this program wrote it") == "");
  }
  CHECK(fs::exists(dir.path() / "step_2/weights.safetensors"));
}

TEST_CASE("a checkpoint in another precision is refused by name") {
  const TempDir dir;
  save_step(dir.path(), 1);
  const StateFormat single{Element::f32, std::nullopt, Element::f32};
  for (const std::string& each : found_by({2, dir.path()}, single)) {
    CHECK(lacks(each,
                "a checkpoint in another precision: BF16 weights with F32 masters and F32 "
                "moments; expected F32 weights and F32 moments; plan with the --precision") == "");
  }
}

TEST_CASE("an error of one member reaches all as it is") {
  Error error = input_error("where", "found", "expected", "hint");
  CHECK(first_error({to_text(error)}).error().message() == error.message());
  CHECK(first_error({to_text(error)}).error().kind == Error::Kind::input);
  error = environment_error("a", "b");
  const Status of_second = first_error({"", to_text(error), to_text(input_error("x", "y", "z"))});
  CHECK(of_second.error().message() == "rank 1: a: b");
  CHECK(of_second.error().kind == Error::Kind::environment);
  CHECK(first_error({"", ""}).ok());
}

}  // namespace
}  // namespace echelon
