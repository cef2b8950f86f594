#include "evaluation/release_calibrations.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "costmodel/calibration/calibration_io.hpp"

namespace echelon {

namespace fs = std::filesystem;

Result<std::vector<Calibration>> load_release_calibrations(const std::string& folder) {
  constexpr const char* kExpected = "a folder of calibrations, NAME.json each";
  std::error_code failed;
  std::vector<fs::path> files;
  for (fs::directory_iterator each(folder, failed), end; !failed && each != end;
       each.increment(failed)) {
    if (each->path().extension() == ".json") files.push_back(each->path());
  }
  if (failed) return input_error(folder, failed.message(), kExpected);
  if (files.empty()) {
    return input_error(folder, "a folder without a .json file", kExpected,
                       "scripts/calibrations.sh fits those of tests/validation/calibrations");
  }
  std::ranges::sort(files);
  std::vector<Calibration> out;
  for (const fs::path& file : files) {
    Result<Calibration> one = load_calibration(file.string());
    if (!one) return one.error();
    if (one->name != file.stem().string()) {
      return input_error(file.string(), "the calibration " + in_quotes(one->name),
                         "a file named after its calibration",
                         "rename it to " + one->name + ".json");
    }
    out.push_back(*std::move(one));
  }
  return out;
}

std::string release_calibrations_next_to(const std::string& table) {
  const fs::path folder = fs::path(table).parent_path() / "calibrations";
  std::error_code ignored;
  return fs::is_directory(folder, ignored) ? folder.string() : "";
}

}  // namespace echelon
