#include "evaluation/release_calibrations.hpp"

#include <algorithm>
#include <string>

#include "core/base/embedded.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "evaluation/validate.hpp"
#include "tests/evaluation/releases.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

TEST_CASE("every calibration of a release can be read, and each of its rates has a source") {
  const std::vector<Calibration> all = releases();
  CHECK(all.size() > 40);
  for (const Calibration& each : all) {
    INFO(each.name);
    CHECK(each.evidence == Evidence::calibrated);
    CHECK(each.sources.size() == calibration_fields().size());
    CHECK(each.name.starts_with(each.gpu_family + "-" + each.framework + "-"));
  }
}

TEST_CASE("the program contains exactly the calibrations that planning may select") {
  for (const EmbeddedFile& file : embedded_calibrations()) {
    const Calibration each = parse_calibration(file.content, file.name).value();
    INFO(file.name);
    const std::string planned = each.gpu_family + "-" + each.framework;
    CHECK((file.name == planned || file.name == "prior-" + planned || each.framework == "any"));
  }
}

TEST_CASE("a run is predicted by the calibration of its release, or else by the planner's") {
  const auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  REQUIRE(rows.ok());
  const auto row = std::ranges::find(*rows, "N0608", &MeasuredRun::row_id);  // NeMo 25.04
  REQUIRE(row != rows->end());
  ValidationOptions options;
  CHECK(validate({*row}, options)->rows.at(0).calibration == "hopper-megatron-core");
  options.releases = releases();
  CHECK(validate({*row}, options)->rows.at(0).calibration.find("-nemo-25.04") != std::string::npos);
}

TEST_CASE("a folder without calibrations is refused, with the missing files") {
  const TempDir folder;
  const std::string path = folder.path().string();
  CHECK(load_release_calibrations(path).error().found == "a folder without a .json file");
  CHECK_FALSE(load_release_calibrations(path + "/missing").ok());
  folder.write("a.json", "{}");
  CHECK(load_release_calibrations(path).error().where.find("a.json") != std::string::npos);
  folder.write("a.json", calibration_to_json(releases().front()));
  const Error misnamed = load_release_calibrations(path).error();
  CHECK(misnamed.found.find(releases().front().name) != std::string::npos);
  CHECK(misnamed.hint.find(releases().front().name + ".json") != std::string::npos);
}

TEST_CASE("calibrations of releases are stored next to the table") {
  const TempDir folder;
  const std::string table = (folder.path() / "runs.csv").string();
  CHECK(release_calibrations_next_to(table) == "");
  folder.write("calibrations/a.json", "{}");
  CHECK(release_calibrations_next_to(table) == (folder.path() / "calibrations").string());
}

}  // namespace
}  // namespace echelon
