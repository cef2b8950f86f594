#include "planner/calibration_book.hpp"

#include <regex>
#include <utility>

#include "costmodel/calibration_io.hpp"

namespace echelon {

std::string era_of(const RunRow& row) {
  static const std::regex kRelease(R"((\d{4}-\d{2})|(\d{2}\.\d{2}))");
  std::smatch found;
  return std::regex_search(row.stack_detail, found, kRelease) ? found.str() : "";
}

std::vector<std::string> calibration_names(const GpuSpec& gpu, const Stack& stack,
                                           const RunRow& row) {
  const std::string any = std::string(gpu_family(gpu)) + "-" + stack.name;
  std::vector<std::string> names;
  if (const std::string era = era_of(row); !era.empty()) {
    names.push_back(any + "-" + row.stack + "-" + era);
  }
  names.push_back(any + "-" + row.stack);
  names.push_back(any);
  return names;
}

CalibrationBook::CalibrationBook(std::vector<Calibration> fitted) {
  fitted_.emplace();
  for (Calibration& one : fitted) {
    std::string name = one.name;
    fitted_->emplace(std::move(name), std::move(one));
  }
}

Result<Calibration> CalibrationBook::pick(const GpuSpec& gpu, const Stack& stack,
                                          const RunRow& row) const {
  for (const std::string& name : calibration_names(gpu, stack, row)) {
    if (fitted_) {
      if (const auto found = fitted_->find(name); found != fitted_->end()) return found->second;
    } else if (const auto shipped = shipped_calibration(name)) {
      return *shipped;
    }
  }
  return prior_calibration(gpu, stack);
}

}  // namespace echelon
