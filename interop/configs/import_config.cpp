// Recognizes a configuration's format, reads it, and says what is missing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"
#include "interop/configs/unread_files.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// Edits between two words, no more than `most` + 1.
std::size_t distance(std::string_view a, std::string_view b, std::size_t most) {
  if (a.size() > b.size() + most || b.size() > a.size() + most) return most + 1;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

/// A setting one or two letters away from one that is read: without the error, its default would
/// be taken in silence.
Status check_spelling(const ConfigFormat& format, const ConfigDocument& document) {
  constexpr std::size_t kMostEdits = 2;
  constexpr std::size_t kShortest = 12;
  const std::set<std::string_view> keys = keys_of(format);
  std::set<std::string_view> known = keys;
  for (const UnpricedSetting& each : format.unpriced) known.insert(each.key);
  for (const RefusedSetting& each : format.refused) known.insert(each.key);
  for (const ConfigEntry& entry : document.entries) {
    if (entry.key.size() < kShortest || known.contains(entry.key)) continue;
    for (const std::string_view key : keys) {
      // Numbered or negated neighbours are settings of their own.
      if (distance(entry.key, key, kMostEdits) > kMostEdits || document.find(key) != nullptr) {
        continue;
      }
      return input_error(document.place(entry), "unknown setting " + in_quotes(entry.key),
                         fmt::format("a setting of {}", format.title),
                         "did you mean " + in_quotes(key) + "?");
    }
  }
  return Done{};
}

/// Settings that stand for other values of the row, and for none of the one that was read:
/// --optimizer muon of a precision with Adam.
void add_settings_of_others(const ConfigReading& reading, const ConfigRow& row,
                            std::string_view value, std::vector<std::string>& out) {
  if (row.field != ConfigField{&RunConfig::precision}) return;
  std::set<std::string_view> told;
  const auto has = [&](const ConfigCase& each, std::string_view key) {
    return each.value == value && std::ranges::any_of(each.settings, [&](const ConfigSetting& own) {
             return own.key == key;
           });
  };
  for (const ConfigCase& each : row.cases) {
    for (const ConfigSetting& setting : each.settings) {
      const ConfigEntry* entry = reading.find(setting.key);
      if (entry == nullptr || setting.only_written) continue;
      const std::string text = lower_case(entry->value.joined());
      const bool stands_for_it =
          setting.value == "*" ? each.settings.size() > 1 : same_word(text, setting.value);
      if (!stands_for_it || !told.insert(setting.key).second) continue;
      const bool own =
          std::ranges::any_of(row.cases, [&](const ConfigCase& c) { return has(c, setting.key); });
      if (own) continue;
      out.push_back(fmt::format("{} = {}, which {} {} has not", reading.place(*entry),
                                printable(text), label_of(row.field), value));
    }
  }
}

/// What the framework runs otherwise than the value that was read from its setting.
void add_difference(const ConfigReading& reading, const ConfigCase& read,
                    std::vector<std::string>& out) {
  const ConfigEntry* entry =
      read.settings.empty() ? nullptr : reading.find(read.settings.front().key);
  if (read.differs.empty() || entry == nullptr) return;
  out.push_back(fmt::format("{} = {}, which {}; priced is {}", reading.place(*entry),
                            printable(entry->value.joined()), read.differs, read.value));
}

/// Settings that the value read from them stands for with another value: --fp8-recipe tensorwise
/// of a precision with delayed scaling.
void add_other_settings(const ConfigReading& reading, std::vector<std::string>& out) {
  for (const ConfigRow& row : reading.format.rows) {
    // A reader of its own has its reasons for another value.
    const bool own = row.write != nullptr || row.read != nullptr;
    if (row.cases.empty() || own || !reading.knows(row.field)) continue;
    const auto written =
        std::ranges::find(row.cases, text_of(row.field, reading.config), &ConfigCase::value);
    if (written == row.cases.end()) continue;
    add_settings_of_others(reading, row, written->value, out);
    add_difference(reading, *written, out);
    for (const ConfigSetting& setting : written->settings) {
      const ConfigEntry* entry = reading.find(setting.key);
      if (entry == nullptr || setting.value == "*" || setting.only_written) continue;
      const std::string text = lower_case(entry->value.joined());
      if (same_word(text, setting.value) || setting.value == "true") continue;
      out.push_back(fmt::format("{} = {}, but {}, of {} {}", reading.place(*entry), printable(text),
                                setting.value, label_of(row.field), written->value));
    }
  }
}

void add_unpriced(const ConfigReading& reading, ImportedConfig& imported) {
  std::vector<std::string>& out = imported.unpriced;
  add_other_settings(reading, out);
  for (const UnpricedSetting& each : reading.format.unpriced) {
    const ConfigEntry* entry = reading.find(each.key);
    if (!each.priced_with.empty()) {
      if (entry != nullptr && lower_case(entry->value.joined()) == "true") continue;
      out.push_back(fmt::format("{}: priced are {}",
                                entry == nullptr ? std::string(each.key) + " is not set"
                                                 : reading.place(*entry) + " = false",
                                each.priced_with));
      continue;
    }
    if (entry == nullptr) continue;
    const std::string text = lower_case(entry->value.joined());
    if (text == "false" || text == "no" || (!each.unless.empty() && text == each.unless)) continue;
    out.push_back(fmt::format("{} = {}", reading.place(*entry), printable(text)));
    if (!each.saves.empty()) imported.unpriced_savings.emplace_back(each.saves);
  }
  add_unused_bucket(reading, out);
  if (reading.format.also_unpriced != nullptr) reading.format.also_unpriced(reading, out);
}

/// The settings that no row reads, but for those without a price.
void add_unread(const ConfigReading& reading, ImportedConfig& imported) {
  const std::set<std::string_view> keys = keys_of(reading.format);
  for (const ConfigEntry& entry : reading.document.entries) {
    const std::string place = reading.place(entry) + " ";
    const auto names = [&](const std::string& each) { return each.starts_with(place); };
    if (keys.contains(entry.key) || std::ranges::any_of(imported.unpriced, names)) continue;
    imported.unread.push_back(reading.place(entry));
  }
}

/// Shapes without a vocabulary, or without any: found in the catalog, or asked for.
void complete_model(ConfigReading& reading) {
  ModelSpec& model = reading.config.model;
  const bool shaped = model.layers > 0 && model.hidden > 0 && model.heads > 0;
  if (!shaped) {
    if (!reading.knows(&RunConfig::model_name) || model.layers == 0) {
      const ConfigRow* row = row_of(reading.format, &RunConfig::model_name);
      const ConfigEntry* named = row != nullptr ? reading.find(row->keys) : nullptr;
      reading.asks.push_back(
          named == nullptr
              ? "--model: the file does not describe the model"
              : fmt::format("--model: {} names {}, which is not in the catalog: its "
                            "config.json, or the folder that holds it",
                            reading.place(*named), printable(named->value.first().text)));
    }
    return;
  }
  const auto base = std::ranges::find(reading.findings, ConfigField{&RotaryEmbedding::theta},
                                      &ConfigFinding::field);
  const bool stated = base != reading.findings.end() && base->origin == Origin::found;
  std::vector<std::string> names = catalog_names_of(model, model.vocab == 0);
  if (names.size() > 1 && stated && model.constants) {
    names = catalog_names_of(model, model.vocab == 0, model.constants->rope.theta);
  }
  const std::string name = names.size() == 1 ? names.front() : "";
  if (model.vocab == 0) {
    const Result<ModelSpec> known = load_model(name);
    if (name.empty() || !known) {
      reading.asks.push_back(fmt::format(
          "--model: the file does not state the vocabulary, and {} of the catalog {} these shapes",
          names.empty() ? "no model" : fmt::format("{}", fmt::join(names, " and ")),
          names.empty() ? "has" : "have"));
      return;
    }
    model.vocab = known->vocab;
    reading.findings.push_back({&ModelSpec::vocab, Origin::assumed, std::to_string(known->vocab),
                                "the catalog's " + name + ", which has these shapes"});
  }
  if (model.name.empty()) model.name = name.empty() ? "imported" : name;
  if (model.architecture.empty()) model.architecture = "imported";
  if (model.source.empty()) model.source = reading.document.name;
  if (reading.config.model_name.empty()) reading.config.model_name = name;
}

/// Parts of the model that would be left out in silence.
void ask_for_unread_parts(ConfigReading& reading) {
  for (const UnreadPart& part : reading.format.unread_parts) {
    for (const ConfigEntry& entry : reading.document.entries) {
      const bool within = entry.key.starts_with(part.key) && entry.key.size() > part.key.size() &&
                          entry.key[part.key.size()] == '.';
      if ((entry.key != part.key && !within) || reading.find(entry.key) == nullptr) continue;
      reading.asks.push_back(fmt::format("--model: {} has {}, which are not read from {}'s files",
                                         reading.place(entry), part.what, reading.format.title));
      return;
    }
  }
}

/// Without the other file, defaults would be taken for what it states.
void ask_for_other_file(ConfigReading& reading) {
  const ConfigEntry* entry = names_other_file(reading);
  if (entry == nullptr || reading.knows(plan_part<&P::zero>)) return;
  reading.asks.push_back(
      fmt::format("--zero: {} names {}, which states the ZeRO stage and is neither in this folder, "
                  "nor in the file's, nor in one above: plan import takes both files",
                  reading.place(*entry), printable(entry->value.first().text)));
}

void ask_for_flags(ConfigReading& reading) {
  std::set<std::string_view> decided;
  for (const AskedSetting& each : reading.format.asked) {
    const ConfigEntry* entry = reading.find(each.key);
    if (entry == nullptr || !decided.insert(each.flag).second) continue;
    const std::string text = lower_case(entry->value.joined());
    const bool read = std::ranges::any_of(reading.findings, [&](const ConfigFinding& finding) {
      return flag_of(finding.field) == each.flag;
    });
    if (read || text == "false" || text == "no" || text == "0") continue;
    reading.asks.push_back(fmt::format("--{}: {} = {}: {}", each.flag, reading.place(*entry),
                                       printable(text), each.what));
  }
}

/// The numbers of a hybrid model come from several options, which have to agree.
Status check_hybrid(const ConfigReading& reading) {
  ModelSpec model = reading.config.model;
  if (model.layer_pattern.empty() || model.hidden == 0 || model.vocab == 0) return Done{};
  model.max_positions = std::max(1, model.max_positions);
  return check_model(model, reading.document.name);
}

void ask_for_the_rest(ConfigReading& reading) {
  const auto ask = [&](const ConfigField& field, std::string_view what) {
    const std::string flag = "--" + std::string(flag_of(field));
    const bool asked = std::ranges::any_of(
        reading.asks, [&](const std::string& each) { return each.starts_with(flag + ":"); });
    if (!reading.knows(field) && !asked) {
      reading.asks.push_back(fmt::format("{}: the file does not state {}", flag, what));
    }
  };
  ask(&RunConfig::gpus, "the number of GPUs");
  ask(&RunConfig::sequence, "the sequence length");
  const ConfigRow* precision = row_of(reading.format, &RunConfig::precision);
  const ConfigEntry* open =
      precision == nullptr ? nullptr : precision_left_open(*precision, reading);
  if (open != nullptr && !reading.knows(&RunConfig::precision)) {
    reading.asks.push_back(fmt::format(
        "--precision: {} is auto, which the trainer's arguments replace", reading.place(*open)));
  }
  ask(&RunConfig::precision, "the precision");
  ask(plan_part<&P::microbatch>, "the microbatch");
  if (reading.knows(&RunConfig::gpus) && reading.knows(plan_part<&P::microbatch>)) {
    ask(&RunConfig::global_batch, "the global batch");
  }
}

/// Of two formats the one whose files start the other's framework, or that has more settings.
bool leads(const ConfigFormat& format, std::size_t read, const ConfigFormat* other,
           std::size_t others) {
  if (other == nullptr) return true;
  if (format.marks.empty() != other->marks.empty()) return !format.marks.empty();
  return read > others;
}

/// The texts as one document, and the format that leads.
Result<ConfigDocument> merged(const std::vector<ConfigText>& texts, const GivenRun& given,
                              const ConfigFormat*& format) {
  ConfigDocument all;
  std::size_t most = 0;
  for (const ConfigText& file : texts) {
    Result<ConfigDocument> document = read_config(syntax_of(file), file.text, file.name);
    if (!document) return document.error();
    const Result<const ConfigFormat*> found = recognized(*document, given);
    if (!found) return found.error();
    const std::size_t read = keys_read(**found, *document);
    if (leads(**found, read, format, most)) {
      format = *found;
      most = read;
    }
    all.name += (all.name.empty() ? "" : ", ") + document->name;
    if (!document->program.empty()) all.program = document->program;
    for (ConfigEntry& entry : document->entries) entry.file = document->name;
    for (OpenWord& word : document->open_words) word.file = document->name;
    all.open_words.insert(all.open_words.end(), document->open_words.begin(),
                          document->open_words.end());
    all.entries.insert(all.entries.end(), document->entries.begin(), document->entries.end());
  }
  // "auto" of one file is what another states.
  const auto is_auto = [](const ConfigEntry& entry) { return entry.value.text == "auto"; };
  std::set<std::string> stated;
  for (const ConfigEntry& entry : all.entries) {
    if (!is_auto(entry)) stated.insert(entry.key);
  }
  std::erase_if(all.entries, [&](const ConfigEntry& entry) {
    return is_auto(entry) && stated.contains(entry.key);
  });
  if (format == nullptr) return input_error("plan import", "no file", "a configuration");
  return all;
}

}  // namespace

