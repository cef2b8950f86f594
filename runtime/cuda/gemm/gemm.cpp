#include "runtime/cuda/gemm/gemm.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {
namespace {

cudaDataType type_of(bool wide) { return wide ? CUDA_R_32F : CUDA_R_16BF; }

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const Value& value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
        "describe a product");
}

cublasLtMatrixLayout_t layout(bool wide, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t out = nullptr;
  check(cublasLtMatrixLayoutCreate(&out, type_of(wide), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows),
        "describe a matrix");
  return out;
}

}  // namespace

Product forward_product(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.m = out, .n = rows, .k = in, .a_transposed = true};
}
Product input_product(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.m = in, .n = rows, .k = out};
}
Product weight_product(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {.m = in, .n = out, .k = rows, .b_transposed = true, .wide = true, .addend = true};
}

namespace {

/// The dimension that is the number of rows of the activations.
std::int64_t& rows_in(Product& p) { return p.b_transposed ? p.k : p.n; }

}  // namespace

Product routed_form(Product product) {
  std::int64_t& rows = rows_in(product);
  rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  product.routed = true;
  return product;
}

std::vector<Product> products_of(const ChunkSpec& spec) {
  const ChunkShape s = shape_of(spec);
  const ModelSpec& model = spec.model;
  const bool alone = spec.tp == 1;  // else bias and residual come behind the reduction
  std::vector<Product> all;
  const auto layer = [&](std::int64_t rows, std::int64_t in, std::int64_t out, bool bias,
                         bool residual) {
    Product forward = forward_product(rows, in, out);
    forward.bias = bias;
    forward.addend = residual;
    all.push_back(forward);
    all.push_back(input_product(rows, in, out));
    if (!spec.adapters) all.push_back(weight_product(rows, in, out));
  };
  const auto added = [&](Product product) {
    product.addend = true;
    all.push_back(product);
  };
  for (const AdapterTarget target : kAdapterTargets) {
    if (spec.layers == 0 || !spec.adapters || !spec.adapters->targets.contains(target)) continue;
    const auto [in, out] = widths_of(s, target);
    all.push_back(forward_product(s.rows, in, s.rank));
    added(forward_product(s.rows, s.rank, out));
    all.push_back(input_product(s.rows, s.rank, out));
    added(input_product(s.rows, in, s.rank));
    all.push_back(weight_product(s.rows, s.rank, out));
    all.push_back(weight_product(s.rows, in, s.rank));
  }
  if (spec.layers > 0) {
    if (model.latent()) {
      const LatentShape m = latent_shape_of(spec);
      layer(s.rows, s.hidden, m.latents(), false, false);
      layer(s.rows, m.q_rank > 0 ? m.q_rank : s.hidden, m.query(), false, false);
      layer(s.rows, m.kv_rank, m.key_value(), false, false);
    } else {
      layer(s.rows, s.hidden, s.qkv, model.qkv_bias, false);
    }
    layer(s.rows, s.attended, s.hidden, alone && model.attention_output_bias, alone);
  }
  const auto expert = [&](std::int64_t rows, std::int64_t in, std::int64_t out) {
    for (const Product& each : {forward_product(rows, in, out), input_product(rows, in, out),
                                weight_product(rows, in, out)}) {
      all.push_back(routed_form(each));
    }
  };
  for (int l = spec.first_layer; l < spec.first_layer + spec.layers; ++l) {
    if (model.layer_kind(l) == LayerKind::moe) {
      layer(s.rows, s.hidden, s.experts, false, false);
      const std::int64_t mean = std::max<std::int64_t>(2, s.rows * s.choices / s.experts);
      for (const std::int64_t rows : {mean / 2, mean, 2 * mean}) {
        expert(rows, s.hidden, s.expert_up);
        expert(rows, s.expert_ffn, s.hidden);
      }
      if (s.shared_ffn == 0) continue;
      layer(s.rows, s.hidden, s.shared_up, false, false);
      layer(s.rows, s.shared_ffn, s.hidden, false, false);
      if (s.gates > 0) layer(s.gates, s.hidden, 1, false, false);
    } else {
      layer(s.rows, s.hidden, s.up, model.mlp_bias, false);
      layer(s.rows, s.ffn, s.hidden, alone && model.mlp_bias, alone);
    }
  }
  if (spec.loss) {
    layer(s.loss_rows, s.hidden, s.vocab, model.head_bias, false);
    const std::int64_t rest = s.rows % s.loss_rows;
    if (rest > 0) layer(rest, s.hidden, s.vocab, model.head_bias, false);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

namespace {

/// A GPU that idled raises its clocks within tens of milliseconds.
/// Source: assumed; measured by none of our runs yet.
constexpr Seconds kRaisesClocks{0.05};
constexpr int kWarmRuns = 16;
/// Rounds over all candidates, of which each has the median of its times: what disturbs the GPU, or
/// lowers its clocks, meets all of them.
constexpr int kRounds = 5;
constexpr int kRunsInARound = 3;

/// Operands of a product, like those of a run: products of zeros draw less power and are faster.
class TimedOperands {
 public:
  TimedOperands(const Product& p, cudaStream_t stream) {
    const std::int64_t counts[] = {p.m * p.k, p.n * p.k, p.m * p.n, p.m};
    for (std::size_t i = 0; i < std::size(counts); ++i) {
      const bool wide = i == kResult && p.wide;
      const DeviceBuffer& buffer =
          buffers_.emplace_back(counts[i] * bytes_of(wide ? Element::f32 : Element::bf16));
      if (!buffer.allocated()) {
        buffers_.clear();
        return;
      }
      fill(buffer, counts[i], wide, stream);
    }
  }
  [[nodiscard]] bool fit() const { return !buffers_.empty(); }
  [[nodiscard]] Operands operands() const {
    void* const d = buffers_[kResult].as<void>();
    return {buffers_[0].as<void>(), buffers_[1].as<void>(), d, buffers_[3].as<void>(), d};
  }

 private:
  static constexpr std::size_t kResult = 2;
  std::vector<DeviceBuffer> buffers_;
};

void raise_clocks(const std::function<void()>& run, cudaStream_t stream) {
  const Seconds begin = steady_now();
  for (int runs = 0; runs < kWarmRuns || steady_now() - begin < kRaisesClocks; ++runs) {
    run();
    if (runs % kWarmRuns == 0) check(cudaStreamSynchronize(stream), "time a product");
  }
}

cublasLtMatmulAlgo_t fastest(const std::vector<cublasLtMatmulAlgo_t>& candidates,
                             const std::function<void(const cublasLtMatmulAlgo_t&)>& run,
                             cudaStream_t stream) {
  const EventTimer timer;
  std::vector<std::vector<Seconds>> times(candidates.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      timer.begin(stream);
      for (int each = 0; each < kRunsInARound; ++each) run(candidates[i]);
      timer.end(stream);
      times[i].push_back(timer.time());
    }
  }
  const auto median = [](std::vector<Seconds>& of) {
    std::nth_element(of.begin(), of.begin() + kRounds / 2, of.end());
    return of[kRounds / 2];
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (median(times[i]) < median(times[best])) best = i;
  }
  return candidates[best];
}

}  // namespace

/// A product in cuBLASLt's description.
struct Gemm::Made {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  std::vector<cublasLtMatmulAlgo_t> candidates;  ///< cuBLASLt's best first
  cublasLtMatmulAlgo_t algorithm{};
  bool selected = false;  ///< by select_algorithms(); else it is cuBLASLt's first suggestion
  bool stored = false;    ///< the algorithm is from another run, and not yet tried

  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    for (cublasLtMatrixLayout_t each : {a, b, d}) {
      if (each != nullptr) cublasLtMatrixLayoutDestroy(each);
    }
    if (description != nullptr) cublasLtMatmulDescDestroy(description);
  }
};

