// The JSON contract: keys that other programs rely on.
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::check_keys;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;
using Json = nlohmann::ordered_json;

namespace {

const std::string kSearchJson = "--model 7b --gpus 64 --json";

void check_candidate(const Json& candidate) {
  check_keys(candidate, {"schema",
                         "kind",
                         "framework",
                         "calibration",
                         "model",
                         "cluster",
                         "gpus",
                         "seq",
                         "global_batch",
                         "precision",
                         "plan",
                         "fits",
                         "fits_probability",
                         "expected_seconds",
                         "simulated",
                         "unusual",
                         "memory",
                         "time",
                         "throughput",
                         "economics"});
  check_keys(candidate["plan"], {"tp",
                                 "cp",
                                 "ep",
                                 "etp",
                                 "dp",
                                 "pp",
                                 "vpp",
                                 "microbatch_group_size",
                                 "microbatch",
                                 "microbatches",
                                 "layers_per_stage",
                                 "zero",
                                 "sequence_parallel",
                                 "recompute",
                                 "recompute_layers",
                                 "schedule",
                                 "rank_order",
                                 "zero_group_size",
                                 "overlap",
                                 "offload"});
  check_keys(candidate["throughput"], {"tokens_per_second", "tokens_per_second_per_gpu",
                                       "model_tflops_per_gpu", "mfu", "mfu_formula"});
  check_keys(
      candidate["economics"],
      {"gpu_seconds_per_step", "usd_per_step", "usd_for_token_budget", "days_for_token_budget",
       "expected_usd_for_token_budget", "expected_days_for_token_budget", "kwh_per_step",
       "most_kwh_per_step", "kwh_for_token_budget", "token_factor", "goodput", "goodput_kind",
       "checkpoint_interval_seconds", "checkpoint_interval_steps", "checkpoint_bytes",
       "checkpoint_seconds", "checkpoint_stall_seconds", "restart_seconds", "mtbf_seconds"});
}

double sum_of_parts(const Json& time) {
  double sum = 0;
  for (const auto& [key, value] : time.items()) {
    const bool part = value.is_number() && key != "step_seconds" && key != "low_seconds" &&
                      key != "high_seconds" && key != "bubble_seconds" &&
                      key != "closed_form_seconds" && key != "data_load_seconds" && key != "stage";
    if (part) {
      sum += value.get<double>();
    }
  }
  return sum;
}

/// What is proved without an assumption, and what with which.
void check_certificate(const Json& certificate) {
  const bool assumed = certificate["gap"] > certificate["gap_if_assumed"];
  CHECK(assumed != certificate["assumes"].is_null());
  CHECK(certificate["proved_optimal"] == (certificate["gap"] == 0.0));
  CHECK(certificate["optimal_if_assumed"] == (certificate["gap_if_assumed"] == 0.0));
  if (assumed) {
    CHECK(certificate["assumes"]["closed_form_excess"] == 0.04);
    CHECK(certificate["assumes"]["split_of_layers"] == "best in closed form");
  }
}

}  // namespace

TEST_CASE("the capacity of the JSON is a limit that --max-memory takes") {
  const Sandbox sandbox;
  for (const char* cluster : {"dgx-h100", "dgx-a100", "gb200-nvl72", "l40s"}) {
    CAPTURE(cluster);
    const std::string job = std::string("--model gpt2 --gpus 1 --json --cluster ") + cluster;
    const auto bytes = document(sandbox.plan(job))["request"]["capacity_bytes"].get<std::int64_t>();
    const auto limited = document(sandbox.plan(job + " --max-memory " + std::to_string(bytes)));
    CHECK(limited["request"]["usable_memory_bytes"] == bytes);
    CHECK(limited["winner"]["memory"]["capacity_bytes"] == bytes);
  }
}

