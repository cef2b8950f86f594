// Whole runs of adapters: resumed under any plan, begun from HuggingFace weights, exported for
// PEFT.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/safetensors.hpp"
#include "tests/places.hpp"
#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;
using echelon::test::mentions;
using enum AdapterTarget;

PlanFile plan_of_adapters(const ModelSpec& model, int tp, int pp, int dp, int zero,
                          const std::optional<Adapters>& adapters) {
  TrainedCase c;
  c.model = model;
  c.plan = plan_for(model, tp, pp, dp);
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp : 1;
  c.adapters = adapters;
  PlanFile plan = plan_file(c);
  plan.job.precision = find_precision("fp64").value();
  return plan;
}

const Adapters kEverywhere{4, {linear_qkv, linear_proj, linear_fc1, linear_fc2}};

std::string refused(const PlanFile& plan, const RunSettings& settings) {
  const Result<RunReport> report = run_plan(plan, settings, {});
  return report ? "it ran" : report.error().message();
}

TEST_CASE("adapters saved under any plan go on under any other within rounding") {
  check_resumed_by_next({plan_of_adapters(small_gpt2(), 1, 1, 1, 0, kEverywhere),
                         plan_of_adapters(small_gpt2(), 2, 2, 2, 1, kEverywhere),
                         plan_of_adapters(small_gpt2(), 2, 1, 2, 2, kEverywhere),
                         plan_of_adapters(small_gpt2(), 1, 1, 4, 3, kEverywhere)});
}

TEST_CASE("a checkpoint of adapters has states of these alone, and goes on with the same alone") {
  const PlanFile plan = plan_of_adapters(small_llama(), 1, 1, 2, 1, kEverywhere);
  const TempDir folder;
  RunSettings settings = settings_for(1);
  settings.checkpoint_dir = folder.path().string();
  (void)run(plan, settings);
  const auto tensors = [&](const char* file) {
    return SafetensorsFile::open((folder.path() / "step_1" / file).string())->header().tensors;
  };
  const std::size_t trained = run_parameters(plan.model, plan.job.adapters).trained.size();
  CHECK(tensors("exp_avg.safetensors").size() == trained);
  CHECK(tensors("weights.safetensors").size() == trained + whole_parameters(plan.model).size());
  settings.resume = Resume::yes;
  settings.lora_alpha = 16;
  CHECK(mentions(refused(plan, settings), "a checkpoint with adapters 4:"));
  CHECK(mentions(refused(plan, settings), "with alpha 16"));
  settings.lora_alpha = 32;
  const PlanFile all = plan_of_adapters(small_llama(), 1, 1, 2, 1, {});
  CHECK(mentions(refused(all, settings), "expected all parameters trained"));
  CHECK(run(plan, settings).exit_code() == 0);
}

/// Names and shapes of a folder's adapters.
std::map<std::string, std::vector<std::int64_t>> exported_shapes(const fs::path& folder) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  const Result<SafetensorsFile> file =
      SafetensorsFile::open((folder / "adapter_model.safetensors").string());
  REQUIRE(file.ok());
  for (const TensorEntry& tensor : file->header().tensors) shapes[tensor.name] = tensor.shape;
  return shapes;
}

TEST_CASE("adapters are exported with the names and shapes of PEFT") {
  const TempDir folder;
  RunSettings settings = settings_for(1);
  settings.export_to = (folder.path() / "gpt2").string();
  (void)run(plan_of_adapters(small_gpt2(2), 2, 1, 1, 0, Adapters{3, kEverywhere.targets}),
            settings);
  std::ifstream golden(std::string(ECHELON_SOURCE_DIR) +
                       "/tests/runtime/training/golden/adapters_peft.csv");
  std::string line;
  std::getline(golden, line);
  std::map<std::string, std::vector<std::int64_t>> expected;
  while (std::getline(golden, line)) {
    const std::size_t first = line.find(',');
    const std::size_t second = line.find(',', first + 1);
    expected[line.substr(0, first)] = {std::stol(line.substr(first + 1)),
                                       std::stol(line.substr(second + 1))};
  }
  REQUIRE(expected.size() == 16);
  CHECK(exported_shapes(settings.export_to) == expected);
  const std::string config = slurp(fs::path(settings.export_to) / "adapter_config.json");
  for (const char* part : {"\"r\": 3", "\"lora_alpha\": 32.0", "\"attn.c_proj\"", "\"mlp.c_proj\"",
                           "\"fan_in_fan_out\": true", "\"peft_type\": \"LORA\""})
    CHECK(mentions(config, part));
}

