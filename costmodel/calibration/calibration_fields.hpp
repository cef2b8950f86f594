// The rates of a calibration by name, for files, fits and tables of rates.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "costmodel/calibration/calibration.hpp"

namespace echelon {

/// One rate of a calibration: its key, the unit it is written in, its range.
struct CalibrationField {
  const char* key;
  std::variant<double Calibration::*, Seconds Calibration::*, Bytes Calibration::*,
               BytesPerSecond Calibration::*>
      member;
  const char* unit;  ///< "ratio", "elements", "tokens", "us", "GB/s" or "MiB"
  double min, max;
  const char* schema1_key = nullptr;  ///< its key in calibration files of schema 1, if different

  /// Its key in files of `schema`.
  [[nodiscard]] const char* key_in(int schema) const {
    return schema == 1 && schema1_key != nullptr ? schema1_key : key;
  }
};

[[nodiscard]] std::span<const CalibrationField> calibration_fields();
/// The field of that key; the key must be one of calibration_fields().
[[nodiscard]] const CalibrationField& calibration_field(std::string_view key);

/// Value in the field's unit.
[[nodiscard]] double rate_of(const Calibration& calibration, const CalibrationField& field);
void set_rate(Calibration& calibration, const CalibrationField& field, double value);
/// Sets the source of the rate; replaces the previous one.
void set_source(Calibration& calibration, const CalibrationField& field, std::string text);

}  // namespace echelon
