// Logs written from published runs import as those runs; those that cannot be trusted are refused.
// Over 400 lines because every format and every reason to refuse a log has its case.
#include "interop/logs/imported_log.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/model/model_io.hpp"
#include "evaluation/run_mapping.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

const std::string kLogs = std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/training_log/";

std::string text_of(const std::string& name) { return slurp(kLogs + name); }

ImportedLog imported(const std::string& text, const RunFacts& given = {}) {
  const Result<TrainingLog> log = parse_training_log(text, "a.log");
  if (!log) FAIL(log.error().message());
  const Result<ImportedLog> result = import_log(*log, given);
  if (!result) FAIL(result.error().message());
  return *result;
}

/// `text` with every `from` replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  std::size_t count = 0;
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()), ++count) {
    text.replace(at, from.size(), to);
  }
  INFO(from);
  REQUIRE(count > 0);
  return text;
}

const MeasuredRun& published(const std::string& id) {
  static const std::vector<MeasuredRun> kRows =
      *read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  const auto found = std::ranges::find(kRows, id, &MeasuredRun::row_id);
  REQUIRE(found != kRows.end());
  return *found;
}

/// A log, the run it was written from, and what it does not say.
struct Written {
  std::string log, row, format;
  double tolerance = 0.002;  // of the step: digits that the format prints
  std::vector<std::string> ask{};
};

const std::vector<Written>& written() {
  static const std::vector<Written> kWritten = {
      {"megatron_core.log", "simumax-b200-0002", "megatron-lm", 0.002, {"gpu"}},
      {"megatron_bridge.log",
       "simumax-b200-0002",
       "megatron-bridge",
       0.002,
       {"vocab", "gpu", "gpus", "dp"}},
      {"torchtitan.log", "torchtitan-0001", "torchtitan", 0.002, {"gpu"}},
      {"nanotron.log", "nanotron-0001", "nanotron", 0.006, {"gpu"}},
      {"llm_c.log", "llm.c-0005", "llm.c", 0.003, {"gpu"}},
      {"llm_q.log",
       "llmq-0032",
       "llm.q",
       0.003,
       {"layers", "hidden", "heads", "ffn_hidden", "vocab", "gpu", "gpus", "dp", "global_batch"}},
      {"llm_q.json", "llmq-0032", "llm.q-json", 0.003, {"gpu", "gpus", "dp", "global_batch"}},
      {"composer.log", "mosaic-0010", "composer", 0.003, {"gpu"}},
      {"nemo2.log",
       "N1097",
       "nemo",
       0.003,
       {"layers", "hidden", "heads", "ffn_hidden", "vocab", "gpu", "gpus", "dp"}},
      {"megatron_deepspeed.log", "bigscience-0003", "megatron-deepspeed", 0.002, {"gpu"}},
      {"deepspeed.log",
       "flagperf-0011",
       "deepspeed",
       0.003,
       {"layers", "hidden", "heads", "ffn_hidden", "vocab", "gpu", "seq"}},
  };
  return kWritten;
}