Gemm::Gemm(Algorithms& algorithms) : algorithms_(algorithms) {}

Gemm::~Gemm() {
  made_.clear();
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Gemm::Made& Gemm::made(const Product& p) {
  std::unique_ptr<Made>& place = made_[p];
  if (place) return *place;
  if (handle_ == nullptr) check(cublasLtCreate(&handle_), "open cuBLASLt");
  auto out = std::make_unique<Made>();
  check(cublasLtMatmulDescCreate(&out->description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describe a product");
  set(out->description, CUBLASLT_MATMUL_DESC_TRANSA, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(out->description, CUBLASLT_MATMUL_DESC_TRANSB, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(out->description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(out->description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  }
  out->a = p.a_transposed ? layout(false, p.k, p.m) : layout(false, p.m, p.k);
  out->b = p.b_transposed ? layout(false, p.n, p.k) : layout(false, p.k, p.n);
  out->d = layout(p.wide, p.m, p.n);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "describe a product");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        cublasStatus_t (*)(cublasLtMatmulPreference_t)>
      keeper(preference, cublasLtMatmulPreferenceDestroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "describe a product");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspace));
  // Sums of parts of the depth stay in fp32, which an fp32 result is in any form.
  const std::uint32_t reductions =
      p.wide ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  const auto alignment = static_cast<std::uint32_t>(p.alignment);
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(which, alignment);
  }
  constexpr int kMax = 8;
  std::array<cublasLtMatmulHeuristicResult_t, kMax> results{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, out->description, out->a, out->b, out->d, out->d,
                                     preference, kMax, results.data(), &found);
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) out->candidates.push_back(result.algo);
  }
  if (status != CUBLAS_STATUS_SUCCESS || out->candidates.empty()) {
    throw RunFailure(RunFailure::Kind::defect,
                     fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {}, "
                                 "aligned to {} bytes (status {})",
                                 p.m, p.n, p.k, p.alignment, static_cast<int>(status)));
  }
  out->algorithm = out->candidates.front();
  return *(place = std::move(out));
}

