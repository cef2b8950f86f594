// Measurements of plan calibrate on emulated GPUs, whose times are meaningless.
#include "runtime/cuda/measure/measure.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using cuda::MeasuredSizes;

Measurements measured_on(int gpus, const MeasuredSizes& sizes, std::size_t bytes = 1U << 30U,
                         std::vector<std::string>* reported_to = nullptr) {
  standins::Settings machine;
  machine.devices = gpus;
  machine.device_bytes = bytes;
  machine.cache_bytes = 1 << 20;
  standins::start(machine);
  std::vector<std::string> reported;
  Measurements out =
      cuda::measure(gpus, sizes, [&](const std::string& what) { reported.push_back(what); });
  CHECK_FALSE(reported.empty());
  if (reported_to != nullptr) *reported_to = reported;
  standins::check_nothing_left();
  return out;
}

/// Number of repetitions of each measurement.
std::map<std::string, int> counted(const Measurements& measured) {
  std::map<std::string, int> out;
  for (const Measurement& one : measured.all) ++out[one.what];
  return out;
}

TEST_CASE("everything is measured on one emulated GPU, and read back") {
  const Measurements found = measured_on(1, small_sizes());
  const std::map<std::string, int> expected{{"gemm nt", 1},
                                            {"gemm nn", 1},
                                            {"gemm tn", 1},
                                            {"product of zeros", 1},
                                            {"attention forward", 2},
                                            {"attention backward", 2},
                                            {"gelu forward", 1},
                                            {"gelu backward", 1},
                                            {"swiglu forward", 1},
                                            {"swiglu backward", 1},
                                            {"norm forward", 1},
                                            {"norm backward", 1},
                                            {"loss forward", 1},
                                            {"loss backward", 1},
                                            {"clear and adam", 1},
                                            {"layers forward", 1},
                                            {"layers backward", 1},
                                            {"host of layers forward", 1},
                                            {"host of layers backward", 1},
                                            {"copy", 1},
                                            {"copy to host", 1},
                                            {"copy from host", 1},
                                            {"launch", 1},
                                            {"call of NCCL, blocking", 1},
                                            {"call of NCCL, nonblocking", 1},
                                            {"kernel after a copy to host", 1},
                                            {"empty kernel", 1}};
  CHECK(counted(found) == expected);
  for (const Measurement& one : found.all) {
    INFO(one.what);
    CHECK(one.seconds > Seconds{});
    CHECK(one.ranks == 1);
    CHECK_FALSE(one.shape.empty());
  }
  REQUIRE(found.gpu);
  CHECK(found.gpu->name == "emulated GPU 0");
  CHECK(found.gpu->gpus == 1);
  CHECK(found.gpu->memory == Bytes{1073741824.0});
  CHECK(found.gpu->sms == 108);
  CHECK(found.gpu->compute_capability == Approx(8.0));
  CHECK(found.gpu->clock_mhz == Approx(1410));
  CHECK(found.gpu->memory_bits == 5120);
  CHECK(found.gpu->nccl == 22809);
  const std::string text = measurements_to_json(found);
  const Measurements reread = parse_measurements(text, "again").value();
  CHECK(measurements_to_json(reread) == text);
  CHECK(reread.all.size() == found.all.size());
}

/// Products of one small layer, on a GPU with such an L2 cache, after such a warm-up.
standins::ProductCounts products_with(int cache_bytes, Seconds warm_up) {
  standins::Settings machine;
  machine.cache_bytes = cache_bytes;
  standins::start(machine);
  MeasuredSizes sizes;
  sizes.linears = {{16, 64, 128}};
  sizes.warm_up = warm_up;
  sizes.max_time = Seconds{1000};
  static_cast<void>(cuda::measure(1, sizes, [](const std::string&) {}));
  return standins::product_counts();
}

TEST_CASE("operands of timed products rotate beyond twice the L2 cache") {
  // x, w and y take 22,528 bytes: two caches of 99,000 hold eight of them and a part.
  const std::size_t one = products_with(1, {}).operands;
  const std::size_t nine = products_with(99000, {}).operands;
  // Nine each of w, in the forward and the input gradient, and of x, in the weight gradient of six
  // runs; and those that the warm-up and the choice of algorithms use, the same in both.
  CHECK(nine >= one + 8 + 5);
}

