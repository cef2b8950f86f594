// plan explain, and the effects of objective and failure flags on the other commands.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"
#include "tests/places.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;
using Json = nlohmann::ordered_json;

namespace {

const std::string kSmall = "--model 7b --gpus 64";

Json explained(const Sandbox& sandbox, const std::string& arguments) {
  return document(sandbox.plan("explain " + arguments + " --json"));
}

std::string why_not_says(const Sandbox& sandbox, const std::string& list) {
  return complaint(sandbox.plan("explain " + kSmall + " --why-not '" + list + "'"), 2);
}

}  // namespace

TEST_CASE("an explanation ends at the plan that a search finds") {
  const Sandbox sandbox;
  const Json json = explained(sandbox, kSmall);
  const Json found = document(sandbox.plan(kSmall + " --json"));
  CHECK(json["winner"] == found["winner"]);
  CHECK(json["certificate"] == found["certificate"]);
  CHECK(json["certificate"]["optimal_if_assumed"] == true);
  CHECK(json["certificate"]["splits_not_searched"].empty());
  CHECK(json["chain"].front()["technique"] == "one-gpu");
  CHECK(json["chain"].back()["plan"] == found["winner"]["plan"]);
  CHECK(json["why_not"].is_null());
  CHECK(json["sensitivities"].size() > 8);
  CHECK(json["most_valuable"].is_string());
}

TEST_CASE("the text of an explanation has the chain, the layout and the changes") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("explain --model llama3-70b --gpus 256");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  for (const char* part : {"From one GPU to this plan", "Data parallel on 256 GPUs", "ZeRO 1",
                           "Layout on the network", "One change at a time", "Buys most"}) {
    CHECK(lacks(result.out, part) == "");
  }
}

TEST_CASE("if no plan fits, the explanation reports it and exits with 1") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("explain --model gpt3-175b --gpus 8");
  CHECK(result.exit_code == 1);
  CHECK(lacks(result.out, "Nothing fits") == "");
  CHECK(lacks(result.out, "fits with") == "");
}

TEST_CASE("why not: each verdict names its deciding reason") {
  const Sandbox sandbox;
  const std::string large = "--model llama3-70b --gpus 256 --why-not ";
  const Json illegal = explained(sandbox, large + "tp=3")["why_not"];
  CHECK(illegal["verdict"] == "illegal");
  CHECK(illegal["rule"] == "heads-not-divisible");
  CHECK(illegal["neighbor"]["fits"] == true);
  const Json too_large = explained(sandbox, large + "'tp=1 pp=1 zero=1'")["why_not"];
  CHECK(too_large["verdict"] == "too-large");
  CHECK(too_large["missing_bytes"].get<double>() > 0);
  CHECK(too_large["neighbor_changes"] == 1);
  const Json slower = explained(sandbox, large + "tp=8,pp=1")["why_not"];
  CHECK(slower["verdict"] == "slower");
  CHECK(slower["best_with_it"]["plan"]["tp"] == 8);
  const ProcessResult text = sandbox.plan("explain " + large + "tp=8,pp=1");
  CHECK(text.exit_code == 0);
  CHECK(lacks(text.out, "more tp communication") == "");
}

TEST_CASE("why not a faster plan: it is riskier") {
  const Sandbox sandbox;
  const std::string asked =
      "--model 7b --gpus 512 --global-batch 2048 --forbid offload --why-not "
      "zero=1,microbatch=2,pp=1,tp=1,cp=1,recompute=none";
  const Json answer = explained(sandbox, asked)["why_not"];
  CHECK(answer["verdict"] == "slower");
  CHECK(answer["best_with_it"]["fits_probability"] < 0.9);
  const std::string text = sandbox.plan("explain " + asked).out;
  CHECK(lacks(text, "faster but riskier -") == "");
  CHECK(lacks(text, "a step, but it is only ") == "");
  CHECK(text.find("too close to call") == std::string::npos);
}

TEST_CASE("why not takes the names of flags and their short forms") {
  const Sandbox sandbox;
  const std::string request = kSmall + " --why-not ";
  const Json a = explained(sandbox, request + "tp=2,sp=no,mb=1")["why_not"]["best_with_it"];
  const Json b = explained(
      sandbox, request + "tp=2,sequence_parallel=false,microbatch=1")["why_not"]["best_with_it"];
  CHECK(a == b);
  CHECK(a["plan"]["sequence_parallel"] == false);
}

