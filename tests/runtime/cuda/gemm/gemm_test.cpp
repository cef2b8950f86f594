// Matrix products through cuBLASLt, and the algorithms that were chosen for them.
#include "runtime/cuda/gemm/gemm.hpp"

#include <algorithm>
#include <filesystem>

#include "runtime/threads/failure.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using cuda::Product;

/// Device memory that is freed; emulated, so that the host may read it.
template <class E>
class Block {
 public:
  explicit Block(std::size_t count) : count_(count) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, count * sizeof(E)) == cudaSuccess);
    at_ = static_cast<E*>(memory);
  }
  ~Block() { cudaFree(at_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] E* data() { return at_; }
  void fill(std::uint64_t seed) {
    Numbers numbers(seed);
    for (std::size_t i = 0; i < count_; ++i) at_[i] = E(static_cast<float>(numbers.between(-1, 1)));
  }

 private:
  std::size_t count_;
  E* at_ = nullptr;
};

class Rig {
 public:
  explicit Rig(cuda::Algorithms& algorithms)
      : workspace_(static_cast<std::size_t>(cuda::Gemm::kWorkspace)), gemm_(algorithms) {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    gemm_.use_workspace(workspace_.data());
  }
  ~Rig() { cudaStreamDestroy(stream_); }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  cuda::Gemm& gemm() { return gemm_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  void finish() { REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess); }

 private:
  Block<char> workspace_;
  cuda::Gemm gemm_;
  cudaStream_t stream_ = nullptr;
};

double value(Bfloat16 x) { return static_cast<double>(static_cast<float>(x)); }

TEST_CASE("the products of a layer agree with plain loops") {
  standins::start({});
  {
    cuda::Algorithms algorithms("");
    Rig rig(algorithms);
    constexpr std::int64_t rows = 24, in = 16, out = 40;
    Block<Bfloat16> x(rows * in), w(out * in), bias(out), addend(rows * out), y(rows * out),
        dx(rows * in);
    Block<float> dw(out * in);
    x.fill(1), w.fill(2), bias.fill(3), addend.fill(4);
    for (std::int64_t i = 0; i < out * in; ++i) dw.data()[i] = 1;

    Product forward = cuda::forward_product(rows, in, out);
    forward.bias = forward.addend = true;
    rig.gemm().run(forward, {w.data(), x.data(), y.data(), bias.data(), addend.data()},
                   rig.stream());
    rig.gemm().run(cuda::input_product(rows, in, out),
                   {w.data(), y.data(), dx.data(), nullptr, nullptr}, rig.stream());
    rig.gemm().run(cuda::weight_product(rows, in, out),
                   {x.data(), y.data(), dw.data(), nullptr, dw.data()}, rig.stream());
    rig.finish();
    const auto at = [](Block<Bfloat16>& m, std::int64_t i) { return value(m.data()[i]); };
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = at(bias, o) + at(addend, r * out + o);
        for (std::int64_t k = 0; k < in; ++k) sum += at(x, r * in + k) * at(w, o * in + k);
        CHECK(at(y, r * out + o) == Approx(sum).epsilon(0.01).margin(0.01));
      }
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = 0;
        for (std::int64_t o = 0; o < out; ++o) sum += at(y, r * out + o) * at(w, o * in + k);
        CHECK(at(dx, r * in + k) == Approx(sum).epsilon(0.01).margin(0.02));
      }
    }
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = 1;
        for (std::int64_t r = 0; r < rows; ++r) sum += at(y, r * out + o) * at(x, r * in + k);
        CHECK(static_cast<double>(dw.data()[o * in + k]) == Approx(sum).epsilon(1e-4).margin(1e-4));
      }
    }
  }
  standins::check_nothing_left();
}

