// The JSON contract: keys that other programs rely on.
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;
using Json = nlohmann::ordered_json;

namespace {

const std::string kSearchJson = "--model 7b --gpus 64 --json";

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

void check_keys(const Json& object, const std::vector<std::string>& expected) {
  const std::vector<std::string> keys = keys_of(object);
  for (const std::string& key : expected) {
    CAPTURE(key);
    CHECK(std::find(keys.begin(), keys.end(), key) != keys.end());
  }
}

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
       "expected_usd_for_token_budget", "expected_days_for_token_budget", "token_factor", "goodput",
       "checkpoint_interval_seconds", "checkpoint_bytes", "checkpoint_seconds", "restart_seconds",
       "mtbf_seconds"});
}

double sum_of_parts(const Json& time) {
  double sum = 0;
  for (const auto& [key, value] : time.items()) {
    const bool part = value.is_number() && key != "step_seconds" && key != "low_seconds" &&
                      key != "high_seconds" && key != "bubble_seconds" &&
                      key != "closed_form_seconds" && key != "stage";
    if (part) {
      sum += value.get<double>();
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("a search has every key of the contract") {
  const Sandbox sandbox;
  const Json found = document(sandbox.plan(kSearchJson));
  check_keys(found, {"request", "winner", "fastest", "candidates", "families", "pareto",
                     "pareto_complete", "rejected", "certificate", "timing"});
  check_keys(found["certificate"],
             {"proved_optimal", "gap", "points", "pruned_by_memory", "pruned_by_bound", "priced",
              "simulated", "splits_not_searched"});
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
  CHECK(document(sandbox.plan("doctor --json"))["ready"] == true);
  REQUIRE(sandbox.plan("--model 7b --gpus 8 -o a.json").exit_code == 0);
  const Json compared = document(sandbox.plan("compare a.json a.json --json"));
  CHECK(compared["delta"]["time"]["step_seconds"] == 0.0);
  check_candidate(compared["a"]["candidate"]);
}

TEST_CASE("a validation has every key of the contract") {
  const Sandbox sandbox;
  sandbox.write(
      "runs.csv",
      "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,"
      "seq,gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,microbatch,"
      "global_batch,recompute,precision,step_seconds\n"
      "r1,here,A,ok,nanotron,tiny,16,2048,8192,16,16,50000,2048,1,0,mha,H100-SXM5-80GB,8,8,2,"
      "1,4,1,32,none,bf16,1.0\n"
      "r2,here,A,ok,nosuchstack,tiny,16,2048,8192,16,16,50000,2048,1,0,mha,X100-SXM5-80GB,8,8,"
      "2,1,4,1,32,none,bf16,1.0\n");
  const ProcessResult result = sandbox.plan("validate runs.csv --json");
  CHECK(result.exit_code == 0);
  const Json report = document(result);
  check_keys(report, {"rows", "time", "memory", "fits", "ranking", "by_source", "by_part",
                      "noise_floor", "without_flagged"});
  check_keys(report["time"], {"rows", "mean_abs_error", "median_abs_error", "p90_abs_error", "bias",
                              "mean_abs_error_80", "mean_abs_error_95", "share_in_band"});
  check_keys(report["by_source"]["here"], {"time", "memory", "fits", "ranking", "ranking_summary"});
  check_keys(report["by_source"]["here"]["ranking_summary"],
             {"groups", "regret_mean", "regret_median", "regret3_mean", "regret3_median",
              "spearman_mean"});
  check_keys(report["fits"], {"rows", "false_fits", "false_ooms"});
  REQUIRE(report["rows"].size() == 2);
  for (const Json& row : report["rows"]) {
    check_keys(row, {"row_id", "source", "predicted_step_seconds", "measured_step_seconds",
                     "time_error", "predicted_peak_bytes", "measured_peak_bytes", "memory_error",
                     "predicted_fits", "measured_fits", "skipped"});
  }
  CHECK(report["rows"][1]["skipped"].is_string());
}

TEST_CASE("a validation writes its rows and its picture to the given files") {
  const Sandbox sandbox;
  sandbox.write(
      "runs.csv",
      "tp,pp,row_id,source,stack,layers,hidden,ffn_hidden,heads,vocab,seq,gpu,gpus,dp,microbatch,"
      "global_batch,step_seconds,somebody's own column\n"
      "2,1,r1,here,stack-of-2031,16,2048,8192,16,50000,2048,NVIDIA H200,8,4,1,32,1.0,x\n");
  const ProcessResult result =
      sandbox.plan("validate runs.csv --predictions rows.csv --plot plot.svg --quiet");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("is the nearest") != std::string::npos);
  const std::string rows = slurp(sandbox.file("rows.csv"));
  CHECK(rows.starts_with("row_id,source,"));
  CHECK(rows.find("\nr1,here,") != std::string::npos);
  CHECK(slurp(sandbox.file("plot.svg")).find("<circle") != std::string::npos);
  CHECK(sandbox.plan("validate runs.csv --predictions ''").exit_code == 2);
  CHECK(sandbox.plan("validate runs.csv --plot no/such/folder/plot.svg").exit_code == 3);
  const ProcessResult missing = sandbox.plan("validate runs.csv --calibrations none");
  CHECK(missing.exit_code == 2);
  CHECK(lacks(missing.err, "--calibrations") == "");
  CHECK(lacks(missing.err, "none") == "");
  sandbox.write("calibrations/hopper.json", "{}");  // next to the table, so it is read
  CHECK(lacks(sandbox.plan("validate runs.csv").err, "calibrations/hopper.json") == "");
}

/// Runs of one job on 8 GPUs of one kind, their steps growing with the microbatch.
std::string table_of_runs() {
  std::string csv =
      "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,"
      "seq,gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,microbatch,"
      "global_batch,recompute,precision,step_seconds\n";
  for (int i = 1; i <= 8; ++i) {
    csv += "r" + std::to_string(i) + ",here,A,ok,nanotron,tiny" + std::to_string(i) +
           ",16,2048,8192,16,16,50000,2048,1,0,mha,H100-SXM5-80GB,8,8,2,1,4," + std::to_string(i) +
           "," + std::to_string(32 * i) + ",none,bf16," + std::to_string(0.9 + 0.5 * i) + "\n";
  }
  return csv;
}

TEST_CASE("a validation without a folder of release calibrations names the calibrations it uses") {
  const Sandbox sandbox;
  const std::string note = "No folder calibrations/ next to the table";
  sandbox.write("runs.csv", table_of_runs());
  CHECK(lacks(sandbox.plan("validate runs.csv").out, note) == "");
  CHECK(lacks(sandbox.shell(sandbox.program() + " validate - <runs.csv").out, note) == "");
  for (const char* more : {"--quiet", "--json", "--cross-validate 4"}) {
    CAPTURE(more);
    CHECK(sandbox.plan(std::string("validate runs.csv ") + more).out.find(note) ==
          std::string::npos);
  }
  sandbox.write("calibrations/here", "");
  REQUIRE(sandbox.plan("fit runs.csv -o calibrations").exit_code == 0);
  CHECK(sandbox.plan("validate runs.csv").out.find(note) == std::string::npos);
  sandbox.write("elsewhere/runs.csv", table_of_runs());
  CHECK(lacks(sandbox.plan("validate elsewhere/runs.csv").out, note) == "");
  for (const char* flag : {"--calibrations calibrations", "--calibration calibrations/*.json"}) {
    CAPTURE(flag);
    const ProcessResult chosen = sandbox.plan(std::string("validate elsewhere/runs.csv ") + flag);
    CHECK(chosen.exit_code == 0);
    CHECK(chosen.out.find(note) == std::string::npos);
  }
}

TEST_CASE("fit writes calibrations that a prediction can use") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", table_of_runs());
  sandbox.write("fits/here", "");
  const ProcessResult fitted = sandbox.plan("fit runs.csv -o fits --json");
  REQUIRE(fitted.exit_code == 0);
  const Json report = document(fitted);
  check_keys(report, {"schema", "runs", "left_out", "calibrations"});
  CHECK(report["runs"] == 8);
  REQUIRE(report["calibrations"].size() == 1);
  const Json& first = report["calibrations"][0];
  check_keys(first,
             {"name", "base", "fitted_to", "runs", "median_error_in_fold", "time_band", "rates"});
  CHECK(first["name"] == "hopper-nanotron");
  check_keys(first["rates"][0], {"rate", "prior", "value", "low", "high", "learned"});
  const ProcessResult used = sandbox.plan(
      "predict --model 7b --gpus 8 --tp 8 --framework nanotron --calibration "
      "fits/hopper-nanotron.json --json");
  REQUIRE(used.exit_code == 0);
  CHECK(document(used)["kind"] == "calibrated");

  CHECK(sandbox.plan("fit runs.csv").out.find("median error, in fold") != std::string::npos);
  CHECK(sandbox.plan("fit runs.csv -o no/such/folder").exit_code == 3);
  sandbox.write("few.csv", table_of_runs().substr(0, table_of_runs().find("r3,")));
  const ProcessResult few = sandbox.plan("fit few.csv");
  CHECK(few.exit_code == 1);
  CHECK(few.out.find("Nothing to fit") != std::string::npos);
}

TEST_CASE("cross-validation judges each row by a fit that has not seen it") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", table_of_runs());
  const ProcessResult judged = sandbox.plan("validate runs.csv --cross-validate 4 --page page.md");
  REQUIRE(judged.exit_code == 0);
  CHECK(slurp(sandbox.file("page.md")).find("out of fold, mean / median") != std::string::npos);
  CHECK(lacks(sandbox.plan("validate runs.csv --cross-validate 1").err, "--cross-validate") == "");
  CHECK(sandbox.plan("validate runs.csv --cross-validate 1").exit_code == 2);
  CHECK(lacks(sandbox.plan("validate runs.csv --cross-validate 4 --calibration runs.csv").err,
              "calibration") == "");
  CHECK(lacks(sandbox.plan("validate runs.csv --ablation").err, "--cross-validate") == "");
  CHECK(sandbox.plan("validate runs.csv --ablation").exit_code == 2);
  const ProcessResult terms =
      sandbox.plan("validate runs.csv --cross-validate 2 --ablation --page terms.md");
  REQUIRE(terms.exit_code == 0);
  CHECK(slurp(sandbox.file("terms.md")).find("| host floor (") != std::string::npos);
  CHECK(terms.out.find("host floor") != std::string::npos);
}

TEST_CASE("a validation above its error limit exits with 1") {
  const Sandbox sandbox;
  sandbox.write(
      "runs.csv",
      "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,"
      "seq,gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,microbatch,"
      "global_batch,recompute,precision,step_seconds\n"
      "r1,here,A,ok,nanotron,tiny,16,2048,8192,16,16,50000,2048,1,0,mha,H100-SXM5-80GB,8,8,2,"
      "1,4,1,32,none,bf16,1000\n");
  CHECK(sandbox.plan("validate runs.csv --max-error 0.1").exit_code == 1);
  CHECK(sandbox.plan("validate runs.csv --max-error 999").exit_code == 0);
  CHECK(sandbox.plan("validate runs.csv").exit_code == 0);
  CHECK(lacks(sandbox.plan("validate runs.csv --where nosuch=1").err, "--where") == "");
  CHECK(sandbox.plan("validate runs.csv --where nosuch=1").exit_code == 2);
}
