// The JSON and the files of plan validate and plan fit.
#include <string>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::check_keys;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;
using Json = nlohmann::ordered_json;

namespace {

const std::string kColumns =
    "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq,"
    "gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,microbatch,global_batch,"
    "recompute,precision,step_seconds\n";

/// The row of a run of a tiny model on 8 GPUs.
std::string run_row(const std::string& id, const std::string& stack, const std::string& gpu,
                    const std::string& step_seconds) {
  return id + ",here,A,ok," + stack + ",tiny,16,2048,8192,16,16,50000,2048,1,0,mha," + gpu +
         ",8,8,2,1,4,1,32,none,bf16," + step_seconds + "\n";
}

/// Runs of one job on 8 GPUs of one kind, their steps growing with the microbatch.
std::string table_of_runs() {
  std::string csv = kColumns;
  for (int i = 1; i <= 8; ++i) {
    csv += "r" + std::to_string(i) + ",here,A,ok,nanotron,tiny" + std::to_string(i) +
           ",16,2048,8192,16,16,50000,2048,1,0,mha,H100-SXM5-80GB,8,8,2,1,4," + std::to_string(i) +
           "," + std::to_string(32 * i) + ",none,bf16," + std::to_string(0.9 + 0.5 * i) + "\n";
  }
  return csv;
}

}  // namespace

TEST_CASE("a validation has every key of the contract") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", kColumns + run_row("r1", "nanotron", "H100-SXM5-80GB", "1.0") +
                                run_row("r2", "nosuchstack", "X100-SXM5-80GB", "1.0"));
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
  check_keys(report["fits"],
             {"rows", "ran", "false_fits", "false_ooms", "brier", "brier_of_hard_limit", "bins"});
  REQUIRE(report["by_framework"].contains("nanotron"));
  check_keys(report["by_framework"]["nanotron"], {"memory_band", "fits"});
  check_keys(report["by_framework"]["nanotron"]["memory_band"],
             {"kind", "distribution", "bias", "spread", "source"});
  for (const Json& bin : report["fits"]["bins"]) {
    check_keys(bin, {"spare_from", "rows", "ran", "fits_probability"});
  }
  REQUIRE(report["rows"].size() == 2);
  for (const Json& row : report["rows"]) {
    check_keys(row, {"row_id", "source", "predicted_step_seconds", "measured_step_seconds",
                     "time_error", "predicted_peak_bytes", "measured_peak_bytes", "memory_error",
                     "predicted_fits", "fits_probability", "measured_fits", "skipped"});
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
}

TEST_CASE("fit writes calibrations that a prediction can use") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", table_of_runs());
  sandbox.write("fits/here", "");
  const ProcessResult fitted = sandbox.plan("fit runs.csv --catalog -o fits --json");
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

  CHECK(sandbox.plan("fit runs.csv --catalog").out.find("median error, in fold") !=
        std::string::npos);
  CHECK(sandbox.plan("fit runs.csv --catalog -o no/such/folder").exit_code == 3);
  sandbox.write("few.csv", table_of_runs().substr(0, table_of_runs().find("r3,")));
  const ProcessResult few = sandbox.plan("fit few.csv --catalog");
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

TEST_CASE("groups that are left out are judged next to the priors alone") {
  const Sandbox sandbox;
  std::string csv = table_of_runs();
  sandbox.write("runs.csv", csv);
  const ProcessResult judged = sandbox.plan("validate runs.csv --leave-out gpu --json");
  REQUIRE(judged.exit_code == 0);
  const Json report = document(judged);
  check_keys(report, {"by_left_out", "prior_time"});
  check_keys(report["by_left_out"], {"H100-SXM5-80GB"});
  CHECK(report["rows"][0]["prior_time_error"].is_number());
  CHECK(sandbox.plan("validate runs.csv --leave-out source").out.find("prior alone") !=
        std::string::npos);
  const ProcessResult wrong = sandbox.plan("validate runs.csv --leave-out gpus");
  CHECK(wrong.exit_code == 2);
  CHECK(lacks(wrong.err, "publisher, source, gpu, framework") == "");
  CHECK(sandbox.plan("validate runs.csv --leave-out gpu --cross-validate 2").exit_code == 2);
}

TEST_CASE("a validation above its error limit exits with 1") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", kColumns + run_row("r1", "nanotron", "H100-SXM5-80GB", "1000"));
  CHECK(sandbox.plan("validate runs.csv --max-error 0.1").exit_code == 1);
  CHECK(sandbox.plan("validate runs.csv --max-error 999").exit_code == 0);
  CHECK(sandbox.plan("validate runs.csv").exit_code == 0);
  CHECK(lacks(sandbox.plan("validate runs.csv --where nosuch=1").err, "--where") == "");
  CHECK(sandbox.plan("validate runs.csv --where nosuch=1").exit_code == 2);
}
