// Which commands of a shell script run: its conditions, as far as they follow from its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "interop/configs/shell_words.hpp"

namespace echelon {

/// Of a condition, or of whether a command runs.
enum class Truth : std::uint8_t { no, unknown, yes };

[[nodiscard]] Truth opposite(Truth value);
[[nodiscard]] Truth both(Truth a, Truth b);
[[nodiscard]] Truth either(Truth a, Truth b);

/// Whether the words are a test: [ ... ], [[ ... ]], test ..., true, false, each also behind !.
[[nodiscard]] bool is_test(const std::vector<ShellWord>& words);
/// Its result; unknown where it depends on what the script does not set, on files, on patterns, or
/// on anything else than comparisons, -z, -n, !, &&, || and parentheses.
[[nodiscard]] Truth test_result(const std::vector<ShellWord>& words);

/// What joins a command to the next one.
enum class CommandEnd : std::uint8_t { list, and_then, or_else };

/// The branches of if, case and loops that are open, and the list of commands joined by && and ||.
class ShellBranches {
 public:
  /// Whether the next command runs.
  [[nodiscard]] Truth runs() const;
  /// Of a command without the key words before its name; empty: none, only key words.
  void command(const std::vector<ShellWord>& words, CommandEnd end);

  void open_if();
  void open_loop();
  void open_case(ShellWord subject);
  void then_branch();
  void else_branch(bool with_condition);
  void close();
  /// A case whose next words are patterns.
  [[nodiscard]] bool awaits_pattern() const;
  void pattern(const std::vector<ShellWord>& alternatives);
  void end_of_pattern();  ///< ;; behind the commands of one

 private:
  struct Block {
    enum class Kind : std::uint8_t { branches, loop, patterns };
    Kind kind{};
    Truth runs = Truth::yes;    ///< the branch that is open; of a condition that is read: yes
    Truth before = Truth::no;   ///< whether an earlier branch has run
    bool in_condition = false;  ///< between if and then
    std::optional<Truth> condition{};
    ShellWord subject{};
    bool in_pattern = false;
  };
  void open_branch(Block& block, Truth condition);

  std::vector<Block> blocks_;
  Truth list_ = Truth::yes;  ///< result of the commands joined so far
  CommandEnd joined_ = CommandEnd::list;
};

}  // namespace echelon
