// The formats of other frameworks' configurations: one table each. A row ties one field of a run
// to its spelling; export and import walk the same rows, and no other place knows an option's name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "interop/configs/document.hpp"
#include "interop/configs/run_config.hpp"

namespace echelon {

/// How a value of an imported run is known.
enum class Origin {
  found,    ///< the file states it
  derived,  ///< follows from what the file states
  assumed,  ///< the framework's default, or what its software always does
};
[[nodiscard]] std::string_view name_of(Origin origin);

struct ConfigFinding {
  ConfigField field;
  Origin origin = Origin::found;
  std::string value;
  std::string from;  ///< "train.sh line 12: --tensor-model-parallel-size", "default of nanotron"
};

struct ConfigFormat;

/// A document while the rows of its format are read one after the other: later rows see the fields
/// of earlier ones.
struct ConfigReading {
  const ConfigFormat& format;
  const ConfigDocument& document;
  RunConfig config{};
  std::vector<ConfigFinding> findings{};
  std::vector<std::string> asks{};  ///< "--gpus: the file does not state ..."

  [[nodiscard]] bool knows(const ConfigField& field) const;
  /// The entry of the first of these keys that has a value. null is none, and so are "auto", which
  /// the framework takes from elsewhere, and the mark of what a user fills in.
  [[nodiscard]] const ConfigEntry* find(const std::vector<std::string_view>& keys) const;
  [[nodiscard]] const ConfigEntry* find(std::string_view key) const;
  /// "train.sh line 12: --tensor-model-parallel-size".
  [[nodiscard]] std::string place(const ConfigEntry& entry) const;
};

/// What a row makes of a document.
struct ReadValue {
  std::string text;
  Origin origin = Origin::found;
  std::string from;
};
using MaybeValue = Result<std::optional<ReadValue>>;

struct ConfigSetting {
  std::string_view key;
  std::string_view value;  ///< "*": any, when read
  bool quoted = false;     ///< written as a string: "2"
  bool only_written = false;
  std::string_view if_any = "hybrid";  ///< what is written for "*"
  std::size_t weight = 1;  ///< of the cases that are met, the one of the largest sum is read
};

/// One value of a field and the settings that stand for it. No settings: the value where none of
/// the row's keys is given.
struct ConfigCase {
  std::string_view value;
  std::vector<ConfigSetting> settings;
  /// What the framework runs otherwise than the value is priced: "reduces gradients in fp32". It is
  /// reported, not lost.
  std::string_view differs{};
  std::string_view remedy{};  ///< when it runs as priced: "if the recipe …"
};

struct ConfigRow {
  ConfigField field;
  std::vector<std::string_view> keys{};  ///< the first is written, all are read
  std::string_view absent{};             ///< value where no key is given; "": unknown then
  std::vector<ConfigCase> cases{};       ///< of several with one value, the first is written
  void (*write)(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) = nullptr;
  MaybeValue (*read)(const ConfigRow& row, const ConfigReading& reading) = nullptr;
  /// Stated in the user's own code, not in the file: how. It cannot be read, and goes into the
  /// notes of an export, unless it is `absent`.
  std::string_view elsewhere{};
  std::string_view source{};  ///< file in the pinned version; "": the format's
};

/// A setting that a user has to fill in: it is written as a mark.
struct FillIn {
  std::string_view key;
  std::string_view what;  ///< "path of the tokenized data"
};
inline constexpr const char* kFillIn = "FILL_IN";

/// A setting that changes memory or time and that no field of a plan describes.
struct UnpricedSetting {
  std::string_view key;
  std::string_view unless = "";  ///< the value that switches it off
  /// Priced is the run with it: "compiled models". It is reported where it is off or not given.
  std::string_view priced_with = "";
  std::string_view saves = "";  ///< what of it saves memory of a GPU: "the offload of parameters"
};

/// A setting without which the plan is another one, and that a flag stands for: the flag is asked
/// for. Of several settings of one flag the first that the file has decides.
struct AskedSetting {
  std::string_view key;
  std::string_view flag;  ///< "lora"
  std::string_view what;  ///< what it means, and what to give
};

/// A remark of an export that writes the key.
struct KeyNote {
  std::string_view key;
  std::string_view note;
};

/// A setting that a recipe of the framework may have and the plan has not: it is written where no
/// row writes its key, so that the recipe's own value goes.
struct Reset {
  std::string_view key;
  std::string_view value;
};

/// A remark of all exports of one ModelSpec::architecture.
struct ModelNote {
  std::string_view architecture;
  std::string_view note;
};

/// A part of the model that no row reads: the model has to be given where a file has it.
struct UnreadPart {
  std::string_view key;  ///< or the section of such keys
  std::string_view what;
};

/// A program of the framework that trains another kind of model, or none.
struct UnreadProgram {
  std::string_view name;  ///< or a part of it
  std::string_view what;
};

/// A setting with which the run is none that is priced: the file is refused.
struct RefusedSetting {
  std::string_view key;
  std::string_view what;                    ///< that the value does: "trains a reward model"
  std::vector<std::string_view> allowed{};  ///< values that are read; {}: those that switch it off
  std::string_view unless{};                ///< a switch with which it is read
  std::string_view instead{};               ///< what takes the file's place
};

/// What a trainer of transformers' models does with adapters where a file does not say it.
struct AdapterHabits {
  bool trains_all = false;       ///< all parameters, where nothing names adapters
  bool trains_adapters = false;  ///< adapters
  int rank = 0;                  ///< 0: the file states it
  bool all_linear = false;       ///< on all linear modules; else on those of PEFT's default
  bool double_quant = false;     ///< constants of quantised weights are quantised too
  std::string_view quantizes{};  ///< the one kind of adapters that quantises; "": any
};

struct ConfigFormat {
  std::string_view name;     ///< "megatron-lm"
  std::string_view title;    ///< "Megatron-LM"
  std::string_view version;  ///< whose spellings these are, with the commit
  std::string_view source;   ///< where its options are defined
  ConfigSyntax syntax = ConfigSyntax::yaml;
  bool exported = true;                  ///< false: it is only read
  bool starts_ranks = false;             ///< its program starts the processes itself
  std::string_view program = "";         ///< of a command line: "pretrain_gpt.py"
  std::string_view hybrid_program = "";  ///< … of a model whose layers have one part each
  std::string_view usage = "";           ///< how the file is given to the framework
  /// Keys of which each makes a file one of this format; {}: the most keys decide.
  std::vector<std::string_view> marks{};
  std::vector<ConfigRow> rows{};
  std::vector<FillIn> fill_in{};
  /// Settings that name another file of the format, which states the ZeRO stage and what goes with
  /// it.
  std::vector<std::string_view> other_files{};
  std::vector<AskedSetting> asked{};
  std::vector<UnpricedSetting> unpriced{};
  std::vector<KeyNote> key_notes{};
  std::vector<Reset> resets{};
  std::vector<ModelNote> model_notes{};
  std::vector<UnreadPart> unread_parts{};
  std::vector<UnreadProgram> unread_programs{};
  std::vector<RefusedSetting> refused{};
  AdapterHabits adapters{};
  /// Options without a value that rows with functions of their own read; of others a case says so.
  std::vector<std::string_view> switches{};
  /// Adds to what is not priced: what depends on several settings, or on one that is absent.
  void (*also_unpriced)(const ConfigReading& reading, std::vector<std::string>& out) = nullptr;
  /// Beginning of the framework's remarks that are of no use to its users; "": of none.
  std::string_view useless_remarks = "";
  /// Why a value gets lost that the framework itself could run; "": it has no option for it.
  std::string (*why_lost)(const ConfigField& field, const RunConfig& config) = nullptr;

