// Every flag that help, hints, tooltips and documents name exists.
#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/command_table.hpp"
#include "cli/flags/table.hpp"
#include "report/metrics.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

/// Flags of other programs, which sources and documents name with their own.
const std::set<std::string> kForeign = {"accumulate-allreduce-grads-in-fp32",  // Megatron-LM
                                        "kv-channels",
                                        "cp-comm-type",
                                        "exp-avg-dtype",
                                        "exp-avg-sq-dtype",
                                        "experimental-attention-variant",
                                        "fp4-format",
                                        "fp8-param-gather",
                                        "fp8-recipe",
                                        "grad-reduce-in-bf16",
                                        "max-position-embeddings",
                                        "microbatch-group-size-per-virtual-pipeline-stage",
                                        "showtopo",  // rocm-smi
                                        "bind-to",
                                        "oversubscribe",
                                        "cpu-bind",  // mpirun, srun
                                        "nnodes",
                                        "nproc-per-node",
                                        "no-python",
                                        "rdzv-backend",
                                        "rdzv-endpoint",  // torchrun
                                        "build",
                                        "install",
                                        "prefix",
                                        "preset",
                                        "target",
                                        "test-dir",  // CMake
                                        "long",      // zstd
                                        "measure",
                                        "measure-between",
                                        "measure-gpus",  // plan-run
                                        "all",           // ./test
                                        "by",            // tests/brute_force/brute_force.py
                                        "full",          // scripts/bare_machine.sh
                                        "num-distributed-optimizer-instances",
                                        "async",  // bench/soak.py
                                        "hours",
                                        "budget",  // scripts/gpu_day.sh
                                        "limit",
                                        "rates",
                                        "dataloader-inter-document-masking",  // Megatron-LM
                                        "kills",
                                        "requeue",
                                        "nodes",
                                        "segment",
                                        "ntasks-per-node",
                                        "open-mode",
                                        "signal",
                                        "time",
                                        "kill-on-bad-exit",  // sbatch, srun
                                        "mca",               // mpirun
                                        "max-restarts",      // torchrun
                                        "checkpoint-activations",
                                        "activations-checkpoint-method",
                                        "use-custom-fsdp",
                                        "enable-cuda-graph",
                                        "external-cuda-graph",
                                        "hybrid-attention-ratio",
                                        "hybrid-mlp-ratio",
                                        "hybrid-override-pattern",
                                        "moe-layer-recompute",
                                        "standalone-embedding-stage",
                                        "use-mcore-models",
                                        "use-flash-attn",  // Megatron-LM, older versions
                                        "factory",         // NeMo 2
                                        "no"};             // "--no-", before the name of a flag

/// The texts after each "--" at the beginning of a word.
std::vector<std::string> flags_in(const std::string& text) {
  const auto is_part = [](char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-';
  };
  std::vector<std::string> out;
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const bool inside = at > 0 && (is_part(text[at - 1]) || std::isalpha(text[at - 1]) != 0);
    std::size_t end = at + 2;
    while (end < text.size() && is_part(text[end])) ++end;
    std::string name = text.substr(at + 2, end - at - 2);
    while (name.ends_with('-')) name.pop_back();
    if (inside || name.empty() || std::islower(name.front()) == 0) continue;
    out.push_back(std::move(name));
  }
  return out;
}

/// String literals of C++; comments may name flags of other programs.
std::string literals_of(const std::string& source) {
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (!inside && source.compare(i, 2, "//") == 0) {
      i = source.find('\n', i);
      if (i == std::string::npos) break;
    } else if (!inside && c == '\'') {
      i += source[i + 1] == '\\' ? 3 : 2;
    } else if (inside && c == '\\') {
      ++i;
    } else if (c == '"') {
      inside = !inside;
      out += '\n';
    } else if (inside) {
      out += c;
    }
  }
  return out;
}

