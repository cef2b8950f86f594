// A configuration as keys and values with their lines, whatever syntax it was written in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// A scalar, or a list of values.
struct ConfigValue {
  std::string text;        ///< of a scalar: "4", "true", "bf16"
  bool is_string = false;  ///< written in quotes: "2" where 2 would be a number
  bool is_list = false;
  std::vector<ConfigValue> items{};  ///< of a list
  std::string unresolved{};          ///< name of a variable that the file leaves unset

  /// The scalar, or the items of a list joined by commas, nested lists by bars.
  [[nodiscard]] std::string joined() const;
  /// The scalar, or the first item: options of a command line may have several values.
  [[nodiscard]] const ConfigValue& first() const;
};
[[nodiscard]] ConfigValue scalar(std::string text);
[[nodiscard]] ConfigValue quoted(std::string text);
/// Of "[a, 'b']": items without quotes; brackets inside of it are not read.
[[nodiscard]] ConfigValue list_in_brackets(std::string_view text);

/// Keys are paths: "parallelism.tensor_parallel_degree", or the option of a command line without
/// its dashes and with - for _: "tensor-model-parallel-size".
struct ConfigEntry {
  std::string key;
  ConfigValue value;
  int line = 0;           ///< from 1; 0: unknown
  std::string file{};     ///< of several that were read as one; "": the document's name
  std::string spelled{};  ///< the key in the file, where a format has several for one setting
};

/// A word of the command that another command prints: `$(cat more.txt)`. It may be any options.
struct OpenWord {
  int line = 0;
  std::string option{};  ///< key of the option before it; "": none
  bool is_value = true;  ///< that option had no value yet, and has this one if it takes any
  std::string file{};
};

struct ConfigDocument {
  std::string name;  ///< of the file, for messages
  std::vector<ConfigEntry> entries;
  std::string program{};               ///< of a command line, without its folder: "pretrain_gpt.py"
  std::vector<OpenWord> open_words{};  ///< of a command line

  /// The last entry with this key: in all formats it wins. Null if there is none.
  [[nodiscard]] const ConfigEntry* find(std::string_view key) const;
  /// Adds the entry, or replaces the value of the one there is.
  void set(std::string_view key, ConfigValue value);
  /// "train.sh line 12", "config.json at /a/b".
  [[nodiscard]] std::string place(const ConfigEntry& entry) const;
};

enum class ConfigSyntax {
  arguments,  ///< a shell script, or the arguments themselves: --name value, section.name=value
  toml,
  yaml,
  json,
  python,  ///< a function that sets the options of a configuration
};
/// Of a file's name: "toml"; "sh" for arguments.
[[nodiscard]] std::string_view extension_of(ConfigSyntax syntax);

/// Longest configuration that is read.
inline constexpr std::size_t kLongestConfig = 4 << 20;
/// Most levels of nesting, and most values, aliases counted as often as they are used.
inline constexpr int kDeepestConfig = 64;
inline constexpr std::size_t kMostConfigValues = 100'000;

/// Errors have the line: not the syntax, too long, too deep, too many values.
[[nodiscard]] Result<ConfigDocument> read_config(ConfigSyntax syntax, std::string_view text,
                                                 std::string_view where);
[[nodiscard]] Result<ConfigDocument> read_toml(std::string_view text, std::string_view where);
/// References of OmegaConf (`${variables.x}`) are replaced by what they name.
[[nodiscard]] Result<ConfigDocument> read_yaml(std::string_view text, std::string_view where);
[[nodiscard]] Result<ConfigDocument> read_json_config(std::string_view text,
                                                      std::string_view where);
/// Assignments to sections of what a function of a config_registry returns; the function is the
/// key "import". The text is parsed, not executed.
[[nodiscard]] Result<ConfigDocument> read_python(std::string_view text, std::string_view where);
/// Of a shell script: the options of the command that has most of them. Variables, arrays and sums
/// of the script are replaced; nothing is executed. Options of Slurm (#SBATCH) are keys with
/// "sbatch." before them.
[[nodiscard]] Result<ConfigDocument> read_script(std::string_view text, std::string_view where);
/// Whether the text has arguments as Megatron-LM prints them: "  key ....... value".
[[nodiscard]] bool has_argument_dump(std::string_view text);
/// The arguments of such lines as options; those of a restart replace them. What is None or False
/// counts as not given, and what comes after kMostConfigValues is left out.
class ArgumentDump {
 public:
  void take(std::string_view line, int number);
  [[nodiscard]] const ConfigDocument& document() const { return document_; }

 private:
  ConfigDocument document_;
  bool ended_ = false;
};
/// Words of the line above such arguments.
inline constexpr std::string_view kArgumentsBegin = "- arguments -";
/// Of such a text, alone or at the beginning of a log.
[[nodiscard]] Result<ConfigDocument> read_argument_dump(std::string_view text,
                                                        std::string_view where);

/// The text of a file; `comments` come first, where the syntax has comments. Options of a command
/// line are one on each line, each ended by a blank and a backslash but the last.
[[nodiscard]] std::string write_config(ConfigSyntax syntax, const ConfigDocument& document,
                                       const std::vector<std::string>& comments);
[[nodiscard]] std::string write_toml(const ConfigDocument& document);
[[nodiscard]] std::string write_yaml(const ConfigDocument& document);
[[nodiscard]] std::string write_json_config(const ConfigDocument& document);
/// A module with one function, plan().
[[nodiscard]] std::string write_python(const ConfigDocument& document);
[[nodiscard]] std::string write_arguments(const ConfigDocument& document);

}  // namespace echelon