TEST_CASE("a log written from a published run imports as that run") {
  for (const Written& one : written()) {
    CAPTURE(one.log);
    const MeasuredRun& row = published(one.row);
    const ImportedLog log = imported(text_of(one.log));
    CHECK(log.format->name == one.format);
    CHECK(log.refused.empty());
    REQUIRE(log.steps.step.has_value());
    CHECK(std::abs(log.steps.step->in(kSecond) / *row.step_seconds - 1) < one.tolerance);
    std::vector<std::string> asked;
    for (const MissingFact& fact : log.ask) asked.push_back(fact.column);
    CHECK(asked == one.ask);
    const auto same = [&](const WholeCell& found, const WholeCell& expected) {
      return !found || !expected || *found == *expected;
    };
    CHECK(same(log.row.layers, row.layers));
    CHECK(same(log.row.hidden, row.hidden));
    CHECK(same(log.row.ffn_hidden, row.ffn_hidden));
    CHECK(same(log.row.heads, row.heads));
    CHECK(same(log.row.kv_heads, row.kv_heads));
    CHECK(same(log.row.vocab, row.vocab));
    CHECK(same(log.row.seq, row.seq));
    CHECK(same(log.row.gpus, row.gpus));
    CHECK(same(log.row.tp, row.tp));
    CHECK(same(log.row.pp, row.pp));
    CHECK(same(log.row.dp, row.dp));
    CHECK(same(log.row.microbatch, row.microbatch));
    CHECK(same(log.row.global_batch, row.global_batch));
    CHECK(same(log.row.grad_accumulation, row.grad_accumulation));
    CHECK(same(log.row.zero, row.zero));
    CHECK((log.row.recompute.empty() || log.row.recompute == row.recompute));
    CHECK((log.row.precision.empty() || row.precision == "fp8" ||
           log.row.precision == row.precision));
  }
}

TEST_CASE("DeepSpeed's pipeline engine prints the mean of its steps") {
  const ImportedLog log = imported(text_of("deepspeed_pipeline.log"));
  CHECK(log.format->name == "deepspeed-pipeline");
  CHECK(log.refused.empty());
  REQUIRE(log.steps.step.has_value());
  CHECK(log.steps.step->in(kSecond) == Approx(1.2));
  CHECK(log.steps.windows == 5);
  CHECK(log.row.microbatch == 2);
  CHECK(log.row.global_batch == 32);
  CHECK(log.row.zero == 1);
}

TEST_CASE("llm.q prints seconds where a step takes 100 of them") {
  std::string text = text_of("llm_q.log");
  for (const char* time : {"4551 ms", "3571 ms", "3494 ms", "3515 ms", "3501 ms", "3487 ms"}) {
    text = replaced(text, time, "120  s");
  }
  text = replaced(text, "3522 ms", "121  s");
  CHECK(imported(text).steps.step->in(kSecond) == Approx(120));
}

TEST_CASE("memory is the largest rank's, as the format's units count it") {
  const auto peak = [](const std::string& log) {
    return *imported(text_of(log)).peak_memory_bytes;
  };
  CHECK(peak("megatron_core.log") ==
        Approx(*published("simumax-b200-0002").peak_memory_bytes).epsilon(1e-6));
  CHECK(peak("megatron_bridge.log") == Approx(65.155e9));
  CHECK(peak("torchtitan.log") ==
        Approx(*published("torchtitan-0001").peak_memory_bytes).epsilon(1e-4));
  CHECK(peak("composer.log") == Approx(60.123e9));
  CHECK(peak("deepspeed.log") == Approx(48.49 * 0x1p30));
  const ImportedLog nanotron = imported(text_of("nanotron.log"));
  CHECK(nanotron.memory_kind == "allocated");
}

TEST_CASE("memory after one step is no peak: Adam's states come at its end") {
  const std::string early =
      replaced(text_of("megatron_core.log"), "(after 10 iterations)", "(after 1 iterations)");
  const ImportedLog log = imported(early);
  CHECK_FALSE(log.peak_memory_bytes.has_value());
  CHECK(log.remarks.back().find("after the first step") != std::string::npos);
}

TEST_CASE("an old Megatron log without stamps and throughput is read") {
  const ImportedLog log = imported(text_of("megatron_2_5.log"));
  CHECK(log.version.empty());
  CHECK(log.steps.step->in(kSecond) == Approx(1.1).epsilon(0.003));
  CHECK(log.row.recompute == "none");
  CHECK(log.row.precision == "fp16");
  CHECK(*log.row.tp == 8);
}

TEST_CASE("the elapsed time of a progress bar is a clock, and tokens give the sequence") {
  const ImportedLog log = imported(text_of("hf_trainer.log"));
  CHECK(log.steps.step->in(kSecond) == Approx(3.45).epsilon(0.03));
  CHECK(*log.row.seq == 8192);
  CHECK(*log.row.gpus == 8);
}

