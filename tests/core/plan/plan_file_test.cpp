#include "core/plan/plan_file.hpp"

#include <string>

#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

/// The beginning of a program: the reader checks only its first lines.
std::string program_of(const PlanFile& file) {
  return "echelon-schedule 1\npipeline " + std::string(name_of(file.plan.schedule)) + " ranks " +
         std::to_string(file.plan.pp) + " chunks " + std::to_string(file.plan.vpp) +
         " microbatches " +
         std::to_string(file.plan.microbatches_rounded_up(file.job.global_batch)) +
         " units 1\nprogram 0\n0 zero\n";
}

PlanFile example() {
  PlanFile file;
  file.version = "0.1.0";
  file.model.name = "tiny";
  file.model.architecture = "llama";
  file.model.source = "a test";
  file.model.layers = 4;
  file.model.hidden = 256;
  file.model.heads = file.model.kv_heads = 4;
  file.model.head_dim = 64;
  file.model.ffn_hidden = 688;
  file.model.vocab = 1000;
  file.model.max_positions = 2048;
  file.job.sequence = 2048;
  file.job.global_batch = 32;
  file.job.precision = *find_precision("bf16");
  file.job.token_budget = 2e12;
  file.cluster = "dgx-h100";
  file.gpus = 8;
  file.framework = "megatron-core";
  file.calibration = "hopper";
  file.keep_free = 2_GiB;
  file.max_memory = 70_GiB;
  file.plan.tp = 2;
  file.plan.dp = 2;
  file.plan.pp = 2;
  file.plan.shard_group = 2;
  file.plan.zero = 1;
  file.plan.sequence_parallel = true;
  file.plan.recompute = Recompute::full;
  file.plan.layers_per_stage = {2, 2};
  file.plan.recompute_layers = {1, 0};
  file.plan.overlap_pp = true;
  file.predicted.evidence = Evidence::calibrated;
  file.predicted.fits = true;
  file.predicted.capacity = 80_GiB;
  file.predicted.peak = 40_GiB;
  file.predicted.peak_reserved = 42_GiB;
  MemoryBreakdown stage;
  stage.weights = 1_GiB;
  stage.activations = 3_B;
  file.predicted.stages = {stage, MemoryBreakdown{}};
  file.predicted.time.compute = Seconds{1.0 / 3};
  file.predicted.time.fill_drain = 20_ms;
  file.predicted.time.imbalance = 3_ms;
  file.predicted.time.stragglers = 1_ms;
  StageTime first;
  first.compute = 300_ms;
  first.imbalance = 6_ms;
  first.stragglers = 1_ms;
  file.predicted.stage_times = {first, StageTime{}};
  file.predicted.closed_form = 350_ms;
  file.predicted.fits_probability = 0.93;
  file.predicted.low = Seconds{0.3};
  file.predicted.high = Seconds{0.4};
  file.predicted.tokens_per_second = 185000.5;
  file.predicted.model_flops_per_gpu = 400_TFLOPS;
  file.predicted.mfu = 0.4;
  file.assumptions = {"flash attention (--no-flash-attention)", "a \"quoted\" one, µs"};
  file.cluster_hash = "0123456789abcdef0123456789abcdef";
  file.calibration_hash = "00000000000000000000000000000001";
  file.program = program_of(file);
  return file;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  const Result<PlanFile> file = parse_plan_file(text, "p.json");
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().kind == Error::Kind::input);
  return file.error().message();
}

}  // namespace

TEST_CASE("mixed recomputation is read back, and requires a number for every stage") {
  PlanFile file = example();
  file.plan.recompute = Recompute::mixed;
  file.plan.selective_layers = {1, 2};
  const std::string text = plan_file_to_json(file);
  CHECK(parse_plan_file(text, "p.json").value().plan == file.plan);
  file.plan.selective_layers = {1};
  CHECK(error_of(plan_file_to_json(file)).find("selective_layers") != std::string::npos);
}

TEST_CASE("a rank's chunks differ by one layer, the first and the last being the shorter ones") {
  ParallelPlan plan;
  plan.pp = 3;
  plan.vpp = 4;
  plan.layers_per_stage = {3, 6, 7};
  const int expected[3][4] = {{0, 1, 1, 1}, {1, 1, 2, 2}, {2, 2, 2, 1}};
  for (int rank = 0; rank < 3; ++rank) {
    for (int chunk = 0; chunk < 4; ++chunk) {
      CHECK(layers_in_chunk(plan, rank, chunk) == expected[rank][chunk]);
    }
  }
}

