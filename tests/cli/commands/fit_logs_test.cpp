// plan fit of training logs: three runs of one job, and the prediction of the fourth.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

/// A row of tests/validation/runs.csv: Llama 8B (4096 wide, 32 layers, 32 key/value heads, 131,072
/// words) on 16 H100, 4,096 tokens, 256 sequences, by nanotron.
struct PublishedStep {
  const char* row;
  int tp, dp, zero, microbatch;
  double seconds, tflops;
};
constexpr PublishedStep kLogged[] = {
    {"nanotron-0524", 8, 2, 1, 8, 10.32112, 357.94},
    {"nanotron-0556", 8, 2, 1, 4, 10.99223, 336.09},
    {"nanotron-0586", 8, 2, 1, 2, 11.85192, 311.71},
};
constexpr PublishedStep kFourth{"nanotron-0548", 8, 2, 0, 4, 10.8205, 341.42};

/// Its log as nanotron v0.4 writes it.
std::string nanotron_log(const PublishedStep& step) {
  const std::string head = "01/17/2024 13:04:01 [INFO|DP=0|PP=0|TP=0|ip-26-0-1]: ";
  std::string out;
  for (const std::string& line : {
           fmt::format("Config(parallelism=ParallelismArgs(dp={},", step.dp),
           std::string("pp=1,"),
           fmt::format("tp={},", step.tp),
           std::string("tp_mode=<TensorParallelLinearMode.REDUCE_SCATTER: 2>,"),
           std::string("tp_linear_async_communication=True,"),
           std::string("recompute_layer=False,"),
           std::string("expert_parallel_size=1),"),
           std::string("hidden_size=4096,"),
           std::string("intermediate_size=14336,"),
           std::string("num_attention_heads=32,"),
           std::string("num_hidden_layers=32,"),
           std::string("num_key_value_heads=32,"),
           std::string("tie_word_embeddings=False,"),
           std::string("vocab_size=131072,"),
           std::string("dtype=torch.bfloat16,"),
           std::string("tokens=TokensArgs(sequence_length=4096,"),
           fmt::format("micro_batch_size={},", step.microbatch),
           fmt::format("batch_accumulation_per_replica={},", 256 / step.dp / step.microbatch),
           fmt::format("optimizer=OptimizerArgs(zero_stage={},", step.zero),
       }) {
    out += head + line + "\n";
  }
  const double tokens = 256 * 4096 / step.seconds;
  for (int i = 1; i <= 7; ++i) {
    const double slower = i == 1 ? 1.3 : 1;
    out += fmt::format(
        "01/17/2024 13:{:02}:{:02} [INFO|DP=0|PP=0|TP=0|ip-26-0-1]: iteration: {} / 20 | "
        "consumed_tokens: {:.3g}M | elapsed_time_per_iteration_ms: {:.3g}K | tokens_per_sec: "
        "{:.3g}K | tokens_per_sec_per_gpu: {:.3g}K | global_batch_size: 256 | lm_loss: 11.6 | lr: "
        "0.00015 | model_tflops_per_gpu: {:.3g} | hardware_tflops_per_gpu: {:.3g} | grad_norm: "
        "2.96\n",
        5 + static_cast<int>(i * step.seconds) / 60, static_cast<int>(i * step.seconds) % 60, i,
        1.048576 * i, slower * step.seconds, tokens / slower / 1e3, tokens / slower / 16e3,
        step.tflops / slower, step.tflops / slower);
  }
  return out;
}

double predicted(const Sandbox& sandbox, const PublishedStep& step, const std::string& more) {
  const auto plan = document(sandbox.plan(fmt::format(
      "predict --model job.json --cluster dgx-h100 --gpus 16 --seq 4096 --global-batch 256 "
      "--framework nanotron --tp {} --dp {} --zero {} --microbatch {} --sequence-parallel "
      "--recompute none --json {}",
      step.tp, step.dp, step.zero, step.microbatch, more)));
  return plan["time"]["step_seconds"].get<double>();
}

TEST_CASE("three logs of one job make the prediction of the fourth better") {
  const Sandbox sandbox;
  std::string logs;
  for (const PublishedStep& step : kLogged) {
    sandbox.write(std::string(step.row) + ".log", nanotron_log(step));
    logs += " " + std::string(step.row) + ".log";
  }
  sandbox.write("job.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 131072,
    "max_position_embeddings": 4096, "tie_word_embeddings": false, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0})");
  const ProcessResult fitted = sandbox.plan("fit" + logs + " --cluster dgx-h100 -o mine.json");
  INFO(fitted.err);
  REQUIRE(fitted.exit_code == 0);
  CHECK(lacks(fitted.out, "after 3 runs, starting from hopper-nanotron") == "");
  const auto error = [&](const std::string& more) {
    return std::abs(predicted(sandbox, kFourth, more) / kFourth.seconds - 1);
  };
  const double before = error("");
  const double after = error("--calibration mine.json");
  CAPTURE(before, after);
  CHECK(before > 0.08);
  CHECK(after < 0.5 * before);
}

TEST_CASE("a log that lacks facts, and files of two kinds, are refused with what to do") {
  const Sandbox sandbox;
  sandbox.write("one.log", nanotron_log(kFourth));
  const ProcessResult asked = sandbox.plan("fit one.log");
  CHECK(asked.exit_code == 2);
  CHECK(lacks(asked.err, "the log does not say: gpu") == "");
  CHECK(lacks(asked.err, "--cluster NAME|FILE") == "");
  sandbox.write("runs.csv", "row_id\n");
  const ProcessResult mixed = sandbox.plan("fit one.log runs.csv --cluster dgx-h100");
  CHECK(mixed.exit_code == 2);
  CHECK(lacks(mixed.err, "training logs and other files together") == "");
  const ProcessResult filtered = sandbox.plan("fit one.log --where tp=8");
  CHECK(filtered.exit_code == 2);
  CHECK(lacks(filtered.err, "--where with training logs") == "");
  const ProcessResult flag = sandbox.plan("fit runs.csv --tp 2");
  CHECK(flag.exit_code == 2);
  CHECK(lacks(flag.err, "--tp without a training log") == "");
}

}  // namespace
}  // namespace echelon::test
