#include "evaluation/cv_folds.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

MeasuredRun run(std::string framework, std::string model, std::int64_t layers, std::int64_t gpus) {
  MeasuredRun row;
  row.framework = std::move(framework);
  row.model = std::move(model);
  row.layers = layers;
  row.hidden = 4096;
  row.gpu = "H100";
  row.gpus = gpus;
  row.tp = row.pp = 1;
  row.dp = gpus;
  row.microbatch = 1;
  row.global_batch = 64;
  row.seq = 4096;
  return row;
}

std::vector<MeasuredRun> published_table() {
  const auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  REQUIRE(rows.ok());
  return *rows;
}

TEST_CASE("a fold is a framework, a model, a GPU and a number of GPUs") {
  std::vector<MeasuredRun> rows = {run("nemo", "8B", 32, 8), run("nemo", "8B", 32, 8),
                                   run("nemo", "8B", 32, 16), run("nemo", "70B", 80, 8)};
  rows[1].microbatch = 4;
  const auto folds = folds_of(rows);
  CHECK(folds[0] == folds[1]);
  CHECK(folds[0] == "nemo | 8B | H100 | 8 GPUs");
  CHECK(std::set(folds.begin(), folds.end()).size() == 3);
}

TEST_CASE("ZeRO twins share a fold") {
  std::vector<MeasuredRun> rows = {run("nanotron", "8B", 32, 8), run("nanotron", "8B", 32, 8)};
  rows[0].zero = 0;
  rows[1].zero = 1;
  CHECK(folds_of(rows)[0] == folds_of(rows)[1]);
}

TEST_CASE("near-duplicates from other software or under another name share a fold") {
  std::vector<MeasuredRun> rows = {run("nemo", "LLAMA3_8B", 32, 8),
                                   run("megatron-core", "8B", 32, 8)};
  CHECK(folds_of(rows)[0] == folds_of(rows)[1]);
  rows[1].tp = 2;
  CHECK(folds_of(rows)[0] != folds_of(rows)[1]);
}

TEST_CASE("sharing a fold is transitive, whatever the order of the rows") {
  // 0 and 1 are twins, 1 and 2 of one cell, 2 and 3 twins.
  std::vector<MeasuredRun> rows = {run("a", "m", 32, 8), run("b", "m", 32, 8), run("b", "m", 32, 8),
                                   run("c", "n", 32, 8)};
  rows[2].microbatch = rows[3].microbatch = 2;
  auto folds = folds_of(rows);
  CHECK(std::set(folds.begin(), folds.end()) == std::set<std::string>{"a | m | H100 | 8 GPUs"});
  std::ranges::reverse(rows);
  CHECK(folds_of(rows) == folds);
}

TEST_CASE("in the published table no fold is in two parts, and the parts are even") {
  const std::vector<MeasuredRun> rows = published_table();
  const auto folds = folds_of(rows);
  const auto parts = deal_folds(folds, 10);
  std::map<std::string, std::set<int>> parts_of_fold;
  std::map<int, int> sizes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    parts_of_fold[folds[i]].insert(parts[i]);
    ++sizes[parts[i]];
  }
  for (const auto& [fold, seen] : parts_of_fold) CHECK(seen.size() == 1);
  CHECK(parts_of_fold.size() > 200);
  for (const auto& [part, size] : sizes)
    CHECK(size == Approx(static_cast<double>(rows.size()) / 10).epsilon(0.05));
}

TEST_CASE("in the published table no near-duplicate lies in another fold") {
  const std::vector<MeasuredRun> rows = published_table();
  const auto folds = folds_of(rows);
  std::map<std::string, std::set<std::string>> folds_of_twins;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRun& row = rows[i];
    if (row.model.empty() || !row.layers || !row.microbatch) continue;
    std::string twin = row.model + row.gpu;
    for (const WholeCell& cell : {row.layers, row.hidden, row.ffn_hidden, row.heads, row.experts,
                                  row.experts_per_token, row.gpus, row.tp, row.cp, row.ep, row.pp,
                                  row.vpp, row.microbatch, row.global_batch, row.seq}) {
      twin += "|" + std::to_string(cell.value_or(-1));
    }
    folds_of_twins[twin].insert(folds[i]);
  }
  for (const auto& [twin, seen] : folds_of_twins) {
    INFO(twin);
    CHECK(seen.size() == 1);
  }
}

}  // namespace
TEST_CASE("groups are publishers, or sources where the table names none") {
  std::vector<MeasuredRun> rows(3);
  rows[0].publisher = "a publisher";
  rows[0].source = rows[1].source = "first";
  rows[2].source = "second";
  CHECK(groups_of(rows, LeaveOut::publisher) ==
        std::vector<std::string>{"a publisher", "first", "second"});
  CHECK(groups_of(rows, LeaveOut::source) == std::vector<std::string>{"first", "first", "second"});
  const std::vector<std::string> groups = {"b", "a", "b"};
  CHECK(parts_of(groups) == std::vector<int>{1, 0, 1});
}

}  // namespace echelon
