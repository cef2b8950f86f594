// plan fit of a table of one site's runs.
#include <cmath>
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

using Json = nlohmann::ordered_json;

const std::string kSiteColumns =
    "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq,"
    "gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,microbatch,global_batch,"
    "recompute,precision,step_seconds\n";

std::string site_row(const std::string& id, const std::string& gpu, const std::string& tp,
                     const std::string& step_seconds) {
  return id + ",here,A,ok,nanotron,tiny,16,2048,8192,16,16,50000,2048,1,0,mha," + gpu + ",8,8," +
         tp + ",1,4,1,32,none,bf16," + step_seconds + "\n";
}

const std::string kH100 = "H100-SXM5-80GB";

double predicted(const Sandbox& sandbox, const std::string& more) {
  const Json plan = document(sandbox.plan(
      "predict --model 7b --gpus 8 --tp 2 --zero 1 --framework nanotron --json " + more));
  return plan["time"]["step_seconds"].get<double>();
}

}  // namespace

TEST_CASE("plan fit refuses a step that no GPU can take, and doubts one that it cannot explain") {
  const Sandbox sandbox;
  sandbox.write("fast.csv", kSiteColumns + site_row("r1", kH100, "2", "0.05"));
  const std::string impossible = complaint(sandbox.plan("fit fast.csv"), 2);
  CHECK(lacks(impossible, "row 2 (r1)") == "");
  CHECK(lacks(impossible, "times the work that they can: 989 TFLOP/s per GPU") == "");
  sandbox.write("slow.csv", kSiteColumns + site_row("r1", kH100, "2", "6"));
  const ProcessResult milliseconds = sandbox.plan("fit slow.csv", "COLUMNS=1000");
  CHECK(milliseconds.exit_code == 0);
  CHECK(lacks(milliseconds.out, "times as slow as predicted even after the fit") == "");
  CHECK(milliseconds.out.find("No rate moved") == std::string::npos);
  const Json fit = document(sandbox.plan("fit slow.csv --json"));
  REQUIRE(fit["doubts"].size() == 1);
  CHECK(fit["doubts"][0].get<std::string>().find("row 2 (r1) is ") == 0);
}

TEST_CASE("one run is enough: plan fit writes rates, a narrower band and the next run") {
  const Sandbox sandbox;
  sandbox.write("runs.csv", kSiteColumns + site_row("r1", kH100, "2", "2.0"));
  const ProcessResult result = sandbox.plan("fit runs.csv -o mine.json --json");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Json fit = document(result);
  check_keys(fit, {"schema", "name", "prior", "fitted_to", "left_out", "doubts", "runs", "rates",
                   "prior_time_band", "time_band", "next_run"});
  CHECK(fit["prior"] == "hopper-nanotron");
  // The file is of the runs' GPUs and framework, whichever rates it started from.
  sandbox.write("megatron.json",
                slurp(std::string(ECHELON_SOURCE_DIR) +
                      "/costmodel/catalog/calibrations/hopper-megatron-core.json"));
  REQUIRE(sandbox.plan("fit runs.csv --calibration megatron.json -q -o other.json").exit_code == 0);
  const Json written = Json::parse(slurp(sandbox.file("other.json")));
  CHECK(written["gpu"] == "hopper");
  CHECK(written["framework"] == "nanotron");
  REQUIRE(fit["runs"].size() == 1);
  check_keys(fit["runs"][0], {"run", "measured_seconds", "before_seconds", "error_before",
                              "after_seconds", "error_after"});
  CHECK(fit["runs"][0]["run"] == "row 2 (r1)");
  CHECK(std::abs(fit["runs"][0]["error_after"].get<double>()) <
        std::abs(fit["runs"][0]["error_before"].get<double>()));
  CHECK(fit["rates"][0]["rate"] == "site_speed");
  check_keys(fit["next_run"], {"like", "changes", "flags", "steps", "step_seconds", "uncertainty",
                               "uncertainty_then", "commands"});
  CHECK(fit["next_run"]["steps"] == 20);
  CHECK(fit["next_run"]["changes"].get<std::string>().starts_with("--"));

  const std::string mine = " --calibration mine.json";
  CHECK(predicted(sandbox, mine) > 1.02 * predicted(sandbox, ""));  // the run was slower
  const Json plan = document(sandbox.plan(
      "predict --model 7b --gpus 8 --tp 2 --zero 1 --framework nanotron --json" + mine));
  CHECK(plan["kind"] == "calibrated");
  const std::string shown =
      sandbox.plan("predict --model 7b --gpus 8 --tp 2 --zero 1 --framework nanotron" + mine).out;
  CHECK(lacks(shown, "calibrated on 1 of your runs") == "");

  const std::string text = sandbox.plan("fit runs.csv").out;
  for (const char* part : {"row 2 (r1)", "site_speed", "Still unknown", "80 % band", "Next run",
                           "20 steps", "Nothing was written: -o FILE"}) {
    CHECK(lacks(text, part) == "");
  }
  // The written rates are a prior for later runs.
  CHECK(sandbox.plan("fit runs.csv --calibration mine.json").exit_code == 0);
}