TEST_CASE("a search has every key of the contract") {
  const Sandbox sandbox;
  const Json found = document(sandbox.plan(kSearchJson));
  check_keys(found, {"request", "winner", "fastest", "candidates", "families", "pareto",
                     "pareto_complete", "rejected", "certificate", "timing"});
  check_keys(found["certificate"],
             {"proved_optimal", "gap", "assumes", "optimal_if_assumed", "gap_if_assumed", "points",
              "pruned_by_memory", "pruned_by_bound", "priced", "simulated", "splits_not_searched"});
  check_certificate(found["certificate"]);
  check_keys(found["timing"], {"seconds", "configurations_per_second"});
  REQUIRE(found["candidates"].size() == 5);
  CHECK(found["winner"] == found["candidates"][0]);
  REQUIRE(found["families"].size() == found["candidates"].size());
  for (const Json& family : found["families"]) {
    check_keys(family, {"siblings", "closed_form_seconds", "spare_bytes", "plan"});
    CHECK(family["closed_form_seconds"]["least"] <= family["closed_form_seconds"]["most"]);
    CHECK(family["spare_bytes"]["least"] <= family["spare_bytes"]["most"]);
    for (const auto& [field, range] : family["plan"].items()) {
      CHECK(range["first"] < range["last"]);
      CHECK(found["winner"]["plan"].contains(field));
    }
  }
  for (const char* list : {"candidates", "pareto"}) {
    for (const Json& candidate : found[list]) check_candidate(candidate);
  }
  for (const Json& rejection : found["rejected"]) {
    check_keys(rejection, {"reason", "count", "nearest"});
  }
}

TEST_CASE("a search over recipes of states lists the best plan with each") {
  const Sandbox box;
  const Json found = document(box.plan("--model llama3-8b --gpus 8 --precision bf16:any --json"));
  REQUIRE(found["recipes"].size() == 4);
  bool chosen = false;
  for (const Json& each : found["recipes"]) {
    check_keys(each, {"precision", "fits", "why_none", "plan", "step_seconds",
                      "peak_reserved_bytes", "objective_value"});
    if (each["precision"] != found["request"]["precision"]) continue;
    chosen = true;
    CHECK(each["step_seconds"] == found["winner"]["time"]["step_seconds"]);
  }
  CHECK(chosen);
  const std::string text = box.plan("--model llama3-8b --gpus 8 --precision bf16:any").out;
  CHECK(text.find("Recipes of states") != std::string::npos);
  CHECK(text.find("bf16:precision-aware") != std::string::npos);
  CHECK(text.find("explain --model llama3-8b --gpus 8 --precision bf16:any") == std::string::npos);
  CHECK_FALSE(document(box.plan("--model llama3-8b --gpus 8 --json")).contains("recipes"));
}

TEST_CASE("the parts of a step sum to its time and those of a stage to its total") {
  const Sandbox sandbox;
  const Json found = document(sandbox.plan(kSearchJson + " --pp 4 --top 3"));
  for (const Json& candidate : found["candidates"]) {
    const Json& time = candidate["time"];
    CHECK(sum_of_parts(time) == Approx(time["step_seconds"].get<double>()).epsilon(1e-12));
    CHECK(time["bubble_seconds"].get<double>() == Approx(time["fill_drain_seconds"].get<double>() +
                                                         time["imbalance_seconds"].get<double>()));
    CHECK(time["closed_form_seconds"].get<double>() > 0);
    REQUIRE(time["stages"].size() == 4);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      CHECK(time["stages"][stage]["stage"] == stage);
      check_keys(time["stages"][stage], {"compute_seconds", "fill_drain_seconds",
                                         "imbalance_seconds", "communication_wait_seconds"});
      CHECK(sum_of_parts(time["stages"][stage]) ==
            Approx(time["step_seconds"].get<double>()).epsilon(1e-9));
    }
    CHECK(candidate["memory"]["stages"].size() == 4);
    for (const Json& stage : candidate["memory"]["stages"]) {
      std::int64_t sum = 0;
      for (const auto& [key, value] : stage.items()) {
        if (key == "stage") continue;
        CHECK(value.is_number_integer());
        if (key != "total_bytes") sum += value.get<std::int64_t>();
      }
      CHECK(sum == stage["total_bytes"].get<std::int64_t>());
    }
  }
}

