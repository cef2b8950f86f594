// Attention by cuDNN on its stand-in, which executes the frontend's graphs, against our own
// kernels.
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "runtime/cuda/attention/attention.hpp"
#include "runtime/cuda/attention/cudnn_attention.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/standins/rig.hpp"
#include "tests/support/skip.hpp"

namespace echelon {
namespace {

using standins::complaint;
using standins::says;

/// True, and said: the build found no frontend, so there is nothing to test.
bool without_cudnn() {
  if (!cuda::cudnn_version().empty()) return false;
  skip("built without cuDNN's frontend");
  return true;
}

struct DnnNumbers {
  std::vector<Bfloat16> out, dqkv;
  std::vector<float> log_sum;
};

/// Operands on an emulated GPU, with a stream. Results are NaN before, and stay so in gaps.
class DnnRig {
 public:
  explicit DnnRig(const AttentionShape& s, std::uint64_t seed = 1)
      : shape(s),
        rows_(static_cast<std::size_t>(s.sequence * s.samples)),
        qkv_count_(rows_ * static_cast<std::size_t>(s.qkv_stride)),
        out_count_(rows_ * static_cast<std::size_t>(s.out_stride)),
        sums_(rows_ * static_cast<std::size_t>(s.heads)) {
    standins::start(seed, standins::kOrders[seed % 4]);
    Numbers numbers(121);
    qkv = standins::on_the_device(
        operand<Bfloat16>(numbers, static_cast<std::int64_t>(qkv_count_), -2, 2));
    dout =
        standins::on_the_device(operand<Bfloat16>(numbers, static_cast<std::int64_t>(out_count_)));
    out = standins::on_the_device<Bfloat16>(out_count_);
    dqkv = standins::on_the_device<Bfloat16>(qkv_count_);
    log_sum = standins::on_the_device<float>(sums_);
    stream = standins::new_stream();
  }
  ~DnnRig() {
    for (void* each : {static_cast<void*>(qkv), static_cast<void*>(dout), static_cast<void*>(out),
                       static_cast<void*>(dqkv), static_cast<void*>(log_sum), workspace_}) {
      cudaFree(each);
    }
    cudaStreamDestroy(stream);
  }
  DnnRig(const DnnRig&) = delete;
  DnnRig& operator=(const DnnRig&) = delete;

  void* workspace(std::int64_t bytes) {
    cudaFree(workspace_);
    workspace_ = standins::on_the_device<char>(static_cast<std::size_t>(bytes));
    return workspace_;
  }
  void finish() const { REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess); }
  [[nodiscard]] DnnNumbers numbers() const {
    return {standins::content(out, out_count_), standins::content(dqkv, qkv_count_),
            standins::content(log_sum, sums_)};
  }
  AttentionShape shape;
  Bfloat16* qkv = nullptr;
  Bfloat16* dout = nullptr;
  Bfloat16* out = nullptr;
  Bfloat16* dqkv = nullptr;
  float* log_sum = nullptr;
  cudaStream_t stream = nullptr;