TEST_CASE("an invalid list is refused at the first invalid character") {
  const Sandbox sandbox;
  CHECK(lacks(why_not_says(sandbox, "tp=4,pp=x"), "--why-not at character 9: 'x'") == "");
  CHECK(lacks(why_not_says(sandbox, "tp=4,pp"), "at character 6: 'pp'; expected key=value") == "");
  CHECK(lacks(why_not_says(sandbox, "tpp=4"), "did you mean 'tp'?") == "");
  CHECK(lacks(why_not_says(sandbox, "tp="), "at character 4: no value") == "");
  CHECK(lacks(why_not_says(sandbox, "tp=4,tp=2"), "at character 6: tp given twice") == "");
  CHECK(lacks(why_not_says(sandbox, "=4"), "at character 1") == "");
  CHECK(lacks(why_not_says(sandbox, ""), "expected key=value") == "");
  CHECK(lacks(why_not_says(sandbox, "zero=7"), "expected 0, 1, 2 or 3") == "");
  CHECK(lacks(why_not_says(sandbox, "recompute=ful"), "did you mean 'full'?") == "");
}

TEST_CASE("a plan file is explained by its own request") {
  const Sandbox sandbox;
  CHECK(sandbox.plan(kSmall + " -q -o plan.json").exit_code == 0);
  CHECK(sandbox.plan("predict plan.json --microbatch 4 -q -o large.json").exit_code == 1);
  const Json winner = explained(sandbox, "plan.json");
  CHECK(winner["why_not"]["verdict"] == "winner");
  const Json other = explained(sandbox, "large.json");
  CHECK(other["why_not"]["verdict"] == "too-large");
  CHECK(other["winner"]["plan"] == winner["winner"]["plan"]);
}

TEST_CASE("objectives choose different plans") {
  const Sandbox sandbox;
  const auto winner = [&](const std::string& objective) {
    return document(sandbox.plan(kSmall + " --json --objective " + objective))["winner"];
  };
  const Json fastest = winner("step-time");
  const Json smallest = winner("memory-headroom");
  CHECK(winner("cost")["plan"] == fastest["plan"]);
  CHECK(smallest["memory"]["peak_reserved_bytes"].get<double>() <
        fastest["memory"]["peak_reserved_bytes"].get<double>());
  CHECK(smallest["time"]["step_seconds"].get<double>() >=
        fastest["time"]["step_seconds"].get<double>());
}

TEST_CASE("a search over GPU counts lists them all and takes the cheapest") {
  const Sandbox sandbox;
  const Json json = document(sandbox.plan("--model 70b --max-gpus 70 --objective cost --json"));
  const int chosen = json["winner"]["gpus"].get<int>();
  double least = 1e300;
  int cheapest = 0;
  for (const Json& count : json["gpu_counts"]) {
    if (!count["fits"].get<bool>()) continue;
    const double value = count["objective_value"].get<double>();
    if (value < least) cheapest = count["gpus"].get<int>();
    least = std::min(least, value);
  }
  CHECK(chosen == cheapest);
  CHECK(json["gpu_counts"].back()["gpus"] == 64);
  // The Pareto front contains plans on fewer and on more GPUs than the winner.
  std::set<int> on_front;
  for (const Json& plan : json["pareto"]) {
    on_front.insert(plan["gpus"].get<int>());
    const double expected = plan["expected_seconds"].get<double>() /
                            plan["time"]["step_seconds"].get<double>() *
                            plan["economics"]["gpu_seconds_per_step"].get<double>();
    // No winner takes much longer than the fastest safe plan, however likely it is to fit.
    CHECK(expected >= Approx(least).epsilon(0.01));
  }
  CHECK(on_front.contains(chosen));
  CHECK(on_front.size() > 3);
  CHECK(sandbox.plan("--model 70b --max-gpus 70").out.find("Step, headroom, GPUs, cost") !=
        std::string::npos);
  CHECK(json["gpu_counts"].front()["fits"] == false);
  CHECK(json["gpu_counts"].front()["why_none"].is_string());
}

