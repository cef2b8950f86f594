// Aliases and old spellings of flags: read like the current ones, and shown nowhere.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command_table.hpp"
#include "cli/commands/parse_arguments.hpp"
#include "cli/flags/settings.hpp"
#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

Result<cli::Arguments> parsed(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return cli::parse_arguments(static_cast<int>(pointers.size()), pointers.data());
}

/// "plan COMMAND WORDS --spelling 1", for the first command that takes the flag.
std::vector<std::string> command_with(const cli::Flag& flag, const std::string& spelling) {
  for (const cli::Command& command : cli::commands()) {
    if (!cli::takes(command, flag)) continue;
    std::vector<std::string> words{"plan", std::string(command.name)};
    words.insert(words.end(), command.least_words, "FILE");
    words.push_back("--" + spelling);
    if (!flag.value.empty()) words.emplace_back("1");
    return words;
  }
  return {};
}

}  // namespace

TEST_CASE("every alias on the command line is read as its flag") {
  int aliases = 0;
  for (const cli::Flag& flag : cli::flags()) {
    const std::string name(flag.name);
    for (const std::string& spelling : cli::spellings(flag)) {
      CAPTURE(name, spelling);
      const Result<cli::Arguments> arguments = parsed(command_with(flag, spelling));
      REQUIRE(arguments.ok());
      CHECK(arguments->has(name));
      CHECK(arguments->flags.size() == 1);
      CHECK(cli::find_spelling(spelling) == &flag);
      if (spelling != name) ++aliases;
    }
  }
  CHECK(aliases >= 15);
}

TEST_CASE("every alias in the environment is read as its flag, and names the variable") {
  for (const cli::Flag& flag : cli::flags()) {
    if (!flag.layered) continue;
    for (const std::string& spelling : cli::spellings(flag)) {
      const std::string variable = cli::environment_name(spelling);
      CAPTURE(variable);
      ::setenv(variable.c_str(), "1", 1);
      const cli::Settings settings = cli::settings_of_environment();
      ::unsetenv(variable.c_str());
      REQUIRE(settings.find(flag.name) != nullptr);
      CHECK(settings.find(flag.name)->where == variable);
    }
  }
}

TEST_CASE("an old spelling gives the same bytes as the new one") {
  const Sandbox sandbox;
  const std::string predict = "predict --model 7b --gpus 8 ";
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {predict + "--stack nanotron", predict + "--framework nanotron"},
      {predict + "--tokens 2T", predict + "--train-tokens 2T"},
      {predict + "--micro-batch-size 2", predict + "--microbatch 2"},
      {predict + "--zero 3 --shard-group 4", predict + "--zero 3 --zero-group-size 4"},
      {predict + "--shard-group 3", predict + "--zero-group-size 3"},
      {predict + "--stack nonesuch", predict + "--framework nonesuch"},
      {predict + "--stack", predict + "--framework"},
      {predict + "--tokens=x", predict + "--train-tokens=x"},
      {"--model gpt2 --gpus-at-most 4 --budget x", "--model gpt2 --max-gpus 4 --time-limit x"},
      {"--model gpt2 --gpus-at-most 4 -q", "--model gpt2 --max-gpus 4 -q"},
      {"validate runs.csv --limit 0 --rows a.csv --folds 2",
       "validate runs.csv --max-error 0 --predictions a.csv --cross-validate 2"},
      {"validate runs.csv --folds 1", "validate runs.csv --cross-validate 1"},
      {"run none.json --lr x", "run none.json --learning-rate x"},
      {"run none.json --least-learning-rate x", "run none.json --min-lr x"},
      {"run none.json --warmup x", "run none.json --warmup-steps x"},
      {"run none.json --decay-until x", "run none.json --lr-decay-steps x"},
      {"run none.json --clip x", "run none.json --max-grad-norm x"},
      {"run none.json --deadline x", "run none.json --timeout x"},
      {"run none.json --clip 1 --deadline 9s", "run none.json --max-grad-norm 1 --timeout 9s"},
      {"explain --model gpt2 --gpus 2 --why-not shard-group=2",
       "explain --model gpt2 --gpus 2 --why-not zero-group-size=2"}};
  for (const auto& [before, now] : pairs) {
    CAPTURE(before);
    const ProcessResult old_one = sandbox.plan(before);
    const ProcessResult new_one = sandbox.plan(now);
    CHECK(old_one.exit_code == new_one.exit_code);
    if (before.find("why-not") == std::string::npos) CHECK(old_one.out == new_one.out);
    if (before.find("why-not") == std::string::npos) CHECK(old_one.err == new_one.err);
  }
}

TEST_CASE("configuration files and variables take old spellings, not both at once") {
  const Sandbox sandbox;
  sandbox.write(".echelon.json", R"({"stack": "nanotron", "model": "7b", "gpus": 8})");
  const std::string by_file = sandbox.plan("predict").out;
  CHECK(lacks(by_file, "framework = nanotron, from .echelon.json at /stack") == "");
  sandbox.write(".echelon.json", R"({"framework": "nanotron", "model": "7b", "gpus": 8})");
  CHECK(lacks(sandbox.plan("predict").out, "from .echelon.json at /framework") == "");
  sandbox.write(".echelon.json", R"({"framework": "nanotron", "stack": "nanotron"})");
  const std::string both = complaint(sandbox.plan("predict --model 7b"), 2);
  CHECK(lacks(both, "given together with .echelon.json at /framework") == "");
  sandbox.write(".echelon.json", "{}");
  const ProcessResult variable = sandbox.plan("predict --model 7b --gpus 8", "PLAN_STACK=nanotron");
  CHECK(lacks(variable.out, "framework = nanotron, from PLAN_STACK") == "");
  CHECK(variable.err.empty());  // no note about a similar variable
}

TEST_CASE("help, manual and completion show no alias") {
  const Sandbox sandbox;
  for (const char* page : {"--help", "run --help", "validate --help", "man", "completion bash",
                           "completion zsh", "completion fish"}) {
    const std::string text = sandbox.plan(page).out;
    for (const cli::Flag& flag : cli::flags()) {
      for (const std::string& spelling : cli::spellings(flag)) {
        if (spelling == flag.name) continue;
        CAPTURE(page, spelling);
        for (const std::string end : {" ", "\n", "[", "|"}) {
          CHECK(text.find("--" + spelling + end) == std::string::npos);
          CHECK(text.find("-l " + spelling + end) == std::string::npos);
        }
      }
    }
  }
}