 private:
  std::size_t rows_, qkv_count_, out_count_, sums_;
  void* workspace_ = nullptr;
};

constexpr AttentionMode kDeterministic{.deterministic = true};
AttentionMode in_parts_of(Bytes parts) { return {.deterministic = true, .parts = parts}; }

DnnNumbers by_cudnn(const AttentionShape& shape, std::uint64_t seed = 1,
                    const AttentionMode& mode = kDeterministic) {
  DnnNumbers result;
  {
    DnnRig rig(shape, seed);
    std::string why;
    const auto attention = cuda::cudnn_attention(shape, why, mode);
    INFO(why);
    REQUIRE(attention != nullptr);
    REQUIRE(attention->has_backward());
    void* const workspace = rig.workspace(attention->workspace());
    attention->forward(rig.stream, rig.qkv, rig.out, rig.log_sum, workspace);
    attention->backward(rig.stream, rig.qkv, rig.out, rig.log_sum, rig.dout, rig.dqkv, workspace);
    rig.finish();
    result = rig.numbers();
  }
  standins::check_nothing_left();
  return result;
}

DnnNumbers by_kernels(const AttentionShape& shape) {
  DnnRig rig(shape);
  void* const workspace =
      rig.workspace(4 * std::max<std::int64_t>(cuda::attention_backward_workspace(shape), 1));
  cuda::attention_forward(rig.stream, shape, rig.qkv, rig.out, rig.log_sum);
  cuda::attention_backward(rig.stream, shape, rig.qkv, rig.out, rig.log_sum, rig.dout, rig.dqkv,
                           static_cast<float*>(workspace));
  rig.finish();
  return rig.numbers();
}

std::string bits_of_numbers(const DnnNumbers& numbers) {
  return bits_of(numbers.out, numbers.dqkv, numbers.log_sum);
}

/// The given columns of rows of the given width.
template <class T>
std::vector<T> dnn_columns(const std::vector<T>& rows, std::int64_t stride, std::int64_t begin,
                           std::int64_t end) {
  std::vector<T> some;
  for (auto row = rows.begin(); row != rows.end(); row += stride) {
    some.insert(some.end(), row + begin, row + end);
  }
  return some;
}

// Each of the two rounds outputs, probabilities and slopes of scores to bf16 (attention_test.cpp:
// 2⁻⁷ of the largest number, against double).
constexpr double kBothClose = 0x1p-6;

void check_cudnn(const AttentionShape& s, const AttentionMode& mode = kDeterministic) {
  CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim, s.qkv_stride, mode.deterministic,
          mode.parts.in(kByte));
  const DnnNumbers expected = by_kernels(s);
  const DnnNumbers actual = by_cudnn(s, 1, mode);
  CHECK(distance(actual.log_sum, as<double>(expected.log_sum)) < 2 * kClose<float>);
  const std::int64_t d = s.head_dim;
  const auto apart = [](const std::vector<Bfloat16>& ours, const std::vector<Bfloat16>& theirs,
                        std::int64_t stride, std::int64_t begin, std::int64_t end) {
    return distance(dnn_columns(theirs, stride, begin, end),
                    as<double>(dnn_columns(ours, stride, begin, end)));
  };
  CHECK(apart(expected.out, actual.out, s.out_stride, 0, s.heads * s.value_dim()) < kBothClose);
  const std::int64_t keys = (s.heads + s.kv_heads) * d;
  const std::int64_t ends[] = {0, s.heads * d, keys, keys + s.kv_heads * s.value_dim()};
  for (int part = 0; part < 3; ++part) {  // q, k, v: each has its own scale
    CAPTURE(part);
    CHECK(apart(expected.dqkv, actual.dqkv, s.qkv_stride, ends[part], ends[part + 1]) < kBothClose);
  }
  // A gap does not belong to attention.
  for (const Bfloat16 x : dnn_columns(actual.dqkv, s.qkv_stride, ends[3], s.qkv_stride)) {
    if (!std::isnan(static_cast<float>(x))) FAIL("a gap was written");
  }
}

TEST_CASE("attention by cuDNN agrees with our own kernels, with atomic sums or without") {
  if (without_cudnn()) return;
  for (const AttentionMode& mode : {AttentionMode{}, kDeterministic}) {
    check_cudnn(attention_shape(77, 3, 4, 2, 64), mode);
    check_cudnn(attention_shape(130, 2, 8, 8, 64, 16), mode);
    check_cudnn(attention_shape(130, 1, 12, 4, 128), mode);
    check_cudnn(attention_shape(64, 2, 2, 1, 128), mode);
    check_cudnn(attention_shape(2, 1, 1, 1, 64), mode);
  }
}

TEST_CASE("cuDNN's backward in parts equals the undivided one") {
  if (without_cudnn()) return;
  const AttentionShape shared = attention_shape(77, 4, 8, 4, 64, 8);
  const AttentionShape own = attention_shape(130, 2, 6, 6, 128);
  const auto bytes = [](const AttentionShape& s, int samples, int kv_heads) {
    return deterministic_workspace(s, {samples, kv_heads});
  };
  for (const AttentionShape& s : {shared, own}) {
    const DnnNumbers whole = by_cudnn(s);
    for (const Bytes workspace :
         {bytes(s, 2, s.kv_heads), bytes(s, 1, s.kv_heads), bytes(s, 1, 2), Bytes{}}) {
      CAPTURE(s.heads, workspace.in(kByte));
      const DnnNumbers parts = by_cudnn(s, 1, in_parts_of(workspace));
      CHECK(bits_of_numbers(parts) == bits_of_numbers(whole));
    }
  }
  check_cudnn(shared, in_parts_of(bytes(shared, 1, 2)));
}

