// JSON as Python's json module writes it: with numbers that are not finite. For *_io.cpp only.
#pragma once

#include <string>
#include <string_view>

#include "core/json/json_io.hpp"

namespace echelon {

/// parse_json, and Infinity, -Infinity and NaN outside strings are numbers of that value, as is
/// {"__float__": "Infinity"}, transformers 5's spelling (PreTrainedConfig._encode_special_floats).
/// A JsonReader asked for such a number reports it; as a key that nobody reads it does no harm.
[[nodiscard]] Result<Json> parse_python_json(std::string_view text, std::string_view where);
/// The same for a file.
[[nodiscard]] Result<Json> read_python_json(const std::string& path);

}  // namespace echelon