TEST_CASE("a product whose depth is split is rounded once") {
  standins::start({});
  {
    cuda::Algorithms algorithms("");
    Rig rig(algorithms);
    constexpr std::int64_t rows = 8, in = 64, out = 8;
    Block<Bfloat16> x(rows * in), w(out * in), y(rows * out);
    x.fill(1), w.fill(2);
    for (std::int64_t r = 0; r < rows; ++r) {  // large sums of both halves, which cancel
      x.data()[r * in] = Bfloat16(100.0F);
      x.data()[r * in + in - 1] = Bfloat16(-100.0F);
    }
    for (std::int64_t o = 0; o < out; ++o) {
      w.data()[o * in] = w.data()[o * in + in - 1] = Bfloat16(1.0F);
    }
    rig.gemm().run(cuda::forward_product(rows, in, out),
                   {w.data(), x.data(), y.data(), nullptr, nullptr}, rig.stream());
    rig.finish();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (std::int64_t k = 0; k < in; ++k)
          sum += value(x.data()[r * in + k]) * value(w.data()[o * in + k]);
        constexpr double kOneRounding = 1.0 / 256;
        CHECK(value(y.data()[r * out + o]) == Approx(sum).epsilon(kOneRounding).margin(1e-4));
      }
    }
  }
  standins::check_nothing_left();
}

TEST_CASE("experts' products of any number of rows use the algorithms of a few") {
  constexpr std::int64_t kMost = 20;
  constexpr std::int64_t kIn = 32;
  constexpr std::int64_t kOut = 64;
  standins::start({});
  {
    cuda::Algorithms algorithms("");
    Rig rig(algorithms);
    const Product most = cuda::routed_form(cuda::forward_product(kMost, kIn, kOut));
    CHECK(most.n == 32);
    CHECK(cuda::routed_form(cuda::weight_product(16, kIn, kOut)).k == 16);
    rig.gemm().select_algorithms(std::vector<Product>{most}, rig.stream());
    Block<Bfloat16> x(kMost * kIn), w(kOut * kIn), y(kMost * kOut);
    Block<float> sum(kOut * kIn);
    x.fill(1), w.fill(2), y.fill(3);
    int wrong = 0;
    for (std::int64_t rows = 1; rows <= kMost; ++rows) {
      std::fill_n(sum.data(), kOut * kIn, 0.0F);
      const auto weights = cuda::weight_product(rows, kIn, kOut);
      rig.gemm().run(weights, {x.data(), y.data(), sum.data(), nullptr, sum.data()}, rig.stream());
      rig.finish();
      for (std::int64_t at = 0; at < kOut * kIn; ++at) {
        double exact = 0;
        for (std::int64_t row = 0; row < rows; ++row) {
          exact += value(y.data()[row * kOut + at / kIn]) * value(x.data()[row * kIn + at % kIn]);
        }
        if (std::abs(sum.data()[at] - exact) > 1e-5 * static_cast<double>(rows)) ++wrong;
      }
    }
    for (std::int64_t rows = kMost; rows >= 1; --rows) {
      rig.gemm().run(cuda::forward_product(rows, kIn, kOut),
                     {w.data(), x.data(), y.data(), nullptr, nullptr}, rig.stream());
      rig.finish();
      for (std::int64_t at = 0; at < rows * kOut; ++at) {
        double exact = 0;
        for (std::int64_t k = 0; k < kIn; ++k) {
          exact += value(w.data()[at % kOut * kIn + k]) * value(x.data()[at / kOut * kIn + k]);
        }
        if (std::abs(value(y.data()[at]) - exact) > 0.01 * (1 + std::abs(exact))) ++wrong;
      }
    }
    CHECK(wrong == 0);
    // Of each form one, 1 to 32 rows, and for the row that cannot be split.
    CHECK(standins::product_counts().suggestions <= 6 + 6 + 2);
  }
  standins::check_nothing_left();
}

