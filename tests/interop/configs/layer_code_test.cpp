// Whose code the layers are, of configurations of trainers of transformers.
#include <string>

#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a trainer of transformers runs its modules unless Liger or the compiler replaces them") {
  const std::string json =
      "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}}\n";
  const auto code = [&](const std::string& arguments) {
    GivenRun given;
    given.gpus = 8;
    given.sequence = 4096;
    given.format = "deepspeed";
    const Result<ImportedConfig> read =
        import_config({{"ds.json", json},
                       {"train.sh",
                        "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 4 "
                        "--gradient_accumulation_steps 8 " +
                            arguments + "\n"}},
                      given);
    return read ? read->config.layer_code : read.error().message();
  };
  CHECK(code("") == "transformers");
  CHECK(code("--use_liger_kernel True") == "liger");
  CHECK(code("--use_liger_kernel False") == "transformers");
  CHECK(code("--use_liger_kernel True --torch_compile True") == "fused");
  const std::string yaml =
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
      "fsdp_config:\n  fsdp_version: 2\n";
  GivenRun given;
  given.sequence = 4096;
  given.microbatch = 1;
  given.global_batch = 8;
  CHECK(import_config({{"a.yaml", yaml}}, given)->config.layer_code == "transformers");
  const std::string compiled = yaml + "dynamo_config:\n  dynamo_backend: INDUCTOR\n";
  CHECK(import_config({{"a.yaml", compiled}}, given)->config.layer_code == "fused");
}
