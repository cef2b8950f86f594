#include "evaluation/framework_defaults.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evaluation/calibration_set.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {
namespace {

MeasuredRun run_in_table(std::string_view id) { return row_of(whole_table(), id); }

TEST_CASE("a framework stands for every software of the published runs") {
  for (const MeasuredRun& run : whole_table()) {
    CHECK(software_of(run).defaults->evident == Evident::nothing);
  }
}

TEST_CASE("an unknown software gets the defaults of the one it resembles") {
  MeasuredRun run = run_in_table("nanotron-0469");
  run.framework = "a software of next year";
  run.of_software = {};
  CHECK(software_of(run).framework->name == "megatron-core");  // tp 2, pp 2
  run.tp = run.pp = 1;
  run.zero = 3;
  CHECK(software_of(run).framework->name == "torchtitan");
  run.zero = 2;
  CHECK(software_of(run).framework->name == "deepspeed");
  CHECK_FALSE(software_of(run).defaults->same_code);
}

TEST_CASE(
    "a run of adapters is priced whatever the framework that stands for its software trains") {
  MeasuredRun run = run_in_table("nanotron-0469");
  CHECK(software_of(run).framework->trains_adapters.empty());
  run.task = "lora 16:linear_qkv,linear_proj";
  CHECK(mapped(run).job.adapters.has_value());
  // Our runtime stands for this one, whose adapters are not split as ours are.
  run = run_in_table("llmq-0041");
  run.task = "lora 16:linear_qkv,linear_proj";
  CHECK(mapped(run).job.adapters.has_value());
  CHECK_FALSE(mapped(run).framework.replicates_adapters);
}

TEST_CASE("all rows of an unknown software have one stand-in") {
  const std::string header =
      "row_id,framework,layers,hidden,ffn_hidden,heads,vocab,seq,gpu,gpus,tp,pp,dp,zero,"
      "microbatch,global_batch,step_seconds\n";
  const std::string rest = ",1,64,1\n";
  const std::string shapes = ",32,4096,14336,32,128256,8192,H100-SXM5-80GB,8,";
  const auto rows = parse_runs(header + "a,new" + shapes + "1,1,8,3" + rest + "b,new" + shapes +
                                   "2,1,4,1" + rest + "c,newer" + shapes + "1,1,8,3" + rest,
                               "text");
  REQUIRE(rows.ok());
  CHECK(software_of((*rows)[0]).framework->name == "megatron-core");
  CHECK(software_of((*rows)[1]).framework->name == "megatron-core");
  CHECK(software_of((*rows)[2]).framework->name == "torchtitan");
}

TEST_CASE("a software with a part of a known name is its relative, of the year it names") {
  MeasuredRun run = run_in_table("nanotron-0469");
  const auto framework = [&](const char* name, const char* date) {
    run.framework = name;
    run.date = date;
    run.of_software = run.evidence();
    return software_of(run).framework->name;
  };
  CHECK(framework("megatron-2019", "") == "megatron-2021");
  CHECK(framework("Megatron-LM fork", "2022-05") == "megatron-2021");
  CHECK(framework("megatron-2024", "") == "megatron-core");
  CHECK(framework("swift-megatron", "2025-01-01") == "megatron-core");
  CHECK(framework("nemo-mlperf-v5", "2025") == "megatron-core");
  CHECK(framework("our Megatron-DeepSpeed", "2025") == "megatron-deepspeed");
  CHECK(framework("hf-deepspeed", "") == "deepspeed");
  CHECK(mapped(run).substitute == "deepspeed stands for 'hf-deepspeed' (by its name)");
}

TEST_CASE("no group of plans is ranked by two calibrations") {
  std::map<std::string, std::string> of_group;
  for (const MeasuredRun& run : whole_table()) {
    const auto result = RunMapper().map(run);
    const auto* priced = std::get_if<MappedRun>(&result);
    if (run.group.empty() || priced == nullptr) continue;
    const std::string name = calibration_name(priced->cluster.gpu(), priced->framework);
    const std::string& first = of_group.emplace(run.group, name).first->second;
    INFO(run.group << ", " << run.row_id);
    CHECK(name == first);
  }
  CHECK(of_group.size() > 30);
}

TEST_CASE("no run is illegal for the software that stands for its own") {
  RunMapper mapper;
  for (MeasuredRun run : whole_table()) {
    if (std::holds_alternative<SkippedRun>(mapper.map(run))) continue;
    run.framework = "unheard of";
    const auto result = mapper.map(run);
    if (const auto* skipped = std::get_if<SkippedRun>(&result)) {
      INFO(run.row_id << ": " << skipped->reason);
      CHECK_FALSE(skipped->reason.starts_with("not a plan we price"));
    }
  }
}

TEST_CASE("a run has the attention that it states, else one that its framework has kernels for") {
  MeasuredRun run = run_in_table("flagperf-0007");  // Megatron-LM in fp32
  CHECK(mapped(run).job.flash_attention);
  run.flash_attention.reset();
  CHECK_FALSE(mapped(run).job.flash_attention);
  CHECK(std::ranges::count(mapped(run).inferred, "no flash attention") == 1);
  run.precision = "bf16";
  CHECK(mapped(run).job.flash_attention);
}

TEST_CASE("Megatron-LM of 2022 is the version before Megatron Core") {
  MeasuredRun run = run_in_table("nanotron-0469");
  run.framework = "megatron-2022";
  run.flash_attention.reset();
  run.zero = 1;
  const MappedRun old = mapped(run);
  CHECK(old.framework.name == "megatron-2021");
  CHECK_FALSE(old.job.flash_attention);
  CHECK(old.substitute == "");
  run.framework = "megatron-core";
  CHECK(mapped(run).framework.name == "megatron-core");
}

TEST_CASE("NeMo containers of 2022 are Megatron-LM of 2021") {
  CHECK(software_of(run_in_table("N1120")).framework->name == "megatron-2021");
  CHECK(software_of(run_in_table("N0348")).framework->name == "megatron-core");
}

}  // namespace
}  // namespace echelon
