// Rows of software, GPUs and models without a fit are predicted and marked as such.
#include <cmath>
#include <string>

#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/validate.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

constexpr std::string_view kHeader =
    "comment,step_seconds,global_batch,microbatch,dp,pp,tp,gpus,gpu,seq,vocab,heads,ffn_hidden,"
    "hidden,layers,model,stack,row_id\n";  // its own order, one column of its own, few optional
                                           // ones

/// One row of such a table, predicted. `gpu` and `stack` are the names used in the table.
ValidatedRow unseen(const std::string& gpu, const std::string& framework) {
  const std::string csv = std::string(kHeader) + "x,2.5,64,1,4,1,2,8," + gpu +
                          ",4096,64000,40,20480,5120,40,a model of 2031," + framework + ",r1\n";
  const auto rows = parse_runs(csv, "a table");
  REQUIRE(rows.ok());
  const auto report = validate(*rows);
  REQUIRE(report.ok());
  return report->rows.at(0);
}

double band(const ValidatedRow& row) { return row.high / *row.predicted_step - 1; }

TEST_CASE("unknown software is predicted with the nearest calibration, which is named") {
  const ValidatedRow row = unseen("H100-SXM5-80GB", "trainer-of-2031");
  REQUIRE(row.predicted_step.has_value());
  CHECK(row.time_error.has_value());
  CHECK(row.nearest.find(row.calibration) != std::string::npos);
  CHECK(row.nearest.find("trainer-of-2031") != std::string::npos);
  CHECK(row.inferred_what.find("unknown software") != std::string::npos);
}

TEST_CASE("the band is wider for unknown software") {
  const ValidatedRow row = unseen("H100-SXM5-80GB", "trainer-of-2031");
  const auto used = shipped_calibration(row.calibration);
  REQUIRE(used.has_value());
  CHECK(band(row) == Approx(std::hypot(used->time_band, 0.2)));
}

TEST_CASE("a GPU of the catalog without runs to fit to is predicted, and that is said") {
  for (const std::string gpu : {"MI355X", "AMD Instinct MI250X", "VR200", "MI455X", "L40S", "T4"}) {
    INFO(gpu);
    const ValidatedRow row = unseen(gpu, "megatron-core");
    if (gpu == "T4") {  // no bf16: a reason, not a crash
      CHECK(row.skipped.find("units") != std::string::npos);
      continue;
    }
    REQUIRE(row.predicted_step.has_value());
    CHECK_FALSE(row.nearest.empty());
  }
}

TEST_CASE("the band is wider for a GPU without a fit") {
  const ValidatedRow row = unseen("MI355X", "megatron-core");
  CHECK(row.calibration == "cdna4");
  CHECK(band(row) > 1.1 * shipped_calibration("generic")->time_band);
  CHECK(band(row) > 1.1 * band(unseen("H100", "nemo")));
}

TEST_CASE("a row with its own calibration names no nearest one") {
  CHECK(unseen("H100-SXM5-80GB", "nanotron").nearest.empty());
}

TEST_CASE("a row with an unknown GPU is skipped with its name") {
  CHECK(unseen("Z-9000", "megatron-core").skipped.find("unknown GPU 'Z-9000'") !=
        std::string::npos);
}

}  // namespace
}  // namespace echelon
