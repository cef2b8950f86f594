// The only file that includes CLI11: it splits words from flags; meaning and messages are ours.
#include "cli/commands/parse_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>

#include "cli/commands/command_table.hpp"
#include "cli/flags/table.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon::cli {

namespace {

/// Planned for later versions: the error says so instead of suggesting a misspelling.
constexpr std::string_view kLaterCommand = "export";

std::string dashed(std::string_view name) { return "--" + std::string(name); }

struct Parsed {
  std::vector<std::string> words;
  std::vector<std::string> unknown;
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::map<std::string, bool, std::less<>> switches;        ///< "no-x" is a switch of its own
  std::map<std::string, std::string, std::less<>> choices;  ///< of switches: "auto"
};

/// The arguments without the choices that follow switches (--resume auto), which go to `choices`.
std::vector<std::string> without_choices(int argc, const char* const* argv,
                                         std::map<std::string, std::string, std::less<>>& choices) {
  std::vector<std::string> rest(argv + std::min(argc, 1), argv + argc);
  std::ptrdiff_t end = std::find(rest.begin(), rest.end(), "--") - rest.begin();
  for (std::ptrdiff_t at = 0; at < end; ++at) {
    const std::string given = rest[static_cast<std::size_t>(at)];
    if (!given.starts_with("--")) continue;
    const std::size_t equals = given.find('=');
    const Flag* flag = find_spelling(given.substr(2, equals - 2));
    if (flag == nullptr || !flag->value.empty() || flag->choices.empty()) continue;
    const bool next = equals == std::string::npos && at + 1 < end;
    const std::string value = equals != std::string::npos ? given.substr(equals + 1)
                              : next                      ? rest[static_cast<std::size_t>(at) + 1]
                                                          : std::string();
    const std::string list = " " + std::string(flag->choices) + " ";
    if (value.empty() || list.find(" " + value + " ") == std::string::npos) continue;
    choices[std::string(flag->name)] = value;
    rest[static_cast<std::size_t>(at)] = dashed(flag->name);
    if (!next) continue;
    rest.erase(rest.begin() + at + 1);
    --end;
  }
  return rest;
}

Result<Parsed> run_cli11(int argc, const char* const* argv) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  Parsed parsed;
  std::map<std::string, CLI::Option*> switches;
  for (const Flag& flag : flags()) {
    const std::string spelled =
        (flag.letter != 0 ? fmt::format("-{},", flag.letter) : std::string()) +
        fmt::format("--{}", fmt::join(spellings(flag), ",--"));
    if (flag.value.empty()) {
      switches[std::string(flag.name)] = app.add_flag(spelled)->disable_flag_override();
      if (flag.negatable) {
        const std::string opposite = "no-" + std::string(flag.name);
        const std::string names = fmt::format("--no-{}", fmt::join(spellings(flag), ",--no-"));
        switches[opposite] = app.add_flag(names)->disable_flag_override();
      }
    } else {
      app.add_option(spelled, parsed.values[std::string(flag.name)])->allow_extra_args(false);
    }
  }
  app.add_option("words", parsed.words);
  try {
    std::vector<std::string> words = without_choices(argc, argv, parsed.choices);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    // "--gpus: 1 required TEXT missing", "json was given a disallowed flag override"
    const std::string flag = what.substr(0, what.find_first_of(": "));
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    const Flag* known = find_spelling(name);
    if (known != nullptr && !known->value.empty()) {
      return input_error(dashed(known->name), "no value", std::string(known->value));
    }
    return input_error(dashed(name), "a value was given", "the flag alone: it is a switch");
  } catch (const CLI::ParseError& error) {
    return input_error("", error.what(), "flags and words as `plan --help` lists them");
  }
  for (const auto& [name, option] : switches) {
    if (option->count() > 0) parsed.switches[name] = true;
  }
  // CLI11 leaves "--" itself among the rest; what follows it are words.
  bool words_only = false;
  for (const std::string& rest : app.remaining()) {
    if (rest == "--")
      words_only = true;
    else if (words_only)
      parsed.words.push_back(rest);
    else
      parsed.unknown.push_back(rest);
  }
  return parsed;
}