TEST_CASE("a plan file is unchanged after writing and reading") {
  const PlanFile file = example();
  const std::string text = plan_file_to_json(file);
  const Result<PlanFile> back = parse_plan_file(text, "p.json");
  REQUIRE(back.ok());
  CHECK(back->model == file.model);
  CHECK(back->plan == file.plan);
  CHECK(back->predicted == file.predicted);
  CHECK(back->job.precision == file.job.precision);
  CHECK(back->job.token_budget == file.job.token_budget);
  CHECK(back->job.expert_imbalance == file.job.expert_imbalance);
  CHECK(back->max_memory == file.max_memory);
  CHECK(back->assumptions == file.assumptions);
  CHECK(back->cluster_hash == file.cluster_hash);
  CHECK(back->calibration_hash == file.calibration_hash);
  CHECK(back->program == file.program);
  CHECK(plan_file_to_json(*back) == text);
}

TEST_CASE("a plan file without an imbalance of experts has equal loads") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("expert_imbalance") == std::string::npos);
  CHECK(parse_plan_file(plan_file_to_json(file), "p.json")->job.expert_imbalance == 1);
  file.job.expert_imbalance = 1.5;
  CHECK(parse_plan_file(plan_file_to_json(file), "p.json")->job.expert_imbalance == 1.5);
}

TEST_CASE("a plan file keeps the lengths of packed documents, and refuses what names none") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("document_lengths") == std::string::npos);
  for (const char* lengths : {"2048", "512x1000,4096x30", "lognormal:2000:1.25"}) {
    file.job.documents = parse_document_lengths(lengths, "test").value();
    const Result<PlanFile> back = parse_plan_file(plan_file_to_json(file), "p.json");
    REQUIRE(back.ok());
    CHECK(back->job.documents == file.job.documents);
  }
  file.job.documents->text = "many";
  const Result<PlanFile> bad = parse_plan_file(plan_file_to_json(file), "p.json");
  REQUIRE(!bad.ok());
  CHECK(bad.error().message().find("'many' names no lengths of documents") != std::string::npos);
}

TEST_CASE("a plan file keeps adapters, and refuses what names none") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("lora") == std::string::npos);
  file.job.adapters = parse_adapters("16:linear_qkv,linear_fc2", "test", {}).value();
  const std::string json = plan_file_to_json(file);
  CHECK(parse_plan_file(json, "p.json")->job.adapters == file.job.adapters);
  CHECK(json.find("4N+6A+12LhT") != std::string::npos);
  file.job.adapters->rank = 0;
  const Result<PlanFile> bad = parse_plan_file(plan_file_to_json(file), "p.json");
  REQUIRE(!bad.ok());
  CHECK(bad.error().message().find("/request/job/lora: '0' as the rank") != std::string::npos);
}

TEST_CASE("a plan file keeps how frozen weights are quantised, and refuses other formats") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("quantized_weights") == std::string::npos);
  file.job.adapters = parse_adapters("16:linear_qkv", "test", {}).value();
  file.job.quantized_weights = QuantizedWeights{.double_quant = true};
  std::string json = plan_file_to_json(file);
  CHECK(parse_plan_file(json, "p.json")->job.quantized_weights == file.job.quantized_weights);
  const std::string kept = "nf4:double-quant";
  json.replace(json.find(kept), kept.size(), "int3");
  const Result<PlanFile> bad = parse_plan_file(json, "p.json");
  REQUIRE(!bad.ok());
  CHECK(bad.error().message().find("/request/job/quantized_weights") != std::string::npos);
}

TEST_CASE("a plan file keeps whose code the layers are, and refuses other code") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("layer_code") == std::string::npos);
  file.job.layer_code = LayerCode::transformers;
  std::string json = plan_file_to_json(file);
  CHECK(parse_plan_file(json, "p.json")->job.layer_code == LayerCode::transformers);
  const std::string kept = "\"layer_code\": \"transformers\"";
  REQUIRE(json.find(kept) != std::string::npos);
  json.replace(json.find(kept), kept.size(), "\"layer_code\": \"eager\"");
  const Result<PlanFile> bad = parse_plan_file(json, "p.json");
  REQUIRE(!bad.ok());
  CHECK(bad.error().message().find("/request/job/layer_code: unknown code of layers 'eager'") !=
        std::string::npos);
}