TEST_CASE("algorithms are chosen once and kept in a file") {
  const TempDir folder;
  const std::string path = (folder.path() / "deep" / "gemm.txt").string();
  const std::vector<Product> products{cuda::forward_product(16, 32, 64),
                                      cuda::weight_product(16, 32, 64)};
  standins::start({});
  {
    cuda::Algorithms first(path);
    Rig rig(first);
    CHECK_FALSE(first.find(products.front()).has_value());
    rig.gemm().select_algorithms(products, rig.stream());
    REQUIRE(first.find(products.front()).has_value());
    first.save();
    const cuda::Algorithms reread(path);
    for (const Product& product : products) CHECK(reread.find(product) == first.find(product));
    CHECK_FALSE(reread.find(cuda::input_product(16, 32, 64)).has_value());
  }
  standins::check_nothing_left();
}

TEST_CASE("processes that end one after the other keep the algorithms of both") {
  const TempDir folder;
  const std::string path = (folder.path() / "gemm.txt").string();
  const Product one = cuda::forward_product(16, 32, 64);
  const Product other = cuda::forward_product(16, 32, 128);
  cuda::Algorithms first(path);
  cuda::Algorithms second(path);
  first.keep(one, {1});
  second.keep(one, {2});
  second.keep(other, {3});
  first.save();
  second.save();
  first.save();
  const cuda::Algorithms reread(path);
  CHECK(reread.find(one) == cuda::Algorithms::Algorithm{1});
  CHECK(reread.find(other) == cuda::Algorithms::Algorithm{3});
}

/// The number of parts in which the algorithm sums that is chosen on such a machine.
std::uint64_t chosen_parts(const standins::Settings& machine) {
  const Product product = cuda::forward_product(16, 32, 64);
  standins::start(machine);
  std::uint64_t parts = 0;
  {
    cuda::Algorithms algorithms("");
    Rig rig(algorithms);
    rig.gemm().select_algorithms(std::vector<Product>{product}, rig.stream());
    parts = algorithms.find(product).value()[1];  // the stand-in's second word
  }
  standins::check_nothing_left();
  return parts;
}

TEST_CASE("algorithms are timed on numbers like those of a run, not on zeros") {
  const int before = standins::counts().products_of_zeros;
  CHECK(chosen_parts({}) > 0);
  CHECK(standins::counts().products_of_zeros == before);
}

TEST_CASE("the fastest algorithm is chosen by a GPU whose clocks rise, fall and stumble") {
  const auto with = [](std::function<double(int, int)> time) {
    standins::Settings machine;
    machine.product_time = std::move(time);
    return chosen_parts(machine);
  };
  const auto speed = [](int parts) { return parts == 2 ? 1.0 : 1.2; };
  CHECK(with([&](int parts, int) { return speed(parts); }) == 2);
  // The first products are slow: clocks are low until the GPU works.
  CHECK(with([&](int parts, int before) { return speed(parts) * (before < 8 ? 3 : 1); }) == 2);
  // One product in twelve is disturbed, whichever algorithm it has.
  for (int at = 0; at < 12; ++at) {
    INFO("disturbed: " << at);
    CHECK(with([&](int parts, int before) {
            return speed(parts) * (before % 12 == at ? 10 : 1);
          }) == 2);
  }
}

TEST_CASE("a product on a GPU that broke names the GPU, not cuBLASLt") {
  standins::Settings machine;
  machine.broken_product = 0;
  standins::start(machine);
  {
    cuda::Algorithms algorithms("");
    Rig rig(algorithms);
    Block<Bfloat16> x(16 * 32), w(64 * 32), y(16 * 64);
    x.fill(1), w.fill(2);
    const auto run = [&] {
      rig.gemm().run(cuda::forward_product(16, 32, 64),
                     {w.data(), x.data(), y.data(), nullptr, nullptr}, rig.stream());
    };
    try {
      run();
      FAIL("nothing was thrown");
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == RunFailure::Kind::environment);
      CHECK(test::lacks(failure.what(), "multiply matrices: CUDA says uncorrectable ECC error") ==
            "");
    }
  }
  standins::start({});
}