TEST_CASE("only the timing differs between two runs") {
  const Sandbox sandbox;
  Json first = document(sandbox.plan(kSearchJson));
  Json second = document(sandbox.plan(kSearchJson));
  first.erase("timing");
  second.erase("timing");
  CHECK(first == second);
}

TEST_CASE("one core finds what all cores find") {
  const Sandbox sandbox;
  const std::string arguments = " --model mixtral-8x7b --gpus 128 --json";
  Json all = document(sandbox.shell(sandbox.program() + arguments));
  Json one = document(sandbox.shell("taskset -c 0 " + sandbox.program() + arguments));
  all.erase("timing");
  one.erase("timing");
  CHECK(all == one);
}

TEST_CASE("a prediction of the winner's degrees is the winner's prediction") {
  const Sandbox sandbox;
  const Json winner = document(sandbox.plan(kSearchJson + " -o plan.json"))["winner"];
  Json again = document(sandbox.plan("predict plan.json --json"));
  check_candidate(again);
  again.erase("assumptions");
  CHECK(again == winner);
}

TEST_CASE("money and days are present if the price and the budget are given") {
  const Sandbox sandbox;
  const Json without = document(sandbox.plan(kSearchJson))["winner"]["economics"];
  CHECK(without["days_for_token_budget"].is_null());
  CHECK(without["usd_for_token_budget"].is_null());
  const Json with = document(sandbox.plan(kSearchJson + " --train-tokens 2T"))["winner"];
  const double days = 2e12 / with["throughput"]["tokens_per_second"].get<double>() / 86400;
  CHECK(with["economics"]["days_for_token_budget"].get<double>() == Approx(days).epsilon(1e-9));
}

TEST_CASE("if no plan fits, the winner is null and the nearest infeasible plan gives the changes") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("--model gpt3-175b --gpus 8 --json");
  CHECK(result.exit_code == 1);
  const Json found = document(result);
  CHECK(found["winner"].is_null());
  bool told = false;
  for (const Json& rejection : found["rejected"]) {
    if (rejection["reason"] != "memory") continue;
    const Json& nearest = rejection["nearest"];
    told = nearest["stage"].is_number_integer() && nearest["missing_bytes"].get<double>() > 0 &&
           !nearest["fix"].get<std::string>().empty();
  }
  CHECK(told);
}

TEST_CASE("collectives are listed as nccl-tests counts them") {
  const Sandbox sandbox;
  const Json rows = document(sandbox.plan(
      "topo collectives --cluster dgx-h100 --op all_reduce --ranks 16 --bytes 1Mi,64Mi --json"))
      ["rows"];
  REQUIRE(rows.size() == 4);  // bound and model of each size; no table of two such nodes
  for (const Json& row : rows) {
    check_keys(row, {"op", "ranks", "nodes", "bytes", "seconds", "algbw_GBps", "busbw_GBps",
                     "algorithm", "protocol", "layer"});
    CHECK(row["nodes"] == 2);
    const double algorithm = row["bytes"].get<double>() / row["seconds"].get<double>() / 1e9;
    CHECK(row["algbw_GBps"].get<double>() == Approx(algorithm));
    CHECK(row["busbw_GBps"].get<double>() == Approx(algorithm * 2 * 15 / 16));
  }
  CHECK(rows[2]["bytes"] == 64 << 20);
  CHECK(rows[0]["layer"] == "bound");
  CHECK(rows[1]["layer"] == "model");
  CHECK(rows[0]["seconds"] < rows[1]["seconds"]);
}

TEST_CASE("a machine with a table of nccl-tests shows the measured time next to the model's") {
  const Sandbox sandbox;
  const Json rows = document(sandbox.plan(
      "topo collectives --cluster dgx-b200 --op alltoall --ranks 16 --bytes 1Gi --json"))["rows"];
  CHECK(rows.size() == 2);  // no published measurement
  const Json gathers = document(sandbox.plan(
      "topo collectives --cluster dgx-b200 --op all_gather --ranks 16 --bytes 1Gi --json"))["rows"];
  REQUIRE(gathers.size() == 3);
  CHECK(gathers[2]["layer"] == "measured");
  CHECK(gathers[2]["seconds"].get<double>() == Approx(3341e-6).epsilon(0.001));
  CHECK(gathers[1]["seconds"].get<double>() ==
        Approx(gathers[2]["seconds"].get<double>()).epsilon(0.3));
}