TEST_CASE("failures make a run longer and dearer, frequent ones more than rare ones") {
  const Sandbox sandbox;
  const auto economics = [&](const std::string& flags) {
    return document(
        sandbox.plan(kSmall + " --train-tokens 1T --json " + flags))["winner"]["economics"];
  };
  const Json often = economics("--mtbf 100h");
  const Json rarely = economics("--mtbf 10000h");
  CHECK(often["goodput"].get<double>() < rarely["goodput"].get<double>());
  CHECK(often["checkpoint_interval_seconds"].get<double>() <
        rarely["checkpoint_interval_seconds"].get<double>());
  CHECK(often["expected_days_for_token_budget"].get<double>() >
        often["days_for_token_budget"].get<double>());
  CHECK(often["days_for_token_budget"] == rarely["days_for_token_budget"]);
}

TEST_CASE("a price given for a GPU hour replaces that of the market, whose source is told") {
  const Sandbox sandbox;
  const std::string search = "--model 7b --gpus 64 --cluster aws-p5 --train-tokens 1T ";
  const auto usd = [&](const std::string& flags) {
    const Json json = document(sandbox.plan(search + "--json " + flags));
    return json["winner"]["economics"]["usd_for_token_budget"].get<double>();
  };
  const double market = usd("");
  CHECK(usd("--gpu-price 4.5") == Approx(2 * market));  // 2.25 in the catalog
  const std::string text = sandbox.plan(search).out;
  CHECK(lacks(text, "USD at 2.25 USD per GPU hour") == "");
  CHECK(lacks(text, "what H100-SXM5-80GB costs on the market, not at this provider") == "");
  CHECK(lacks(text, "(aihardwareindex.com, Dec 2025): --gpu-price") == "");
  const std::string given = sandbox.plan(search + "--gpu-price 4.5").out;
  CHECK(lacks(given, "USD at 4.50 USD per GPU hour") == "");
  CHECK(given.find("on the market") == std::string::npos);
  for (const char* bad : {"0", "-2", "cheap", "nan", "2 EUR"}) {
    const std::string flags = search + "--gpu-price '" + bad + "'";
    CHECK(lacks(complaint(sandbox.plan(flags), 2), "a number between") == "");
  }
}

TEST_CASE("the table of numbers of GPUs says how long the tokens take on each") {
  const Sandbox sandbox;
  const std::string search = "--model 7b --max-gpus 16 --train-tokens 1T";
  CHECK(lacks(sandbox.plan(search).out, "1.00 T tokens in") == "");
  const Json json = document(sandbox.plan(search + " --json"));
  const Json& winner = json["winner"];
  for (const Json& count : json["gpu_counts"]) {
    if (count["gpus"] != winner["gpus"]) continue;
    CHECK(count["days_for_token_budget"] == winner["economics"]["days_for_token_budget"]);
  }
}

TEST_CASE("at the critical batch the same budget takes twice the days") {
  const Sandbox sandbox;
  const auto days = [&](const std::string& flags) {
    const Json json = document(sandbox.plan(kSmall + " --train-tokens 1T --json " + flags));
    return json["winner"]["economics"]["days_for_token_budget"].get<double>();
  };
  CHECK(days("--critical-batch 4Mi") == Approx(2 * days("")));
}

TEST_CASE("a machine of unknown failure rate has no goodput until --mtbf is given") {
  const Sandbox sandbox;
  const std::string source =
      std::string(ECHELON_SOURCE_DIR) + "/topologies/catalog/clusters/dgx-h100.json";
  Json machine = Json::parse(slurp(source));
  machine.erase("mtbf_per_node");
  sandbox.write("mine.json", machine.dump());
  const std::string search = "--model 7b --gpus 64 --cluster ./mine.json --train-tokens 1T --json ";
  CHECK(document(sandbox.plan(search))["winner"]["economics"]["goodput"].is_null());
  CHECK(document(sandbox.plan(search + "--mtbf 1000h"))["winner"]["economics"]["goodput"]
            .is_number());
  const ProcessResult text =
      sandbox.plan("--model 7b --gpus 64 --cluster ./mine.json --train-tokens 1T");
  CHECK(lacks(text.out, "is unknown (--mtbf)") == "");
}