TEST_CASE("parts of a stage sum to its total in the file") {
  CHECK(plan_file_to_json(example()).find("\"total_bytes\": 1073741827") != std::string::npos);
}

TEST_CASE("stage times require an object for every stage, and the bubble is the sum of its parts") {
  PlanFile file = example();
  CHECK(plan_file_to_json(file).find("\"bubble_seconds\": 0.023") != std::string::npos);
  file.predicted.stage_times.pop_back();
  CHECK(lacks(error_of(plan_file_to_json(file)), "/prediction/time/stages") == "");
}

TEST_CASE("a file that is not a plan is distinguished from a broken one") {
  CHECK(lacks(error_of("{\"hidden_size\": 4096}"), "not a plan file") == "");
  CHECK(lacks(error_of("[1]"), "not a plan file") == "");
  const std::string text = plan_file_to_json(example());
  CHECK(lacks(error_of(text.substr(0, text.size() / 2)), "p.json") == "");
}

TEST_CASE("a newer and an older schema are refused with a hint") {
  const std::string text = plan_file_to_json(example());
  const auto with_schema = [&](const std::string& schema) {
    const std::string message = error_of(replaced(text, "\"schema\": 4", schema));
    CHECK(lacks(message, "p.json at /schema") == "");
    CHECK(lacks(message, "-o FILE") == "");
    return message;
  };
  const std::string newer = with_schema("\"schema\": 5");
  CHECK(lacks(newer, "schema 5, written by a newer version \"0.1.0\"; expected schema 4") == "");
  CHECK(lacks(newer, "update this program") == "");
  CHECK(lacks(with_schema("\"schema\": 1"), "schema 1, of an older version") == "");
  CHECK(lacks(with_schema("\"schema\": -7"), "schema -7") == "");
  CHECK(lacks(with_schema("\"schema\": \"2\""), "schema \"2\"") == "");
  CHECK(lacks(with_schema("\"x\": 2"), "no schema") == "");
}

TEST_CASE("a plan file of schema 2 is read, and written under today's keys") {
  const std::string path =
      std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/plan_file/one-gpu.json";
  const std::string before = slurp(path);
  REQUIRE(lacks(before, "\"schema\": 2") == "");
  const PlanFile file = read_plan_file(path).value();
  CHECK(lacks(before, "\"stack\": \"" + file.framework + "\"") == "");
  CHECK(lacks(before, "\"shard_group\": " + std::to_string(file.plan.shard_group)) == "");
  const std::string now = plan_file_to_json(file);
  CHECK(lacks(now, "\"schema\": 4") == "");
  CHECK(lacks(now, "\"framework\": \"" + file.framework + "\"") == "");
  CHECK(now.find("shard_group") == std::string::npos);
  CHECK(plan_file_to_json(parse_plan_file(now, "p.json").value()) == now);
  // Manual changes are detected, also under old keys.
  CHECK(lacks(error_of(replaced(before, "\"shard_group\": 1", "\"shard_group\": 2")),
              "contents with hash") == "");
}

TEST_CASE("a plan file of schema 3 is read: no probability of fitting, and a closed form") {
  const std::string path =
      std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/plan_file/schema-3.json";
  const std::string before = slurp(path);
  REQUIRE(lacks(before, "\"schema\": 3") == "");
  REQUIRE(lacks(before, "\"simulated_seconds\": 0.") == "");
  const PlanFile file = read_plan_file(path).value();
  CHECK_FALSE(file.predicted.fits_probability);
  CHECK_FALSE(file.predicted.closed_form);
  CHECK(file.predicted.time.total() > Seconds{});
  const std::string now = plan_file_to_json(file);
  CHECK(lacks(now, "\"fits_probability\": null") == "");
  CHECK(now.find("simulated_seconds") == std::string::npos);
  CHECK(plan_file_to_json(parse_plan_file(now, "p.json").value()) == now);
}