TEST_CASE("modules that share an adapter get a copy of its A and their rows of its B") {
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.export_to = (folder.path() / "llama").string();
  settings.checkpoint_dir = (folder.path() / "steps").string();
  (void)run(plan_of_adapters(small_llama(2), 1, 2, 1, 0, Adapters{3, {linear_qkv, linear_fc1}}),
            settings);
  const auto shapes = exported_shapes(settings.export_to);
  CHECK(shapes.size() == 2 * 5 * 2);
  const std::string at = "base_model.model.model.layers.1.";
  CHECK(shapes.at(at + "self_attn.v_proj.lora_A.weight") == std::vector<std::int64_t>{3, 16});
  CHECK(shapes.at(at + "self_attn.v_proj.lora_B.weight") == std::vector<std::int64_t>{8, 3});
  CHECK(shapes.at(at + "mlp.up_proj.lora_B.weight") == std::vector<std::int64_t>{24, 3});
  const auto values = [](const SafetensorsFile& file, const std::string& name) {
    const TensorEntry* const tensor = file.find(name);
    REQUIRE(tensor != nullptr);
    std::vector<double> out(static_cast<std::size_t>(tensor->count()));
    REQUIRE(file.read(*tensor, 0, tensor->count(), out.data(), Element::f64).ok());
    return out;
  };
  const Result<SafetensorsFile> peft =
      SafetensorsFile::open(settings.export_to + "/adapter_model.safetensors");
  const Result<SafetensorsFile> ours =
      SafetensorsFile::open(settings.checkpoint_dir + "/step_2/weights.safetensors");
  const auto a = values(*ours, "layers.1.attention.qkv.lora_A.weight");
  for (const char* part : {"q", "k", "v"}) {
    CHECK(values(*peft, at + "self_attn." + part + "_proj.lora_A.weight") == a);
    const auto b = values(*ours, std::string("layers.1.attention.") + part + ".lora_B.weight");
    CHECK(values(*peft, at + "self_attn." + part + "_proj.lora_B.weight") == b);
    CHECK(std::any_of(b.begin(), b.end(), [](double x) { return x != 0; }));
  }
}

TEST_CASE("a run of adapters begins with the loss of the weights it is given, as B is zero") {
  const TempDir folder;
  RunSettings settings = settings_for(3);
  settings.export_to = (folder.path() / "base").string();
  const PlanFile full = plan_of_adapters(small_llama(), 1, 1, 1, 0, {});
  (void)run(full, settings);
  settings.export_to.clear();
  settings.init_from = (folder.path() / "base").string();
  settings.steps = 1;
  const double base = run(full, settings).report.steps.front().loss;
  for (const auto& [tp, dp, zero] :
       std::vector<std::array<int, 3>>{{1, 1, 0}, {2, 2, 3}, {1, 2, 2}}) {
    const Ran ran = run(plan_of_adapters(small_llama(), tp, 1, dp, zero, kEverywhere), settings);
    CHECK(ran.report.steps.front().loss == Approx(base).epsilon(1e-12));
    CHECK(ran.notes() == "");
  }
  settings.init_from.clear();
  const Ran random = run(plan_of_adapters(small_llama(), 1, 1, 1, 0, kEverywhere), settings);
  CHECK(mentions(random.notes(), "the frozen weights under the adapters are random"));
}

}  // namespace
}  // namespace echelon