/// What Megatron-LM, DeepSpeed, transformers and people call our flags, where the spelling alone
/// does not tell; without dashes.
struct CalledElsewhere {
  std::string_view flag;
  std::vector<std::string_view> names;
};
const std::vector<CalledElsewhere>& called_elsewhere() {
  static const std::vector<CalledElsewhere> kAll = {
      {"seq",
       {"sequence", "sequence-length", "seq-length", "seqlen", "max-seq-len", "max-seq-length",
        "max-length", "context", "context-length", "ctx"}},
      {"global-batch",
       {"batch", "batch-size", "global-batch-size", "train-batch-size", "gbs", "bs"}},
      {"microbatch",
       {"mbs", "train-micro-batch-size-per-gpu", "per-device-train-batch-size",
        "gradient-accumulation-steps", "accumulation", "ga"}},
      {"gpus", {"nodes", "num-nodes", "nnodes", "num-gpus", "ngpus", "world-size", "n-gpus"}},
      {"cluster", {"hardware", "topology", "node", "machine"}},
      {"model", {"config", "hf", "hf-config", "model-config"}},
      {"precision", {"dtype", "fp8", "bf16", "fp16", "fp32", "mxfp8", "nvfp4"}},
      {"tp", {"tensor-model-parallel-size", "tensor-parallel-size", "tensor-parallel", "tensor"}},
      {"pp",
       {"pipeline-model-parallel-size", "pipeline-parallel-size", "pipeline-parallel", "pipeline"}},
      {"vpp", {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"}},
      {"cp", {"context-parallel-size", "context-parallel", "ulysses", "ulysses-size"}},
      {"ep", {"expert-model-parallel-size", "expert-parallel-size", "expert-parallel", "ep-size"}},
      {"etp", {"expert-tensor-parallel-size", "expert-tensor-parallel"}},
      {"dp", {"data-parallel-size", "data-parallel", "dp-size"}},
      {"zero", {"fsdp", "zero-stage", "use-distributed-optimizer", "distributed-optimizer"}},
      {"recompute",
       {"recomputation", "recompute-granularity", "activation-checkpointing",
        "gradient-checkpointing", "checkpointing", "checkpoint-activations"}},
      {"offload", {"cpu-offload", "optimizer-cpu-offload"}},
      {"max-memory", {"memory"}},
  };
  return kAll;
}

/// What people ask for that no flag does; the nearest name would mislead.
struct NotPlanned {
  std::vector<std::string_view> names;
  std::string_view why;
};
const std::vector<NotPlanned>& not_planned() {
  static const std::vector<NotPlanned> kAll = {
      {{"lora-alpha", "lora-dropout", "lora-target-modules", "peft", "use-peft", "adapter",
        "finetuning-type"},
       "adapters are --lora RANK[:TARGETS]"},
      {{"qlora", "load-in-4bit", "use-4bit-quantization", "quantization-bit"},
       "QLoRA is --lora RANK --quantized-weights nf4"},
      {{"bnb-4bit-use-double-quant", "use-nested-quant", "double-quant"},
       "double quantisation is --quantized-weights nf4:double-quant, with --lora RANK"},
      {{"load-in-8bit"},
       "weights in 8 bits (LLM.int8()) have no price: in 4 bits they are --quantized-weights nf4, "
       "with --lora RANK"},
  };
  return kAll;
}

Error unknown_flag(const std::string& text) {
  std::vector<std::string> known;
  std::map<std::string, std::string, std::less<>> named;  // an alias is not offered: its flag is
  for (const Flag& flag : flags()) {
    for (const std::string& spelling : spellings(flag)) {
      known.push_back(dashed(spelling));
      named[known.back()] = dashed(flag.name);
    }
    if (flag.negatable) known.push_back("--no-" + std::string(flag.name));
  }
  std::string stem = text.substr(0, text.find('='));
  stem = dashed(stem.substr(std::min(stem.find_first_not_of('-'), stem.size())));
  std::ranges::replace(stem, '_', '-');
  for (const NotPlanned& each : not_planned()) {
    if (std::ranges::count(each.names, std::string_view(stem).substr(2)) > 0) {
      return input_error("", "unknown flag " + in_quotes(text), "", std::string(each.why));
    }
  }
  std::string nearest;
  for (const CalledElsewhere& each : called_elsewhere()) {
    if (std::ranges::count(each.names, std::string_view(stem).substr(2)) > 0)
      nearest = dashed(each.flag);
  }
  if (nearest.empty()) nearest = nearest_name(stem, known);
  if (const auto at = named.find(nearest); at != named.end()) nearest = at->second;
  std::string hint =
      nearest.empty() ? "`plan --help` lists them" : fmt::format("did you mean '{}'?", nearest);
  return input_error("", "unknown flag " + in_quotes(text), "", std::move(hint));
}

Error unknown_command(const std::string& word) {
  const std::vector<std::string> known = first_words();
  const std::string list = fmt::format("one of {}", fmt::join(known, ", "));
  if (word == kLaterCommand) {
    return input_error("", fmt::format("this version has no command '{}' yet", word), list);
  }
  std::string hint = did_you_mean(word, known);
  if (hint.empty()) hint = "a search needs no command: plan --model 7b --gpus 64";
  return input_error("", "unknown command " + in_quotes(word), list, std::move(hint));
}

/// Takes the command off the front of `words`.
Result<const Command*> take_command(std::vector<std::string>& words) {
  if (words.empty()) return find_command("search");
  const std::string first = words.front();
  if (const Command* command = find_command(first)) {
    words.erase(words.begin());
    return command;
  }
  const std::vector<std::string> known = first_words();
  if (std::find(known.begin(), known.end(), first) == known.end()) return unknown_command(first);
  // A command of two words.
  std::vector<std::string> second;
  for (const Command& command : commands()) {
    if (command.name.starts_with(first + " "))
      second.emplace_back(command.name.substr(first.size() + 1));
  }
  const std::string expected = fmt::format("one of {}", fmt::join(second, ", "));
  if (words.size() < 2) return input_error(first, "nothing after it", expected);
  if (const Command* command = find_command(first + " " + words[1])) {
    words.erase(words.begin(), words.begin() + 2);
    return command;
  }
  if (first == "topo" && words[1] == "import") {
    return input_error("", "this version has no 'topo import' yet", expected);
  }
  return input_error(first, "unknown word " + in_quotes(words[1]), expected,
                     did_you_mean(words[1], second));
}

Status check_words(const Command& command, const std::vector<std::string>& words) {
  const std::string usage = fmt::format("plan {}{}{}", command.name,
                                        command.positional.empty() ? "" : " ", command.positional);
  if (words.size() < command.least_words) {
    return input_error(
        fmt::format("plan {}", command.name),
        words.empty() ? "nothing after it" : fmt::format("only {}", in_quotes(words.back())),
        usage);
  }
  if (words.size() > command.most_words) {
    return input_error(std::string(command.name),
                       "stray word " + in_quotes(words[command.most_words]), usage,
                       "values of flags follow their flag");
  }
  return Done{};
}

/// Where a flag belongs, for one that the command does not take.
std::string place_of(const Flag& flag, const Command& command) {
  std::vector<std::string_view> names;
  for (const Command& each : commands()) {
    if (takes(each, flag)) names.push_back(each.name);
  }
  std::string place = fmt::format("it belongs to plan {}", fmt::join(names, ", plan "));
  if (flag.name == "gpu" && takes(command, *find_flag("cluster"))) {
    place += "; a cluster names its GPUs: --cluster NAME (plan topo list)";
  }
  return place;
}

Status collect_values(const Parsed& parsed, Arguments& arguments) {
  for (const auto& [name, values] : parsed.values) {
    if (values.empty()) continue;
    if (values.size() > 1) {
      return input_error(
          dashed(name),
          fmt::format("given twice ({} and {})", in_quotes(values[0]), in_quotes(values[1])),
          "one value");
    }
    const std::string& value = values.front();
    const std::string stem = value.substr(0, value.find('='));
    if (stem.starts_with("--") && find_spelling(stem.substr(2)) != nullptr) {
      return input_error(dashed(name), fmt::format("no value before {}", stem),
                         std::string(find_flag(name)->value));
    }
    arguments.flags[name] = value;
  }
  return Done{};
}

Status collect_switches(const Parsed& parsed, Arguments& arguments) {
  for (const auto& [name, given] : parsed.switches) {
    const bool negative = find_flag(name) == nullptr;  // only "no-x" is not in the table
    const std::string plain = negative ? name.substr(3) : name;
    if (negative && parsed.switches.contains(plain)) {
      return input_error(dashed(plain), "given together with " + dashed(name), "one of the two");
    }
    arguments.flags[plain] = negative ? "false" : "true";
    if (const auto choice = parsed.choices.find(plain); choice != parsed.choices.end())
      arguments.flags[plain] = choice->second;
  }
  return Done{};
}

Status check_flags(const Arguments& arguments) {
  for (const auto& [name, value] : arguments.flags) {
    const Flag& flag = *find_flag(name);
    if (takes(*arguments.command, flag)) continue;
    return input_error(dashed(name),
                       fmt::format("plan {} does not take it", arguments.command->name), "",
                       place_of(flag, *arguments.command));
  }
  return Done{};
}

}  // namespace

Result<Arguments> parse_arguments(int argc, const char* const* argv) {
  Result<Parsed> parsed = run_cli11(argc, argv);
  if (!parsed) return parsed.error();
  if (!parsed->unknown.empty()) return unknown_flag(parsed->unknown.front());

  Arguments arguments;
  arguments.words = parsed->words;
  if (const Status values = collect_values(*parsed, arguments); !values) return values.error();
  if (const Status switches = collect_switches(*parsed, arguments); !switches) {
    return switches.error();
  }
  const bool asks_for_help = arguments.has("help") || arguments.has("version");
  arguments.command_given = !arguments.words.empty();
  if (asks_for_help && arguments.words.size() == 1 && arguments.words.front() == "topo") {
    arguments.command = find_command("topo list");
    return arguments;
  }
  const Result<const Command*> command = take_command(arguments.words);
  if (!command) return command.error();
  arguments.command = *command;
  if (asks_for_help) return arguments;
  if (const Status words = check_words(*arguments.command, arguments.words); !words) {
    return words.error();
  }
  if (const Status taken = check_flags(arguments); !taken) return taken.error();
  return arguments;
}

}  // namespace echelon::cli