TEST_CASE(
    "the log of LEONARDO's shapes reveals vocabulary, dp, GPUs and the distributed optimizer") {
  // The figures of a published log: 24 layers of 2048, 252 A100, 1.7138 billion parameters on the
  // most loaded shard, 9884.48 MB of weight and optimizer, 134.0 TFLOP/s at 1552.8 ms.
  const std::string text =
      "pretrain_gpt.py --num-layers 24 --hidden-size 2048 --ffn-hidden-size 8192 "
      "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 4 --global-batch-size 1008 "
      "--bf16 --swiglu --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1\n"
      "[n:0]:Number of parameters in transformer layers in billions:  1.61\n"
      "[n:0]:Number of parameters in most loaded shard in billions: 1.7138\n"
      "[n:0]:Theoretical memory footprints: weight and optimizer=9884.48 MB\n"
      "[n:3]: [2025-03-31 05:54:07] iteration 50/ 242204 | consumed samples: 50400 | elapsed time "
      "per iteration (ms): 1552.8 | throughput per GPU (TFLOP/s/GPU): 134.0 | global batch size: "
      "1008 | number of skipped iterations: 0 |\n";
  const ImportedLog log = imported(text);
  CHECK(*log.row.vocab == 50304);
  CHECK(*log.row.dp == 252);
  CHECK(*log.row.gpus == 252);
  CHECK(*log.row.zero == 1);
  CHECK(log.version == "core 0.6 to 0.11");
  REQUIRE(log.remarks.size() == 1);
  CHECK(log.remarks[0].find("is reproduced: 134 with") != std::string::npos);
}

TEST_CASE("TFLOP/s reveal the sequence length that a log does not state") {
  const std::string silent =
      replaced(text_of("megatron_core.log"), "  seq_length ", "  seq_length_unknown ");
  const ImportedLog log = imported(silent);
  CHECK(*log.row.seq == 4096);
  CHECK(log.facts.find("seq")->origin == FactOrigin::derived);
}

TEST_CASE("TFLOP/s of another sequence length contradict the configuration") {
  const ImportedLog log = imported(replaced(
      text_of("megatron_core.log"), "seq_length ...................................... 4096",
      "seq_length ...................................... 8192"));
  CHECK(log.refused.find("contradicts its configuration: seq is 8192") != std::string::npos);
  CHECK(log.refused.find("belongs to sequences of 4096") != std::string::npos);
}

TEST_CASE("flags that contradict the log are refused") {
  RunFacts given;
  given.set("tp", "4", FactOrigin::given, "--tp");
  CHECK(imported(text_of("megatron_core.log"), given).refused.find("tp is 4 (--tp) and 2 (line") !=
        std::string::npos);
}

TEST_CASE("a log that cannot be trusted is refused with its true reason") {
  struct Case {
    std::string log, from, to, reason;
  };
  const std::vector<Case> cases = {
      {"megatron_core.log", "skipped iterations:   0", "skipped iterations:  10",
       "every step was skipped"},
      {"torchtitan.log", "Training starts at step 1",
       "Training starts at step 1\n25 CUDA memory allocation retries.", "free its cache and retry"},
      {"megatron_bridge.log", "mem-alloc-retires: 0", "mem-alloc-retires: 3",
       "free its cache and retry"},
      {"megatron_core.log", "global batch size:    16", "global batch size:    32",
       "global_batch is 16 (line"},
      {"megatron_core.log", "context_parallel_size ........................... 1",
       "context_parallel_size ........................... 2", "cp is 1 (line"},
      {"hf_trainer.log", "'num_input_tokens_seen': 1310720", "'num_input_tokens_seen': 1290720",
       "variable tokens"},
      {"hf_trainer.log", "'epoch': 0.1", "'completion_length': 200", "generates text"},
      {"megatron_deepspeed.log", "iteration        4/  159576",
       "actual seqlen: 1024 | iteration        4/  159576", "two sequence lengths"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.log, one.to);
    const std::string refused = imported(replaced(text_of(one.log), one.from, one.to)).refused;
    INFO(refused);
    CHECK(refused.find(one.reason) != std::string::npos);
  }
}