TEST_CASE("products run before the first one is timed, for the time of the warm-up") {
  const int without = products_with(1, {}).runs;
  CHECK(products_with(1, Seconds{1}).runs > without + 16);
}

TEST_CASE("a GPU that runs every fifth product faster has the time of its other products") {
  standins::Settings machine;
  machine.product_time = [](int, int before) { return before % 5 == 0 ? 0.1 : 1.0; };
  standins::start(machine);
  MeasuredSizes sizes;
  sizes.linears = {{16, 64, 128}};
  sizes.max_time = Seconds{1000};
  const Measurements found = cuda::measure(1, sizes, [](const std::string&) {});
  int products = 0;
  for (const Measurement& one : found.all) {
    if (one.what.rfind("gemm ", 0) != 0) continue;
    ++products;
    INFO(one.what);
    CHECK(one.seconds.in(kSecond) == Approx(1).epsilon(0.05));
  }
  CHECK(products >= 3);
}

TEST_CASE("four emulated GPUs communicate in groups of two and of four") {
  MeasuredSizes sizes;
  sizes.collectives = {256, 1024};
  sizes.max_time = Seconds{1000};
  const Measurements found = measured_on(4, sizes);
  std::map<std::pair<std::string, int>, std::set<std::int64_t>> bytes;
  std::set<std::int64_t> distances;
  for (const Measurement& one : found.all) {
    CHECK(one.seconds > Seconds{});
    bytes[{one.what, one.ranks}].insert(one.shape[0]);
    if (one.what == "send_recv") distances.insert(one.shape.at(1));
  }
  const std::set<std::int64_t> both{256, 1024};
  for (const char* what : {"all_reduce", "all_gather", "reduce_scatter"}) {
    CHECK(bytes[{what, 2}] == both);
    CHECK(bytes[{what, 4}] == both);
  }
  CHECK(bytes[{"send_recv", 2}] == both);
  CHECK(found.all.front().ranks == 4);
  CHECK(distances == std::set<std::int64_t>{1, 2, 3});
  CHECK(found.gpu->nccl == 22809);
}

TEST_CASE("measurements that exceed the GPU's memory are left out") {
  MeasuredSizes sizes = small_sizes();
  sizes.linears.push_back({1 << 20, 1 << 14, 1 << 14});
  sizes.matrices.push_back({1 << 20, 1 << 14});
  sizes.copies.push_back(std::int64_t{1} << 40);
  sizes.layers.push_back({64, 4096, 8192, 64});
  CHECK(counted(measured_on(1, sizes)) == counted(measured_on(1, small_sizes())));
}

TEST_CASE("nothing more is measured when the time is up") {
  MeasuredSizes sizes = small_sizes();
  sizes.max_time = Seconds{-1};
  std::vector<std::string> reported;
  const Measurements found = measured_on(4, sizes, 1U << 30U, &reported);
  for (const char* size : {"4", "2"}) {
    const std::string text =
        std::string("collectives among ") + size + " GPUs are left out: the time is up";
    INFO(text);
    CHECK(std::count(reported.begin(), reported.end(), text) == 1);
  }
  CHECK(std::none_of(found.all.begin(), found.all.end(), [](const Measurement& one) {
    return one.what.starts_with("gemm") || one.what == "all_reduce";
  }));
}

TEST_CASE("the kernels support the sizes measured on real GPUs") {
  const MeasuredSizes sizes = cuda::usual_sizes();
  for (const AttentionShape& s : sizes.attentions) {
    CHECK((s.head_dim == 64 || s.head_dim == 128));
    CHECK(s.heads % s.kv_heads == 0);
  }
  for (const MeasuredSizes::Layers& each : sizes.layers) CHECK(each.hidden % 64 == 0);
  CHECK(sizes.max_time < Seconds{60});
}

}  // namespace
}  // namespace echelon
