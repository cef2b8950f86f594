// CheckpointGroup: those who read or write a checkpoint together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// Threads, processes, or a single one.
struct CheckpointGroup {
  int member = 0;
  int members = 1;
  /// Gives every member's text to every member, in their order; returns when every member has
  /// called it. Accesses before it happen before those after it.
  std::function<std::vector<std::string>(const std::string&)> exchange =
      [](const std::string& own) { return std::vector<std::string>{own}; };
  /// Copies from the spans' data if that is not host memory.
  std::function<void(const void* from, void* host, std::int64_t bytes)> read = {};
  /// How long a member waits for a checkpoint that the leader sees to appear on its own mount: file
  /// systems over a network keep attributes for up to a minute (nfs(5), acdirmax).
  Seconds patience{60};

  [[nodiscard]] bool leads() const { return member == 0; }
};

/// Every member calls it. Success if it was success for all; otherwise all get the error of the
/// first member that has one, with its number.
[[nodiscard]] Status agreed(const CheckpointGroup& group, const Status& own);

/// An error as a text for an exchange, "" for success.
[[nodiscard]] std::string to_text(const Status& status);
/// The first error among what the members sent.
[[nodiscard]] Status first_error(const std::vector<std::string>& texts);

}  // namespace echelon