  /// From the keys of the rows to what the framework's own parser takes, and back from any of its
  /// spellings; null: they are the same.
  void (*spell)(const RunConfig& config, ConfigDocument& document) = nullptr;
  void (*unspell)(ConfigDocument& document) = nullptr;

  [[nodiscard]] std::string_view program_of(const ModelSpec& model) const {
    return model.layer_pattern.empty() || hybrid_program.empty() ? program : hybrid_program;
  }
};

/// All formats, in the order that users see.
[[nodiscard]] const std::vector<ConfigFormat>& config_formats();
[[nodiscard]] Result<const ConfigFormat*> find_config_format(std::string_view name);
/// The row of a field; null: the format has none.
[[nodiscard]] const ConfigRow* row_of(const ConfigFormat& format, const ConfigField& field);
/// The framework whose rules the format's plans keep; "" where it states none.
[[nodiscard]] std::string_view framework_of(const ConfigFormat& format);
/// The first format of a framework that plans are exported to; null: it has none.
[[nodiscard]] const ConfigFormat* format_of(std::string_view framework);
/// Whether a file states the shapes of the model, not its name alone.
[[nodiscard]] bool states_shapes(const ConfigFormat& format);

// Rows of one kind each.

/// The value itself behind a key.
[[nodiscard]] ConfigRow plain(ConfigField field, std::vector<std::string_view> keys,
                              std::string_view absent = "");
[[nodiscard]] ConfigRow choice(ConfigField field, std::vector<ConfigCase> cases);
/// Its software always has this value.
[[nodiscard]] ConfigRow fixed(ConfigField field, std::string_view value,
                              std::string_view source = "");
/// Follows from other fields: nothing is written.
[[nodiscard]] ConfigRow follows(ConfigField field,
                                MaybeValue (*read)(const ConfigRow&, const ConfigReading&));
[[nodiscard]] ConfigRow computed(ConfigField field, std::vector<std::string_view> keys,
                                 void (*write)(const ConfigRow&, const RunConfig&, ConfigDocument&),
                                 MaybeValue (*read)(const ConfigRow&, const ConfigReading&));
[[nodiscard]] ConfigRow elsewhere(ConfigField field, std::string_view how,
                                  std::vector<std::string_view> read_keys = {});

/// A field of the plan as the field of a run.
template <auto member>
inline const ConfigField plan_part = &plan_field<member>;

// The tables, one file each.
[[nodiscard]] ConfigFormat megatron_lm_format();
[[nodiscard]] ConfigFormat megatron_bridge_format();
[[nodiscard]] ConfigFormat nemo_format();
[[nodiscard]] ConfigFormat nemo1_format();
[[nodiscard]] ConfigFormat torchtitan_format();
[[nodiscard]] ConfigFormat torchtitan_main_format();
[[nodiscard]] ConfigFormat torchtitan_toml_format();
[[nodiscard]] ConfigFormat deepspeed_format();
[[nodiscard]] ConfigFormat nanotron_format();
[[nodiscard]] ConfigFormat accelerate_format();
[[nodiscard]] ConfigFormat llm_foundry_format();
[[nodiscard]] ConfigFormat llama_factory_format();
[[nodiscard]] ConfigFormat axolotl_format();

}  // namespace echelon