cublasStatus_t Gemm::multiply(const Made& made, const Product& p, const Operands& o,
                              const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
  if (p.bias) {
    set(made.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  }
  const float one = 1;
  const float beta = p.addend ? 1 : 0;
  return cublasLtMatmul(handle_, made.description, &one, o.a, made.a, o.b, made.b, &beta,
                        p.addend ? o.addend : o.d, made.d, o.d, made.d, &algorithm, workspace_,
                        static_cast<std::size_t>(kWorkspace), stream);
}

void Gemm::run(const Product& product, const Operands& operands, cudaStream_t stream) {
  const auto known = made_.find(product);
  if (known == made_.end()) {
    const Made& how = routed(product);
    if (multiply(how, product, operands, how.algorithm, stream) == CUBLAS_STATUS_SUCCESS) return;
  }
  const Made& how = known != made_.end() ? *known->second : made(product);
  check(multiply(how, product, operands, how.algorithm, stream), "multiply matrices");
}

/// The product's routed form, described with the product's rows.
Gemm::Made& Gemm::routed(const Product& product) {
  Made& how = made(routed_form(product));
  Product described = product;
  const auto rows = static_cast<std::uint64_t>(rows_in(described));
  for (cublasLtMatrixLayout_t each : {how.b, product.b_transposed ? how.a : how.d}) {
    check(cublasLtMatrixLayoutSetAttribute(each, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows),
          "describe a matrix");
  }
  return how;
}

std::string Gemm::in_use() const {
  std::map<int, int> products;  // by identifier
  std::map<Product, Algorithms::Algorithm> chosen;
  for (const auto& [product, how] : made_) {
    if (!how->selected) continue;  // of experts with unusual numbers of rows
    int id = -1;
    check(cublasLtMatmulAlgoConfigGetAttribute(&how->algorithm, CUBLASLT_ALGO_CONFIG_ID, &id,
                                               sizeof id, nullptr),
          "name an algorithm");
    ++products[id];
    std::memcpy(chosen[product].data(), &how->algorithm, sizeof how->algorithm);
  }
  if (products.empty()) return {};
  std::vector<std::string> each;
  for (const auto& [id, count] : products) {
    each.push_back(fmt::format("{} ({} product{})", id, count, count == 1 ? "" : "s"));
  }
  return fmt::format("cuBLASLt {}; {}", fmt::join(each, ", "), fingerprint_of(chosen));
}

void Gemm::select_algorithms(std::span<const Product> products, cudaStream_t stream) {
  bool warm = false;
  for (const Product& product : products) {
    Made& how = made(product);
    if (const auto stored = algorithms_.find(product)) {
      static_assert(sizeof how.algorithm == sizeof *stored);
      std::memcpy(&how.algorithm, stored->data(), sizeof how.algorithm);
      how.stored = true;
    }
    choose(how, product, stream, warm);
    how.selected = true;
  }
}

/// A stored algorithm is only tried.
void Gemm::choose(Made& how, const Product& p, cudaStream_t stream, bool& warm) {
  const TimedOperands memory(p, stream);
  if (!memory.fit()) {
    how.algorithm = how.candidates.front();  // a stored one would not have been tried
    return;
  }
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return multiply(how, p, memory.operands(), algorithm, stream);
  };
  if (how.stored && run(how.algorithm) == CUBLAS_STATUS_SUCCESS) {
    check(cudaStreamSynchronize(stream), "try a product");
    return;
  }
  std::erase_if(how.candidates, [&](const cublasLtMatmulAlgo_t& candidate) {
    return run(candidate) != CUBLAS_STATUS_SUCCESS;
  });
  if (how.candidates.empty()) {
    throw RunFailure(
        RunFailure::Kind::defect,
        fmt::format("no algorithm of cuBLASLt runs a product of {} x {} x {}", p.m, p.n, p.k));
  }
  if (!std::exchange(warm, true)) {
    raise_clocks([&] { check(run(how.candidates.front()), "time a product"); }, stream);
  }
  how.algorithm = fastest(
      how.candidates, [&](const auto& each) { check(run(each), "time a product"); }, stream);
  Algorithms::Algorithm chosen{};
  std::memcpy(chosen.data(), &how.algorithm, sizeof chosen);
  algorithms_.keep(p, chosen);
}

}  // namespace echelon::cuda
