#include "core/plan/module_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {

Result<std::vector<std::size_t>> parse_module_names(std::string_view text, std::string_view where,
                                                    std::span<const std::string> known,
                                                    std::string_view what) {
  std::vector<std::size_t> out;
  while (true) {
    const std::string_view name = text.substr(0, text.find(','));
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      return input_error(
          std::string(where), fmt::format("unknown module {} {}", what, in_quotes(name)),
          fmt::format("a list of {}", fmt::join(known, ", ")), did_you_mean(name, known));
    }
    out.push_back(static_cast<std::size_t>(found - known.begin()));
    if (name.size() == text.size()) return out;
    text.remove_prefix(name.size() + 1);
  }
}

}  // namespace echelon
