// The CUDA backend on stand-ins of the CUDA runtime, cuBLASLt and NCCL, against the CPU's.
#include "runtime/cuda/cuda_processor.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/runtime/trained.hpp"

namespace echelon {
namespace {

/// One rank on one GPU.
class OneGpu final : public Backend<Bfloat16> {
 public:
  OneGpu(Crew& crew, std::unique_ptr<World> world)
      : world_(std::move(world)), algorithms_(""), processor_(crew, 0, 0, algorithms_) {}
  [[nodiscard]] bool issues_in_order() const override { return true; }
  [[nodiscard]] World& world() override { return *world_; }
  [[nodiscard]] Processor<Bfloat16>& at(int) override { return processor_; }
  [[nodiscard]] std::map<std::string, std::string> environment() const override { return {}; }

 private:
  std::unique_ptr<World> world_;
  cuda::Algorithms algorithms_;
  cuda::CudaProcessor processor_;
};

ModelSpec wide_headed(ModelSpec model) {
  model.hidden = 128;
  model.heads = 2;
  model.kv_heads = model.position == PositionEmbedding::rope ? 1 : 2;
  model.head_dim = 64;
  model.ffn_hidden = 256;
  return model;
}

TEST_CASE("one rank on a GPU trains as on a CPU") {
  for (const ModelSpec& model : {wide_headed(small_gpt2(2)), wide_headed(small_llama(2))}) {
    INFO(model.name);
    TrainedCase c;
    c.model = model;
    c.plan = plan_for(model, 1, 1, 1);
    c.global_batch = 2;
    const Trained expected = train<Bfloat16>(c);
    standins::Settings machine;
    standins::start(machine);
    const Trained found = train<Bfloat16>(c, [](Crew& crew, auto world, const TrainedCase&) {
      return std::make_unique<OneGpu>(crew, std::move(world));
    });
    standins::check_nothing_left();
    REQUIRE(found.steps.size() == expected.steps.size());
    for (std::size_t s = 0; s < expected.steps.size(); ++s) {
      CHECK(found.steps[s].loss == Approx(expected.steps[s].loss).epsilon(2e-3));
      CHECK(found.steps[s].gradient_norm == Approx(expected.steps[s].gradient_norm).epsilon(2e-2));
    }
  }
}

}  // namespace
}  // namespace echelon
