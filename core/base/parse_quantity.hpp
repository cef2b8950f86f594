// Numbers as users write them: 7b, 64k, 4Mi, 80GiB, 400Gbps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// A whole number ≥ `min`: "64", "64k" (10^3), "7b" (10^9), "4Mi" (2^20), "1e12". Errors name
/// `where`: not a number, not whole, below `min`, too large for 63 bits.
[[nodiscard]] Result<std::int64_t> parse_count(std::string_view text, std::string_view where,
                                               std::int64_t min = 1);
/// The same, limited to the range of int.
[[nodiscard]] Result<int> parse_int(std::string_view text, std::string_view where, int min = 1);
/// "80GiB", "80GB", "512Mi" (bytes); a bare number is bytes.
[[nodiscard]] Result<Bytes> parse_bytes(std::string_view text, std::string_view where);
/// "400Gbps" (bits), "50GB/s" or "50GBps" (bytes).
[[nodiscard]] Result<BytesPerSecond> parse_bandwidth(std::string_view text, std::string_view where);
/// A finite number in [low, high].
[[nodiscard]] Result<double> parse_ratio(std::string_view text, std::string_view where, double low,
                                         double high);

/// For messages and tables: "6.74 B", "1.02 k". Three significant digits.
[[nodiscard]] std::string human_count(double value);

}  // namespace echelon
