#include "runtime/io/weights/checkpoint_group.hpp"

#include <array>

#include <fmt/format.h>

namespace echelon {
namespace {

constexpr char kEndOfPart = '\x1f';  // ASCII's unit separator

}  // namespace

std::string to_text(const Status& status) {
  if (status) return {};
  const Error& error = status.error();
  std::string text = error.kind == Error::Kind::input ? "i" : "e";
  for (const std::string* part : {&error.where, &error.found, &error.expected, &error.hint})
    text += *part + kEndOfPart;
  return text;
}

Status first_error(const std::vector<std::string>& texts) {
  for (std::size_t member = 0; member < texts.size(); ++member) {
    const std::string& text = texts[member];
    if (text.empty()) continue;
    std::array<std::string, 4> parts;
    std::size_t at = 1;
    for (std::string& part : parts) {
      const std::size_t end = text.find(kEndOfPart, at);
      part = text.substr(at, end - at);
      at = end + 1;
    }
    if (member > 0) parts[0] = fmt::format("rank {}: {}", member, parts[0]);
    Error error;
    error.kind = text.front() == 'i' ? Error::Kind::input : Error::Kind::environment;
    error.where = parts[0];
    error.found = parts[1];
    error.expected = parts[2];
    error.hint = parts[3];
    return error;
  }
  return Done{};
}

Status agreed(const CheckpointGroup& group, const Status& own) {
  return first_error(group.exchange(to_text(own)));
}

}  // namespace echelon
