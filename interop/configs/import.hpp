// Configurations of other frameworks, read: what they state, what follows, what must be asked.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interop/configs/format.hpp"

namespace echelon {

/// What the user says besides the files; it takes the place of what they say.
struct GivenRun {
  std::optional<ModelSpec> model{};
  std::optional<int> gpus{};
  std::optional<int> sequence{};
  std::optional<std::int64_t> global_batch{};
  std::optional<int> microbatch{};  ///< from which the global batch may follow
  std::optional<int> zero{};        ///< from which defaults may
  std::string format{};             ///< name; "": recognized by its keys
  /// Where the user's own code states a field that the format leaves to it; null: it is not known.
  const RunConfig* own_code = nullptr;
};

struct ConfigText {
  std::string name;
  std::string text;
};

struct ImportedConfig {
  const ConfigFormat* format = nullptr;
  RunConfig config{};
  std::vector<ConfigFinding>
      findings{};                       ///< one for each field that is known, in the table's order
  std::vector<std::string> asks{};      ///< flags that must be given, with the reason
  std::vector<std::string> unpriced{};  ///< settings that no field describes
  std::vector<std::string> unpriced_savings{};  ///< what of them saves memory of a GPU
  std::vector<std::string> unread{};            ///< settings that no row reads, but for those
  std::size_t settings = 0;                     ///< in the files
  std::size_t read = 0;                         ///< … of which rows read so many
};

/// Reads one run from the texts, which are of one format: a script and the file it names. Errors
/// have the place: an unknown format, a value that a setting cannot have, a misspelt setting,
/// values that contradict each other.
[[nodiscard]] Result<ImportedConfig> import_config(const std::vector<ConfigText>& texts,
                                                   const GivenRun& given);

/// The file that a text names and that states a part of its run: DeepSpeed's JSON, which is read
/// together with it. Nothing where it names none, or cannot be read itself.
[[nodiscard]] std::optional<std::string> names_other_file(const ConfigText& text);

/// By the file's extension; else it is a script.
[[nodiscard]] ConfigSyntax syntax_of(const ConfigText& file);
/// The format that is given, the one whose mark the document has, or the one that reads most of it.
[[nodiscard]] Result<const ConfigFormat*> recognized(const ConfigDocument& document,
                                                     const GivenRun& given);
/// All keys that the rows of a format read, and how many entries of a document have one.
[[nodiscard]] std::set<std::string_view> keys_of(const ConfigFormat& format);
[[nodiscard]] std::size_t keys_read(const ConfigFormat& format, const ConfigDocument& document);

/// The model that Megatron-LM's options describe; nothing where they do not state all of its
/// shapes. Errors: those of import_config, of the model alone.
[[nodiscard]] Result<std::optional<ModelSpec>> model_of_megatron(const ConfigDocument& options);

/// Whether two values are one, in any case and with - or _: bf16-mixed and BF16_mixed.
[[nodiscard]] bool same_word(std::string_view a, std::string_view b);

/// The setting of a precision that is "auto", as in DeepSpeed's examples: the trainer's own
/// arguments decide. Null: there is none.
[[nodiscard]] const ConfigEntry* precision_left_open(const ConfigRow& row,
                                                     const ConfigReading& reading);

/// The value of the case whose settings the document has; of a row without them nothing.
[[nodiscard]] MaybeValue read_choice(const ConfigRow& row, const ConfigReading& reading);

/// What the row makes of the document.
[[nodiscard]] MaybeValue read_row(const ConfigRow& row, const ConfigReading& reading);

/// Words that commands print and that may be options, not values of the option before them, which
/// gets back what it had.
[[nodiscard]] std::vector<OpenWord> open_arguments(const ConfigFormat& format,
                                                   ConfigDocument& document);
/// Settings that such a word may state are asked for: all that the file does not state itself.
void leave_open(const OpenWord& word, ConfigReading& reading);

/// The rows of `format` applied to a document.
[[nodiscard]] Result<ConfigReading> read_rows(const ConfigFormat& format,
                                              const ConfigDocument& document,
                                              const GivenRun& given);

}  // namespace echelon
