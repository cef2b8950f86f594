// Training of adapters against PEFT on transformers (golden/make_adapters_golden.py): the losses of
// four steps, the gradients of the first, the adapters after the last.
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/places.hpp"
#include "tests/runtime/model/chunk_run.hpp"
#include "tests/runtime/training/trained.hpp"

using namespace echelon;

namespace {

TrainedCase golden_case(int tp, int pp, int dp, int zero) {
  using enum AdapterTarget;
  TrainedCase c;
  c.model = small_gpt2(2);
  c.plan = plan_for(c.model, tp, pp, dp);
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp : 1;
  c.steps = 4;
  c.adapters = Adapters{3, {linear_qkv, linear_proj, linear_fc1, linear_fc2}};
  c.lora_alpha = 7.5;
  c.initial = test_weight;
  c.read = [model = c.model, sequence = c.sequence](std::int64_t number, std::int32_t* out) {
    for (std::int64_t i = 0; i <= sequence; ++i)
      out[i] = test_token(model, 1, number * (sequence + 1) + i);
  };
  return c;
}

double norm_of_golden(const std::vector<double>& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares);
}

void check_golden(const Trained& found) {
  std::ifstream in(std::string(ECHELON_SOURCE_DIR) + "/tests/runtime/training/golden/adapters.csv");
  REQUIRE(in);
  std::string line;
  std::getline(in, line);
  int values = 0;
  while (std::getline(in, line)) {
    std::istringstream row(line);
    std::string kind, tensor, index, value;
    std::getline(row, kind, ',');
    std::getline(row, tensor, ',');
    std::getline(row, index, ',');
    std::getline(row, value);
    const double expected = std::stod(value);
    double here = 0;
    if (kind == "loss") {
      here = found.steps.at(std::stoul(tensor)).loss;
    } else {
      const std::vector<double>& all =
          (kind == "gradient" ? found.gradients : found.weights).at(tensor);
      here = index == "norm" ? norm_of_golden(all) : all.at(std::stoul(index));
    }
    INFO(line << ", here " << here);
    CHECK(std::abs(here - expected) < 1e-13 + 1e-12 * std::abs(expected));
    ++values;
  }
  CHECK(values > 100);
}

}  // namespace

TEST_CASE("four steps of adapters equal those of PEFT, in fp64") {
  check_golden(train<double>(golden_case(1, 1, 1, 0)));
}

TEST_CASE("four steps of adapters on eight ranks equal those of PEFT, in fp64") {
  check_golden(train<double>(golden_case(2, 2, 2, 0)));
  check_golden(train<double>(golden_case(2, 1, 4, 3)));
}