TEST_CASE("the program of another plan is refused") {
  PlanFile file = example();
  file.program = "echelon-schedule 1\npipeline 1f1b ranks 4 chunks 1 microbatches 16 units 1\n";
  std::string message = error_of(plan_file_to_json(file));
  CHECK(lacks(message,
              "p.json at /program/text: a program of another plan: 'pipeline 1f1b ranks 4") == "");
  CHECK(lacks(message, "expected 'pipeline 1f1b ranks 2 chunks 1 microbatches 16 units ...'") ==
        "");
  file.program = "";
  CHECK(lacks(error_of(plan_file_to_json(file)), "a program of another plan: ''") == "");
}

TEST_CASE("edits that keep a file readable are detected by its hashes") {
  const std::string text = plan_file_to_json(example());
  const std::string model = error_of(replaced(text, "\"vocab\": 1000", "\"vocab\": 2000"));
  CHECK(lacks(model, "p.json at /request/model: a model with hash ") == "");
  CHECK(lacks(model, "expected hash ") == "");
  CHECK(lacks(model, "plan predict FILE --tp 4 -o NEW") == "");
  const std::string plan = error_of(replaced(text, "\"zero\": 1", "\"zero\": 2"));
  CHECK(lacks(plan, "p.json: contents with hash ") == "");
  CHECK(lacks(plan, "damaged or edited") == "");
  const std::string program = error_of(replaced(text, "0 zero\\n", "0 clip\\n"));
  CHECK(lacks(program, "p.json at /program/text: a program with hash ") == "");
  CHECK(lacks(error_of(replaced(text, "0123456789abcdef0123", "0123456789ABCDEF0123")),
              "p.json at /hashes/cluster: not a hash; expected 32 hexadecimal digits") == "");
}

TEST_CASE("errors in keys of the newer parts have their pointer") {
  const std::string text = plan_file_to_json(example());
  CHECK(lacks(error_of(replaced(text, "\"assumptions\"", "\"assumption\"")), "'assumptions'") ==
        "");
  CHECK(lacks(error_of(replaced(text, "\"flash attention (", "3, \"(")), "/assumptions") == "");
  CHECK(lacks(error_of(replaced(text, "\"program\": {", "\"program\": 3, \"x\": {")), "'x'") == "");
  CHECK(lacks(error_of(replaced(text, "\"text\",", "\"gzip\",")), "/program/format") == "");
  CHECK(lacks(error_of(replaced(text, "\"bytes\": ", "\"bytes\": 9")), "/program/text") == "");
}

TEST_CASE("errors for unknown, missing and invalid keys have their pointer") {
  const std::string text = plan_file_to_json(example());
  CHECK(lacks(error_of(replaced(text, "\"zero\": 1", "\"zeroo\": 1")), "zero") == "");
  CHECK(lacks(error_of(replaced(text, "\"zero\": 1", "\"zero\": 7")), "/plan/zero") == "");
  CHECK(lacks(error_of(replaced(text, "\"tp\": 2", "\"tp\": 0")), "/plan/tp") == "");
  CHECK(lacks(error_of(replaced(text, "\"1f1b\"", "\"1f1c\"")), "/plan/schedule") == "");
  CHECK(lacks(error_of(replaced(text, "\"framework\"", "\"framwork\"")), "framework") == "");
  CHECK(lacks(error_of(replaced(text, "\"pp\": 2", "\"pp\": 3")), "layers_per_stage") == "");
}

TEST_CASE("a missing plan file is an input error, not an environment error") {
  const Result<PlanFile> file = read_plan_file("no-such-plan.json");
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().kind == Error::Kind::input);
}

TEST_CASE("a plan file of the version without constants is read, including its hash") {
  const Result<PlanFile> file =
      read_plan_file(ECHELON_SOURCE_DIR "/tests/fuzz/corpus/plan_file/one-gpu.json");
  INFO((file ? "" : file.error().message()));
  REQUIRE(file.ok());
  CHECK_FALSE(file->model.constants.has_value());
  CHECK_FALSE(not_executed(file->model).empty());
}

TEST_CASE("a plan file contains the constants of its model") {
  PlanFile file = example();
  file.model.constants = load_model("llama3.1-8b")->constants;
  const Result<PlanFile> back = parse_plan_file(plan_file_to_json(file), "plan.json");
  INFO((back ? "" : back.error().message()));
  REQUIRE(back.ok());
  CHECK(back->model.constants == file.model.constants);
}
