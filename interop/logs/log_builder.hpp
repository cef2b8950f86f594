// Builds a TrainingLog from the lines of a log.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "interop/logs/lines.hpp"
#include "interop/logs/needles.hpp"
#include "interop/logs/training_log.hpp"

namespace echelon {

/// Whether one of the words is on the line.
[[nodiscard]] bool has_any(std::string_view line, std::span<const std::string_view> words);

/// Takes every line of a log in order; memory stays below 200 MB however long the log is.
class LogBuilder {
 public:
  LogBuilder(const LogFormat& format, std::string path);
  void take(const LogLine& line);
  [[nodiscard]] TrainingLog finish();

 private:
  /// Begins a step for every step number on the line; ranks that print at once share a line.
  bool take_steps(const LogLine& line);
  void begin_step(const LogLine& line, const PatternMatch& match, std::string_view part);
  /// Keeps the open step unless another rank printed it before.
  void close_step();
  /// Ranks print a step at about the same time; a restarted run repeats it later.
  [[nodiscard]] bool is_duplicate(const LoggedStep& step) const;
  void thin();
  void take_fields(std::span<const LogField> fields, std::string_view text, const LogLine& line,
                   LoggedStep& step);
  void store(LogQuantity quantity, double value, const LogLine& line, LoggedStep& step);
  /// Figures that do not belong to a step: memory, retries.
  void store_elsewhere(LogQuantity quantity, double value, const LogLine& line,
                       std::int64_t after_step);
  static bool add_memory(LogQuantity quantity, double value, LoggedMemory& memory);
  /// Fields of one rank's memory line, and others that stand on lines of their own.
  void take_other(const LogField& field, const LogLine& line);
  /// Cumulative tokens printed between the steps: of the last step so far.
  void tokens_seen(double tokens);
  void merge(const LoggedMemory& memory);
  void take_values(const LogLine& line);
  void add_value(std::string_view name, std::string_view value, const LogLine& line,
                 std::string_view key);
  void note_version(std::string_view line);

  TrainingLog log_;
  ArgumentDump arguments_;
  Needles needles_;
  std::optional<LoggedStep> open_;  ///< its fields may follow
  LoggedStep last_;                 ///< the latest step, kept or not
  std::size_t begin_of_part_ = 0;
  bool event_ = false;
  double skipped_so_far_ = 0;
  std::int64_t last_rank_ = -1;
};

}  // namespace echelon
