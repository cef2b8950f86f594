// Arguments as Megatron-LM prints them before it trains: "  key ....... value".
#include <algorithm>
#include <array>
#include <optional>

#include "core/base/text.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

namespace {

constexpr std::string_view kEnd = "- end of arguments -";
/// Dots fill the key up to so many characters; longer keys have none.
/// Source: Megatron-LM core_v0.4.0 and core_v0.16.1, megatron/training/arguments.py, _print_args.
constexpr std::size_t kFilledTo = 48;

/// Variables that are not called as their options are; "*": any value.
struct DumpedName {
  std::string_view key, value, option, meaning;
};
constexpr std::array kDumpedNames = {
    DumpedName{"add_bias_linear", "False", "disable-bias-linear", "true"},
    DumpedName{"overlap_p2p_comm", "False", "no-overlap-p2p-communication", "true"},
    DumpedName{"virtual_pipeline_model_parallel_size", "*", "num-virtual-stages-per-pipeline-rank",
               ""},
    DumpedName{"use_mamba_mem_eff_path", "False", "disable-mamba-mem-eff-path", "true"},
    DumpedName{"fp8", "*", "fp8-format", ""},
    DumpedName{"fp4", "*", "fp4-format", ""},
    DumpedName{"layernorm_epsilon", "*", "norm-epsilon", ""},
    DumpedName{"layernorm_zero_centered_gamma", "True", "apply-layernorm-1p", "true"},
    DumpedName{"yarn_correction_range_round_to_int", "False",
               "no-yarn-correction-range-round-to-int", "true"},
};

bool in_dumped_name(char c) {
  return (lower_case(c) >= 'a' && lower_case(c) <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

struct DumpedArgument {
  std::string_view key, value;
};

/// Searched for behind whatever a launcher printed in front of it.
std::optional<DumpedArgument> argument_in(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t begin = line.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    const std::size_t next = line.find_first_not_of(' ', end);
    at = end;
    if (next == std::string_view::npos || !std::ranges::all_of(word, in_dumped_name)) continue;
    const std::size_t dots = std::min(line.find_first_not_of('.', next), line.size());
    if (dots > next && dots < line.size() && line[dots] == ' ') {
      return DumpedArgument{word, line.substr(line.find_first_not_of(' ', dots))};
    }
    if (word.size() >= kFilledTo && next > end + 1) return DumpedArgument{word, line.substr(next)};
  }
  return std::nullopt;
}

/// As an option of a command line has it: "torch.bfloat16" is bf16, "AttnBackend.flash" flash.
ConfigValue dumped_value(std::string_view text) {
  if (text.starts_with('[')) return list_in_brackets(text);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes = {
      {{"True", "true"},
       {"torch.bfloat16", "bf16"},
       {"torch.float16", "fp16"},
       {"torch.float32", "fp32"}}};
  for (const auto& [printed, option] : kTypes) {
    if (text == printed) return scalar(std::string(option));
  }
  constexpr std::string_view kBackend = "AttnBackend.";
  if (text.starts_with(kBackend)) text.remove_prefix(kBackend.size());
  return scalar(std::string(text));
}

void add_argument(const DumpedArgument& argument, int line, ConfigDocument& document) {
  const auto named = std::ranges::find_if(kDumpedNames, [&](const DumpedName& each) {
    return each.key == argument.key && (each.value == "*" || each.value == argument.value);
  });
  const bool renamed = named != kDumpedNames.end();
  if (renamed && !named->meaning.empty()) {
    document.entries.push_back(
        {std::string(named->option), scalar(std::string(named->meaning)), line});
    return;
  }
  const std::string_view value = argument.value;
  if (value == "None" || value == "False" || value == "[]") return;
  std::string key(renamed ? named->option : argument.key);
  std::ranges::replace(key, '_', '-');
  document.entries.push_back({std::move(key), dumped_value(value), line});
}

}  // namespace

bool has_argument_dump(std::string_view text) {
  constexpr int kFewest = 5;
  int found = 0;
  while (!text.empty() && found < kFewest) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find(" ...") != std::string_view::npos && argument_in(line)) ++found;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found == kFewest;
}

void ArgumentDump::take(std::string_view line, int number) {
  if (line.find(kEnd) != std::string_view::npos) {
    ended_ = true;
  } else if (line.find(kArgumentsBegin) != std::string_view::npos) {
    if (ended_) document_.entries.clear();  // the arguments of a restart
    ended_ = false;
  } else if (!ended_ && document_.entries.size() <= kMostConfigValues) {
    if (const auto argument = argument_in(line)) add_argument(*argument, number, document_);
  }
}

Result<ConfigDocument> read_argument_dump(std::string_view text, std::string_view where) {
  ArgumentDump dump;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    dump.take(text.substr(0, end), line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  ConfigDocument document = dump.document();
  document.name = where;
  if (document.entries.size() > kMostConfigValues) {
    return input_error(document.name, "very many arguments", "those of one run");
  }
  return document;
}

}  // namespace echelon