/// Flags of frameworks, which core/framework names in its remarks.
std::set<std::string> flags_of_frameworks() {
  const auto folder = std::filesystem::path(ECHELON_SOURCE_DIR) / "core" / "framework";
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    for (std::string& name : flags_in(literals_of(slurp(entry.path().string())))) {
      out.insert(std::move(name));
    }
  }
  return out;
}

bool is_known(const std::string& name) {
  static const std::set<std::string> of_frameworks = flags_of_frameworks();
  if (kForeign.contains(name) || of_frameworks.contains(name)) return true;
  if (cli::find_flag(name) != nullptr) return true;
  const cli::Flag* opposite = name.starts_with("no-") ? cli::find_flag(name.substr(3)) : nullptr;
  return opposite != nullptr && opposite->negatable;
}

std::string unknown_in(const std::string& where, const std::string& text) {
  std::string out;
  for (const std::string& name : flags_in(text)) {
    if (!is_known(name)) out += where + ": --" + name + "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("flags are found where texts name them") {
  CHECK(flags_in("--tp 4, (--no-config) a--b --- ---- x=--dp=2") ==
        std::vector<std::string>{"tp", "no-config", "dp"});
  CHECK(literals_of("f(\"--tp\", 'x'); // --old\n\"a \\\" --dp\"").find("--dp") !=
        std::string::npos);
  CHECK(literals_of("f(\"--tp\"); // --old\n").find("old") == std::string::npos);
  CHECK_FALSE(is_known("keep-free"));
  CHECK(is_known("pipeline-model-parallel-layout"));
}

TEST_CASE("every flag that help and metrics name exists") {
  std::string unknown;
  for (const cli::Flag& flag : cli::flags()) {
    unknown += unknown_in(std::string(flag.name), std::string(flag.help));
  }
  for (const cli::Command& command : cli::commands()) {
    unknown += unknown_in(std::string(command.name), std::string(command.details));
    for (const std::string_view example : command.examples) {
      unknown += unknown_in(std::string(command.name), std::string(example));
    }
  }
  for (const MetricInfo& figure : metrics()) {
    unknown += unknown_in(std::string(figure.key), std::string(figure.formula));
  }
  CHECK(unknown == "");
}

TEST_CASE("help begins with a noun or a verb") {
  const auto is_plain = [](std::string_view help) {
    for (const char* start : {"of ", "what ", "who ", "where ", "how ", "and ", "the "}) {
      if (help.starts_with(start)) return false;
    }
    return !help.empty() && help.find("unless given") == std::string_view::npos;
  };
  CHECK_FALSE(is_plain("of a network card, where the file does not tell"));
  for (const cli::Flag& flag : cli::flags()) {
    CAPTURE(flag.name);
    CHECK(is_plain(flag.help));
  }
  for (const cli::Command& command : cli::commands()) {
    CAPTURE(command.name);
    CHECK(is_plain(command.summary));
    const bool runs = command.function != nullptr;  // of a type that Catch cannot print
    CHECK(runs);
  }
}

TEST_CASE("every flag that sources and documents name exists") {
  const std::filesystem::path root = ECHELON_SOURCE_DIR;
  std::string unknown;
  int files = 0;
  for (const char* folder : {"core", "topologies", "costmodel", "planner", "evaluation", "report",
                             "runtime", "cli", "gui", "docs"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string kind = entry.path().extension().string();
      const std::string where = entry.path().lexically_relative(root).string();
      if (kind == ".md") unknown += unknown_in(where, slurp(entry.path().string()));
      if (kind == ".cpp" || kind == ".hpp") {
        unknown += unknown_in(where, literals_of(slurp(entry.path().string())));
      }
      ++files;
    }
  }
  CHECK(files > 400);
  for (const char* name : {"README.md", "CONTRIBUTING.md"}) {
    unknown += unknown_in(name, slurp((root / name).string()));
  }
  CHECK(unknown == "");
}