TEST_CASE("the table of a search marks plans that are too close to call") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan(kSmall).out, "≈ too close to call") == "");
  const Json json = document(sandbox.plan(kSmall + " --json"));
  CHECK(json["tied"].front() == 0);
  CHECK(json["tied"].size() > 1);
}

TEST_CASE("invalid objectives, times and rates are refused with the nearest name or the syntax") {
  const Sandbox sandbox;
  const auto says = [&](const std::string& flags) {
    return complaint(sandbox.plan(kSmall + " " + flags), 2);
  };
  CHECK(lacks(says("--objective cots"), "did you mean 'cost'?") == "");
  CHECK(lacks(says("--objective speed"), "step-time, cost, memory-headroom, goodput") == "");
  for (const char* value : {"5", "0h", "-1h", "h", "nanh", "1e400d", "3 weeks"}) {
    CHECK(lacks(says(std::string("--mtbf '") + value + "'"), "90s, 10min, 6338h or 264d") == "");
  }
  CHECK(lacks(says("--restart-time soon"), "--restart-time") == "");
  CHECK(lacks(says("--checkpoint-bandwidth 0GB/s"), "--checkpoint-bandwidth") == "");
  CHECK(lacks(says("--critical-batch 0"), "--critical-batch") == "");
  CHECK(lacks(says("--max-gpus 128"), "given together with --gpus") == "");
  CHECK(lacks(complaint(sandbox.plan("explain " + kSmall + " --tp 3"), 2), "tp 3") == "");
  CHECK(lacks(complaint(sandbox.plan(kSmall + " --why-not tp=2"), 2), "plan explain") == "");
}

TEST_CASE("an explanation checks all of its flags, also those given with a plan file") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("--model gpt2 --gpus 8 -q -o plan.json").exit_code == 0);
  for (const std::string& subject :
       {std::string("plan.json "), std::string("--model gpt2 --gpus 8 ")}) {
    CAPTURE(subject);
    const auto refused = [&](const std::string& flags) {
      return complaint(sandbox.plan("explain " + subject + flags), 2);
    };
    CHECK(lacks(refused("--time-limit abc"), "--time-limit: 'abc'") == "");
    // It changes the list of a search, which an explanation does not show.
    CHECK(lacks(refused("--top 3"), "--top: plan explain does not take it") == "");
    CHECK(lacks(refused("--max-memory lots"), "--max-memory: 'lots'") == "");
    CHECK(lacks(refused("--objective speed"), "--objective") == "");
    CHECK(lacks(refused("--train-tokens none"), "--train-tokens") == "");
  }
  CHECK(lacks(complaint(sandbox.plan("explain plan.json --max-gpus 16"), 2), "--max-gpus") == "");
}

TEST_CASE("an explanation stops at its time limit and lists what is not finished") {
  const Sandbox sandbox;
  const std::string job = "--model deepseek-v3 --gpus 512 --why-not tp=2,pp=8 --time-limit 0.05";
  const ProcessResult text = sandbox.plan("explain " + job);
  CHECK(lacks(text.out, "Not finished within the time limit (--time-limit)") == "");
  const Json cut = explained(sandbox, job);
  CHECK(cut["unfinished"].size() >= 1);
  CHECK(cut["why_not"]["finished"] == false);
  const Json whole = explained(sandbox, "--model gpt2 --gpus 8 --why-not tp=2 --time-limit 1000");
  CHECK(whole["unfinished"].empty());
  CHECK(whole["why_not"]["finished"] == true);
}

TEST_CASE("an exhaustive explanation of a plan file prices every combination") {
  const Sandbox sandbox;
  const std::string job = "--model gpt2 --gpus 8";
  REQUIRE(sandbox.plan(job + " -q -o plan.json").exit_code == 0);
  const Json all = explained(sandbox, "plan.json --exhaustive");
  const Json bounded = explained(sandbox, "plan.json");
  CHECK(all["winner"] == bounded["winner"]);
  CHECK(all["request"]["exhaustive"] == true);
  CHECK(bounded["request"]["exhaustive"] == false);
}