TEST_CASE("plan fit refuses runs of several machines and rows that cannot be read") {
  const Sandbox sandbox;
  sandbox.write("mixed.csv", kSiteColumns + site_row("r1", kH100, "2", "2.0") +
                                 site_row("r2", "A100-SXM4-80GB", "2", "4.0"));
  sandbox.write("broken.csv", kSiteColumns + site_row("r1", kH100, "2", "2.0") +
                                  site_row("r2", kH100, "two", "2.0"));
  struct Case {
    const char* arguments;
    std::vector<const char*> parts;
  };
  for (const Case& each : std::vector<Case>{
           {"fit mixed.csv", {"mixed.csv, row 3 (r2)", "A100", "row 2 (r1)", "--where"}},
           {"fit broken.csv", {"broken.csv, row 3 (r2)", "tp", "two"}},
           {"fit mixed.csv --where nosuch=1", {"--where", "nosuch"}},
           {"fit mixed.csv --where gpu=H100-SXM5-80GB --calibration none.json", {"none.json"}},
           {"fit mixed.csv --catalog --where gpu=x", {"--where", "--catalog"}},
           {"fit mixed.csv --catalog --calibration x.json", {"--calibration", "--catalog"}},
           {"validate mixed.csv --first-runs 0", {"--first-runs"}},
           {"validate mixed.csv --first-runs 1,x", {"--first-runs", "x"}},
           {"validate mixed.csv --first-runs 1 --cross-validate 3", {"--first-runs"}},
           {"validate mixed.csv --first-runs 1 --leave-out gpu", {"--first-runs", "publisher"}},
       }) {
    CAPTURE(each.arguments);
    const std::string message = complaint(sandbox.plan(each.arguments), 2);
    for (const char* part : each.parts) CHECK(lacks(message, part) == "");
  }
  CHECK(sandbox.plan("fit mixed.csv --where gpu=H100-SXM5-80GB").exit_code == 0);
  sandbox.write("oom.csv", kSiteColumns + site_row("r1", kH100, "2", ""));
  const ProcessResult none = sandbox.plan("fit oom.csv");
  CHECK(none.exit_code == 1);
  CHECK(lacks(none.out, "left out: row 2 (r1): without a step time") == "");
  sandbox.write("parts.csv",
                kSiteColumns + "r1,here,A,ok,nanotron,tiny,16,2048,8192,16,16,50000,2048,1,0,mha," +
                    kH100 + ",12,8,2,1,6,1,36,none,bf16,2.0\n");
  CHECK(lacks(sandbox.plan("fit parts.csv", "COLUMNS=1000").out,
              "left out: row 2 (r1): the machine: 12; expected at most 8 or a multiple of 8") ==
        "");
  CHECK(lacks(none.out, "Nothing to fit") == "");
}

TEST_CASE("validate judges the first runs of left-out sources") {
  const Sandbox sandbox;
  std::string csv = kSiteColumns;
  for (int i = 1; i <= 10; ++i) {
    std::string one = site_row("r" + std::to_string(i), kH100, "2", std::to_string(0.3 + 0.01 * i));
    csv += one.replace(one.find("tiny"), 4, "tiny" + std::to_string(i));
  }
  sandbox.write("runs.csv", csv);
  const Json report = document(sandbox.plan("validate runs.csv --first-runs 1,3 --json"));
  const Json& means = report["first_runs"]["means"];
  REQUIRE(means.size() == 2);
  check_keys(means[0],
             {"runs", "sources", "mean_abs_error_before", "mean_abs_error_after", "share_in_band"});
  CHECK(means[1]["runs"] == 3);
  CHECK(means[1]["sources"] == 1);
  CHECK(report["first_runs"]["by_source"]["here"]["rows"] == 10);
  const std::string text = sandbox.plan("validate runs.csv --first-runs 1,3 --page page.md").out;
  CHECK(lacks(text, "after first runs of a source") == "");
  CHECK(lacks(slurp(sandbox.file("page.md")), "## After the first runs of a source") == "");
}

}  // namespace echelon::test
