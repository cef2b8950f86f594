// Numbers of a description file: {"value": 3.35, "unit": "TB/s", "source": "..."} with checked
// units. Included only by *_io.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json_io.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

enum class Dimension {
  bytes,
  bandwidth,
  compute,
  time,
  frequency,
  power,
  money_rate,
  count,
  ratio
};

/// Requirements for a number: its dimension, and its range in base units (B, B/s, FLOP/s, s, MHz,
/// W, USD/h, 1).
struct NumberRule {
  Dimension dimension;
  double min;
  double max;
};

/// The default for a number missing in a file, in the file's notation.
struct Assumed {
  double value;
  std::string_view unit;
  std::string_view why;
};

/// One object of the document and the JSON pointer to it.
struct Section {
  Section(const Json& object, const std::string& where, std::string at)
      : json(object), pointer(std::move(at)), reader(object, where, pointer) {}
  const Json& json;
  std::string pointer;
  JsonReader reader;

  [[nodiscard]] std::string at(std::string_view key) const {
    return pointer + "/" + std::string(key);
  }
};

/// One document being read: numbers with units and sources, facts in order, the first error.
class Document {
 public:
  Document(std::string where, std::string fact_prefix);

  /// Reads the table "sources": short keys for longer source texts.
  void read_sources(Section& root);
  /// A required number in base units.
  double number(Section& in, std::string_view key, NumberRule rule);
  std::optional<double> optional_number(Section& in, std::string_view key, NumberRule rule);
  double number_or(Section& in, std::string_view key, NumberRule rule, Assumed fallback);
  int count(Section& in, std::string_view key, int min, int max);
  int count_or(Section& in, std::string_view key, int min, int max, Assumed fallback);

  void keep(const Status& status);  ///< remembers the first error
  void fail(const std::string& pointer, std::string found, std::string expected,
            std::string hint = {});
  void add(Fact fact) { facts_.push_back(std::move(fact)); }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::vector<Fact> take_facts() { return std::move(facts_); }

 private:
  struct Written {
    double value = 0;
    std::string text;
    std::string unit;
    std::string source;
  };
  std::optional<Written> written(const Json& value, const std::string& at);
  double checked(const Written& written, const std::string& at, NumberRule rule);
  void record(const std::string& at, const Written& written, bool assumed);

  std::string where_;
  std::string prefix_;
  std::vector<std::pair<std::string, std::string>> sources_;
  std::vector<Fact> facts_;
  std::optional<Error> error_;
};

/// Checks "schema", the format version; an unsupported version is an error.
void check_schema(Section& root, Document& document);

/// Reads a GPU object (a catalog file, or "gpu" of a cluster file).
GpuDescription read_gpu(Document& document, const Json& object, const std::string& pointer);

}  // namespace echelon