TEST_CASE("two clocks that disagree are refused") {
  // DeepSpeed's timer sees part of an asynchronous step: 74.8 samples/s where the stamps give 7.
  const std::string fast =
      replaced(text_of("deepspeed.log"), "CurrSamplesPerSec=", "CurrSamplesPerSec=7");
  CHECK(imported(fast).refused.find("two clocks disagree") != std::string::npos);
  const std::string stampless = replaced(text_of("deepspeed.log"), "[2024-01-05 ", "[day ");
  CHECK(imported(stampless).refused.find("only clock") != std::string::npos);
}

TEST_CASE("too few steps are refused, with what was dropped") {
  const std::string text = text_of("llm_c.log");
  const std::string two = text.substr(0, text.find("step    3/"));
  CHECK(imported(two).refused ==
        "too few steps: 1 of 2 printed are left, at least 3 needed; dropped: 1 first of a run");
}

TEST_CASE("steps that a second rank prints count once, a restart begins a new run") {
  const std::string text = text_of("llm_c.log");
  const std::string steps = text.substr(text.find("step    1/"));
  const ImportedLog again = imported(text + steps);
  CHECK(again.steps.printed == 14);
  CHECK(again.steps.windows == 12);
  const ImportedLog titan = imported(text_of("torchtitan.log"));  // written with every line twice
  CHECK(titan.steps.printed == 9);
}

TEST_CASE("a step after a change of data is dropped where it is slow") {
  const ImportedLog log = imported(
      replaced(text_of("nanotron.log"),
               "iteration: 5 / 20 | consumed_tokens: 5.24M | "
               "elapsed_time_per_iteration_ms: 3.26K",
               "[Training Stage: Annealing] Clearing\niteration: 5 / 20 | consumed_tokens: 5.24M | "
               "elapsed_time_per_iteration_ms: 9.99K"));
  CHECK(log.steps.windows == 5);
  CHECK(log.steps.step->in(kSecond) == Approx(3.26456).epsilon(0.006));
}

TEST_CASE("a value that its column cannot hold is refused with its line") {
  const std::string wrong =
      replaced(text_of("megatron_core.log"), "num_layers ...................................... 12",
               "num_layers ...................................... 12x");
  const Result<TrainingLog> log = parse_training_log(wrong, "a.log");
  REQUIRE(log.ok());
  const Result<ImportedLog> result = import_log(*log, {});
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message() ==
        "a.log, line 18: num_layers: '12x'; expected layers: a whole number of at least 1");
}

TEST_CASE("a text that is no log names the formats that are read") {
  const Result<TrainingLog> log = parse_training_log("hello\nworld\n", "a.txt");
  REQUIRE_FALSE(log.ok());
  CHECK(log.error().message().find("Megatron-LM") != std::string::npos);
  const Result<TrainingLog> cut =
      parse_training_log("| elapsed time per iteration (ms): 12.0 | no step\n", "a.txt");
  REQUIRE_FALSE(cut.ok());
  CHECK(cut.error().found.find("without a step") != std::string::npos);
}

/// The model that a log's row is priced with.
ModelSpec priced_model(MeasuredRun row) {
  row.gpu = "B200-SXM-180GB";
  const auto mapped = RunMapper().map(row);
  if (const auto* skipped = std::get_if<SkippedRun>(&mapped)) FAIL(skipped->reason);
  return std::get<MappedRun>(mapped).model;
}