/// How cuDNN computes the backward of a rank of Llama 3 70B at tp 8 on a GPU of 80 GiB.
std::optional<AttentionBackward> backward_of_70b(std::int64_t sequence, bool deterministic,
                                                 Bytes& workspace) {
  standins::start(1, standins::Order::random);
  std::string why;
  const AttentionMode mode{.deterministic = deterministic, .limit = attention_limit(80_GiB)};
  const auto attention = cuda::cudnn_attention(attention_shape(sequence, 1, 8, 1, 128), why, mode);
  REQUIRE(attention != nullptr);
  workspace = Bytes{static_cast<double>(attention->workspace())};
  return attention->backward_how();
}

TEST_CASE(
    "attention may take a sixteenth of a GPU, and sums by atomics unless it is asked not to") {
  unsetenv("ECHELON_DETERMINISTIC");
  CHECK_FALSE(cuda::chosen_attention(80_GiB).deterministic);
  CHECK(cuda::chosen_attention(80_GiB).limit == 5_GiB);
  setenv("ECHELON_DETERMINISTIC", "1", 1);
  CHECK(cuda::chosen_attention(80_GiB).deterministic);
  unsetenv("ECHELON_DETERMINISTIC");
}

TEST_CASE("long sequences of grouped heads stay with cuDNN, with the workspace of the formula") {
  if (without_cudnn()) return;
  for (const bool deterministic : {false, true}) {
    for (const std::int64_t sequence : {1024, 8192, 16384}) {
      CAPTURE(deterministic, sequence);
      Bytes workspace;
      const auto how = backward_of_70b(sequence, deterministic, workspace);
      REQUIRE(how.has_value());
      CHECK(how->deterministic == deterministic);
      CHECK(workspace >= how->workspace);
      CHECK(workspace < how->workspace + 1024 * kByte);
    }
  }
  Bytes workspace;
  static_cast<void>(backward_of_70b(8192, true, workspace));
  CHECK(workspace > 1_GiB);
  static_cast<void>(backward_of_70b(8192, false, workspace));
  CHECK(workspace < 100_MiB);
  // 16 GiB of slopes: our own kernels, unless bits may differ.
  CHECK_FALSE(backward_of_70b(32768, true, workspace).has_value());
  CHECK(backward_of_70b(32768, false, workspace).has_value());
}

TEST_CASE("attention by cuDNN gives the same bits in every order") {
  if (without_cudnn()) return;
  const AttentionShape s = attention_shape(77, 2, 4, 2, 64);
  const std::string bits = bits_of_numbers(by_cudnn(s, 1));
  for (const std::uint64_t seed : {2, 3, 4}) CHECK(bits_of_numbers(by_cudnn(s, seed)) == bits);
}

