#include "core/run/host_list.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/base/text.hpp"

namespace echelon {
namespace {

struct HostRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::size_t width = 0;  ///< digits, with leading zeros
};

std::optional<std::int64_t> host_number(std::string_view digits) {
  constexpr std::size_t kMaxDigits = 12;
  if (digits.empty() || digits.size() > kMaxDigits) return {};
  std::int64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return {};
    number = 10 * number + (c - '0');
  }
  return number;
}

/// "08-10" or "7"
std::optional<HostRange> host_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view low = text.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : text.substr(dash + 1);
  const auto first = host_number(low);
  const auto last = host_number(high);
  if (!first || !last || *last < *first) return {};
  return HostRange{*first, *last, low.size()};
}

std::string padded(std::int64_t number, std::size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

/// Removes and returns the text up to the next comma outside brackets, and removes the comma.
std::string_view next_host_word(std::string_view& rest) {
  std::size_t end = 0;
  for (bool inside = false; end < rest.size() && (inside || rest[end] != ','); ++end) {
    if (rest[end] == '[') inside = true;
    if (rest[end] == ']') inside = false;
  }
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

class HostListReader {
 public:
  HostListReader(std::string_view list, std::string_view where, std::size_t max_hosts)
      : list_(list), where_(where), max_hosts_(max_hosts) {}

  Result<std::vector<std::string>> read() {
    std::string_view rest = list_;
    do {
      const bool more = rest.find(',') != std::string_view::npos;
      const std::string_view word = next_host_word(rest);
      if (word.empty()) return error("with an empty name");
      if (const Status ok = add(word, ""); !ok) return ok.error();
      if (more && rest.empty() && list_.back() == ',') return error("with an empty name");
    } while (!rest.empty());
    return std::move(hosts_);
  }

 private:
  Error error(const std::string& what) const {
    return input_error(std::string(where_), in_quotes(list_, 80) + ", " + what,
                       "a host list in Slurm's format, such as n[1-4,07],login");
  }

  /// Adds every name that `word` expands to, each prefixed with `before`.
  Status add(std::string_view word, const std::string& before) {
    const std::size_t open = word.find('[');
    if (open == std::string_view::npos) {
      if (word.find(']') != std::string_view::npos) return error("with a ']' but no '['");
      if (hosts_.size() == max_hosts_)
        return error("with more hosts than " + std::to_string(max_hosts_));
      hosts_.push_back(before + std::string(word));
      return Done{};
    }
    const std::size_t close = word.find(']', open);
    if (close == std::string_view::npos) return error("with a '[' but no ']'");
    const std::string prefix = before + std::string(word.substr(0, open));
    std::string_view inside = word.substr(open + 1, close - open - 1);
    do {
      const std::string_view part = inside.substr(0, inside.find(','));
      inside.remove_prefix(std::min(part.size() + 1, inside.size()));
      const auto range = host_range(part);
      if (!range) return error("where '" + std::string(part) + "' is neither a number nor a range");
      for (std::int64_t number = range->first; number <= range->last; ++number) {
        const Status ok = add(word.substr(close + 1), prefix + padded(number, range->width));
        if (!ok) return ok;
      }
    } while (!inside.empty());
    return Done{};
  }

  std::string_view list_;
  std::string_view where_;
  std::size_t max_hosts_;
  std::vector<std::string> hosts_;
};

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list, std::string_view where,
                                                  std::size_t max_hosts) {
  return HostListReader(list, where, max_hosts).read();
}

}  // namespace echelon