Result<std::optional<ModelSpec>> model_of_megatron(const ConfigDocument& options) {
  ConfigFormat format = megatron_lm_format();
  std::erase_if(format.rows, [](const ConfigRow& row) { return !is_of_model(row.field); });
  Result<ConfigReading> reading = read_rows(format, options, {});
  if (!reading) return reading.error();
  complete_model(*reading);
  if (!reading->asks.empty()) return std::optional<ModelSpec>{};
  if (Status sound = check_hybrid(*reading); !sound) return sound.error();
  return std::optional(std::move(reading->config.model));
}

Result<ImportedConfig> import_config(const std::vector<ConfigText>& texts, const GivenRun& given) {
  const ConfigFormat* format = nullptr;
  Result<ConfigDocument> read = merged(texts, given, format);
  if (!read) return read.error();
  ConfigDocument& all = *read;
  if (format->unspell != nullptr) format->unspell(all);
  for (const UnreadProgram& program : format->unread_programs) {
    if (all.program.find(program.name) == std::string::npos) continue;
    return input_error(all.name, fmt::format("{}, which {}", all.program, program.what),
                       fmt::format("a script of {}, which trains a decoder", format->program));
  }
  if (Status priced = check_refused(*format, all); !priced) return priced.error();
  if (Status spelled = check_spelling(*format, all); !spelled) return spelled.error();
  const std::vector<OpenWord> open = open_arguments(*format, all);
  Result<ConfigReading> reading = read_rows(*format, all, given);
  if (!reading) return reading.error();
  if (!open.empty()) leave_open(open.front(), *reading);
  complete_model(*reading);
  if (!given.model) ask_for_unread_parts(*reading);
  ask_for_other_file(*reading);
  ask_for_flags(*reading);
  if (Status sound = check_hybrid(*reading); !sound) return sound.error();
  ask_for_the_rest(*reading);
  ImportedConfig out{format};
  out.settings = all.entries.size();
  out.read = keys_read(*format, all);
  add_unpriced(*reading, out);
  add_unread(*reading, out);
  out.config = std::move(reading->config);
  out.findings = std::move(reading->findings);
  out.asks = std::move(reading->asks);
  return out;
}

}  // namespace echelon