TEST_CASE("attention by cuDNN can be recorded as a graph, which outlives it") {
  if (without_cudnn()) return;
  const AttentionShape s = attention_shape(77, 2, 4, 2, 64);
  const DnnNumbers expected = by_cudnn(s);
  {
    DnnRig rig(s);
    std::string why;
    auto attention = cuda::cudnn_attention(s, why);
    REQUIRE(attention != nullptr);
    void* const workspace = rig.workspace(attention->workspace());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaStreamBeginCapture(rig.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    attention->forward(rig.stream, rig.qkv, rig.out, rig.log_sum, workspace);
    attention->backward(rig.stream, rig.qkv, rig.out, rig.log_sum, rig.dout, rig.dqkv, workspace);
    REQUIRE(cudaStreamEndCapture(rig.stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    attention.reset();
    for (int launch = 0; launch < 2; ++launch) {
      std::fill_n(rig.dqkv, 8, Bfloat16(0));
      CHECK(cudaGraphLaunch(executable, rig.stream) == cudaSuccess);
      rig.finish();
      CHECK(bits_of_numbers(rig.numbers()) == bits_of_numbers(expected));
    }
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  }
  standins::check_nothing_left();
}

TEST_CASE("training uses cuDNN for attention if requested") {
  if (without_cudnn()) return;
  TrainedCase c;
  c.model = small_llama(2);
  c.model.hidden = 32;
  c.model.heads = 4;
  c.model.kv_heads = 2;
  c.model.head_dim = 64;
  c.plan = plan_for(c.model, 2, 1, 1);
  c.global_batch = 2;
  c.steps = 3;
  c.rate = 1e-3;
  const auto trained = [&](const char* wanted, std::string& attention) {
    standins::Settings machine;
    machine.devices = 2;
    standins::start(machine);
    setenv("ECHELON_CUDNN", wanted, 1);
    Trained out = train<Bfloat16>(c, open_watched_gpus([&](Backend<Bfloat16>& gpus) {
                                    attention = gpus.environment()["attention"];
                                  }));
    unsetenv("ECHELON_CUDNN");
    standins::check_nothing_left();
    return out;
  };
  std::string theirs, ours;
  const Trained by_theirs = trained("", theirs);
  const Trained by_ours = trained("never", ours);
  CHECK(theirs == "cuDNN 9.19.0, backward with atomic sums");
  CHECK(ours == "Echelon's kernels (ECHELON_CUDNN=never)");
  for (std::size_t s = 0; s < by_ours.steps.size(); ++s) {
    CHECK(by_theirs.steps[s].loss == Approx(by_ours.steps[s].loss).epsilon(1e-3));
  }
}

TEST_CASE("cuDNN refuses unsupported cases with a reason") {
  if (without_cudnn()) return;
  standins::start(1, standins::Order::random);
  std::string why;
  CHECK(cuda::cudnn_attention(attention_shape(256, 2, 4, 4, 20), why) == nullptr);
  CHECK(says(why, "hidden_dim should be multiple of 8"));
}

TEST_CASE("memory that cuDNN shares by mistake is reported") {
  if (without_cudnn()) return;
  const AttentionShape s = attention_shape(77, 1, 2, 2, 64);
  using Run = std::function<void(DnnRig&, cuda::CudnnAttention&, char*)>;
  const auto reported = [&](const Run& run) {
    DnnRig rig(s);
    std::string why;
    const auto attention = cuda::cudnn_attention(s, why, kDeterministic);
    REQUIRE(attention != nullptr);
    auto* const workspace = static_cast<char*>(rig.workspace(attention->workspace()));
    return complaint([&] {
      run(rig, *attention, workspace);
      cudaStreamSynchronize(rig.stream);
    });
  };
  CHECK(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
          attention.forward(rig.stream, rig.qkv, rig.out, rig.log_sum, workspace);
        }).empty());
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char*) {
               attention.forward(rig.stream, rig.qkv, rig.out, rig.log_sum, rig.out);
             }),
             "its workspace overlaps"));
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
               attention.forward(rig.stream, rig.qkv, rig.qkv + 64, rig.log_sum, workspace);
             }),
             "overlaps"));
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
               attention.forward(rig.stream, rig.qkv + 64, rig.out, rig.log_sum, workspace);
             }),
             "outside a live allocation"));
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
               attention.forward(rig.stream, rig.qkv, rig.out, rig.log_sum + 1, workspace);
             }),
             "not aligned"));
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
               attention.backward(rig.stream, rig.qkv, rig.out, rig.log_sum, rig.dout, rig.dqkv,
                                  workspace + attention.workspace() / 2);
             }),
             "workspace: "));
  CHECK(says(reported([](DnnRig& rig, cuda::CudnnAttention& attention, char* workspace) {
               attention.forward(rig.stream, rig.qkv, rig.out, nullptr, workspace);
             }),
             "without tensor 5"));
}

TEST_CASE("cuDNN's workspace equals the formula") {
  if (without_cudnn()) return;
  standins::start(1, standins::Order::random);
  const AttentionShape s = attention_shape(77, 3, 4, 2, 64);
  for (const AttentionMode& mode : {AttentionMode{}, kDeterministic}) {
    std::string why;
    const Bytes asked{static_cast<double>(cuda::cudnn_attention(s, why, mode)->workspace())};
    const Bytes expected = plan_attention_backward(s, mode)->workspace;
    CAPTURE(mode.deterministic, expected.in(kByte));
    CHECK(asked >= expected);
    CHECK(asked < expected + 1024 * kByte);
  }
}

}  // namespace
}  // namespace echelon