TEST_CASE("a fit of collectives is shown, and written as a usable calibration") {
  const Sandbox sandbox;
  // Half of the bandwidth the description and the calibration give a ring of eight A100.
  std::string table = "op,nodes,ranks,bytes,time_us\n";
  for (const double mib : {64., 256., 1024., 4096.}) {
    const double bytes = mib * 1048576;
    table += "all_gather,1,8," + std::to_string(static_cast<long>(bytes)) + "," +
             std::to_string(bytes * 7 / 8 / 120e3) + "\n";
  }
  sandbox.write("table.csv", table);
  const Json fit =
      document(sandbox.plan("topo collectives --cluster dgx-a100 --op all_gather --bytes 1Gi --fit "
                            "table.csv -o fitted.json --json"))["fit"];
  check_keys(fit, {"table", "rows", "fitted_rows", "bandwidth", "latency", "error_before",
                   "error_after", "error_sizes_left_out", "error_ops_left_out"});
  CHECK(fit["error_before"] > 0.5);
  CHECK(fit["error_after"] < 0.1);
  CHECK(fit["error_ops_left_out"].is_null());
  const Json again = document(sandbox.plan(
      "topo collectives --cluster dgx-a100 --ranks 8 --op all_gather --bytes 1Gi --calibration "
      "fitted.json --json"))["rows"];
  CHECK(again[1]["busbw_GBps"].get<double>() == Approx(120).epsilon(0.1));
}

TEST_CASE("every command with output also prints it as JSON") {
  const Sandbox sandbox;
  CHECK(document(sandbox.plan("models --json"))["models"].size() > 10);
  CHECK(document(sandbox.plan("topo list --json"))["clusters"].size() > 10);
  CHECK(document(sandbox.plan("topo show dgx-h100 --json"))["gpu"]["name"].is_string());
  CHECK(document(sandbox.plan("topo show aws-p5 --json"))["node"]["nic_kind"] == "efa");
  CHECK(document(sandbox.plan("topo show h100-pcie --json"))["node"]["nic_kind"].is_null());
  CHECK(document(sandbox.plan("doctor --json"))["ready"] == true);
  REQUIRE(sandbox.plan("--model 7b --gpus 8 -o a.json").exit_code == 0);
  const Json compared = document(sandbox.plan("compare a.json a.json --json"));
  CHECK(compared["delta"]["time"]["step_seconds"] == 0.0);
  check_candidate(compared["a"]["candidate"]);
}

TEST_CASE("the peak of fp32 is named by the format that the GPU computes it in") {
  const Sandbox sandbox;
  const auto peak_of = [&](const std::string& cluster, const std::string& precision) {
    const std::string job =
        "predict --model gpt2 --gpus 8 --precision " + precision + " --cluster ";
    const Json json = document(sandbox.plan(job + cluster + " --json"));
    const std::string format = json["throughput"]["mfu_peak_format"];
    CHECK(lacks(sandbox.plan(job + cluster).out, "(dense " + format + ")") == "");
    return format;
  };
  CHECK(peak_of("dgx-h100", "fp32") == "tf32");
  CHECK(peak_of("dgx-h100", "bf16") == "bf16");
  CHECK(peak_of("dgx-v100", "fp32") == "fp32");
}

TEST_CASE("commands whose output is a text for others refuse --json") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("--model gpt2 --gpus 8 -q -o a.json").exit_code == 0);
  for (const std::string command :
       {"completion bash", "man", "help predict", "export megatron-lm a.json"}) {
    CAPTURE(command);
    REQUIRE(sandbox.plan(command).exit_code == 0);
    const echelon::ProcessResult ran = sandbox.plan(command + " --json");
    CHECK(ran.exit_code == 2);
    CHECK(ran.out.empty());
    CHECK(lacks(ran.err, "--json: plan " + command.substr(0, command.find(' ')) +
                             " does not take it") == "");
  }
}