TEST_CASE("the printed pattern and options of a hybrid are the model that is priced") {
  const std::string text = text_of("megatron_hybrid.log");
  ModelSpec expected = *load_model("nemotron-h-8b");
  const auto same_layers = [&](const ModelSpec& model) {
    CHECK(model.layer_pattern == expected.layer_pattern);
    CHECK(model.ssm == expected.ssm);
    CHECK(model.mlp_only_layers == expected.mlp_only_layers);
    CHECK(model.activation == expected.activation);
    CHECK(model.parameters() == expected.parameters());
  };
  const ImportedLog log = imported(text);
  CHECK(log.refused.empty());
  CHECK(log.facts.find("attention")->value == "other");
  CHECK(log.facts.find("attention_detail")->value == "24 Mamba-2, 24 MLP, 4 attention layers");
  same_layers(priced_model(log.row));
  // In a table it is the catalog's with these shapes.
  const auto table = parse_runs(runs_to_csv(std::vector{log.row}), "rows");
  same_layers(priced_model(table->front()));
  // No model of the catalog: it is the log's.
  expected.ssm.state_dim = 256;
  const std::string wider = replaced(text, "mamba_state_dim ................................. 128",
                                     "mamba_state_dim ................................. 256");
  same_layers(priced_model(imported(wider).row));
}

TEST_CASE("a hybrid's layers in a log are not taken for those of another model") {
  const std::string text = text_of("megatron_hybrid.log");
  const Result<TrainingLog> unpriced =
      parse_training_log(replaced(text, "M-M-M-M*-M", "G-M-M-M*-M"), "a.log");
  const Result<ImportedLog> refused = import_log(*unpriced, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("gated delta nets (G)") != std::string::npos);
  CHECK(refused.error().where.find("a.log line 18") != std::string::npos);
  ModelSpec dense = *load_model("nemotron-h-8b");
  dense.ssm = {};
  dense.mlp_only_layers = 0;
  dense.layer_pattern.clear();
  RunFacts given;
  given.set_model(dense, FactOrigin::given, "--model");
  CHECK(imported(text, given).refused.find("one part each") != std::string::npos);
}

TEST_CASE("a pattern of layers is no dense model in a log that prints YAML") {
  const std::string text =
      replaced(text_of("megatron_bridge.log"),
               "num_query_groups: ", "hybrid_override_pattern: M-M*-M-\n  num_query_groups: ");
  const ImportedLog log = imported(text);
  CHECK(log.facts.find("attention")->value == "other");
  CHECK(log.facts.find("attention_detail")->value == "the layers M-M*-M-");
}

TEST_CASE("a model without columns of its own is priced as it was given") {
  ModelSpec latent = *load_model("deepseek-v2-lite");
  latent.mla.kv_lora_rank = 384;
  RunFacts given;
  given.set_model(latent, FactOrigin::given, "--model");
  CHECK(given.find("attention")->value == "mla");
  CHECK(row_of(given, "a.log")->whole_model == latent);
  RunFacts plain;
  plain.set_model(*load_model("llama3-8b"), FactOrigin::given, "--model");
  CHECK_FALSE(row_of(plain, "a.log")->whole_model.has_value());
}

TEST_CASE("the row of a log is read again from its table and priced") {
  RunFacts given;
  given.set("gpu", "B200-SXM-180GB", FactOrigin::given, "--cluster");
  const Result<MeasuredRun> row = read_log(kLogs + "megatron_core.log", given);
  REQUIRE(row.ok());
  const std::string csv = runs_to_csv(std::vector{*row});
  const auto again = parse_runs(csv, "rows");
  REQUIRE(again.ok());
  CHECK(runs_to_csv(*again) == csv);
  const auto mapped = RunMapper().map(again->front());
  const auto* run = std::get_if<MappedRun>(&mapped);
  REQUIRE(run != nullptr);
  CHECK(run->plan.tp == 2);
  CHECK(run->plan.dp == 4);
  CHECK(run->plan.zero == 1);
  CHECK(run->framework.name == "megatron-core");
  CHECK(run->job.global_batch == 16);
  CHECK_FALSE(read_log(kLogs + "megatron_core.log", {}).ok());
}

}  // namespace
}  // namespace echelon