TEST_CASE("unusable algorithms in a file are chosen again") {
  const TempDir folder;
  const Product product = cuda::forward_product(16, 32, 64);
  const std::string path =
      folder.write("gemm.txt", "64 16 32 1 0 0 0 0 16 0" + std::string(8, ' ') +
                                   "ffff ffff ffff ffff ffff ffff ffff ffff\nnonsense\n1 2 3\n");
  standins::start({});
  {
    cuda::Algorithms algorithms(path);
    const auto stale = algorithms.find(product);
    REQUIRE(stale.has_value());
    Rig rig(algorithms);
    rig.gemm().select_algorithms(std::vector<Product>{product}, rig.stream());
    CHECK(algorithms.find(product) != stale);
    Block<Bfloat16> x(16 * 32), w(64 * 32), y(16 * 64);
    x.fill(1), w.fill(2);
    rig.gemm().run(product, {w.data(), x.data(), y.data(), nullptr, nullptr}, rig.stream());
    rig.finish();
  }
  standins::check_nothing_left();
}

TEST_CASE("a chunk's products are those of its layers and its head") {
  ChunkSpec spec;
  ModelSpec& m = spec.model;
  m.constants.emplace();
  m.layers = 1;
  m.hidden = 64;
  m.heads = m.kv_heads = 1;
  m.head_dim = 64;
  m.ffn_hidden = 128;
  m.vocab = 100;
  m.max_positions = 8192;
  spec.layers = 1;
  spec.loss = true;
  spec.microbatch = 1;
  spec.sequence = 4608;  // logits are computed 4096 rows at a time
  spec.recompute = {Recompute::none};
  spec.padded_vocab = 128;
  const std::vector<Product> all = cuda::products_of(spec);
  const auto has = [&](Product p) { return std::find(all.begin(), all.end(), p) != all.end(); };
  Product residual = cuda::forward_product(4608, 64, 64);
  residual.addend = true;
  CHECK(has(residual));
  CHECK(has(cuda::forward_product(4096, 64, 128)));
  CHECK(has(cuda::forward_product(512, 64, 128)));
  CHECK(has(cuda::weight_product(512, 64, 128)));
  spec.adapters = Adapters{8, {AdapterTarget::linear_fc2}};
  const std::vector<Product> adapted = cuda::products_of(spec);
  const auto adapts = [&](Product p) {
    return std::find(adapted.begin(), adapted.end(), p) != adapted.end();
  };
  Product wide = cuda::forward_product(4608, 8, 64);
  wide.addend = true;
  CHECK(adapts(wide));
  CHECK(adapts(cuda::input_product(4608, 8, 64)));
  CHECK(adapts(cuda::weight_product(4608, 128, 8)));
  CHECK_FALSE(adapts(cuda::weight_product(4608, 128, 64)));  // frozen
  spec.adapters.reset();
  m.moe.experts = 8;
  m.moe.experts_per_token = 2;
  m.moe.expert_ffn_hidden = 32;
  const std::vector<Product> mixed = cuda::products_of(spec);
  const auto routed = [&](std::int64_t rows) {
    const Product p = cuda::routed_form(cuda::weight_product(rows, 64, 64));
    return std::find(mixed.begin(), mixed.end(), p) != mixed.end();
  };
  CHECK((routed(1024) && routed(2048) && routed(4096)));  // of a mean of 1152
  CHECK_FALSE(routed(8192));
  m.moe = {};
  spec.tp = 2;  // the residual is added behind the reduction
  m.heads = m.kv_heads = 2;
  const std::vector<Product> split = cuda::products_of(spec);
  CHECK(std::none_of(split.begin(), split.end(),
                     [](const Product& p) { return p.addend && !p.wide; }));
}

}  // namespace
}  // namespace echelon
