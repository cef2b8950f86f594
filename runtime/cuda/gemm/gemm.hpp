// Gemm: matrix products by cuBLASLt, with algorithms that were chosen by timing.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/element.hpp"
#include "runtime/model/chunk_layout.hpp"

namespace echelon::cuda {

/// D[n, m] = op(B)·op(A) + addend, of bf16 matrices, row-major like all of ours; in cuBLAS's terms,
/// column-major, D[m, n] = op(A)[m, k]·op(B)[k, n]. Sums are in fp32.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool wide = false;    ///< D and the addend are fp32
  bool bias = false;    ///< m bf16 numbers, added to every row of ours
  bool addend = false;  ///< a matrix like D is added; it may be D
  int alignment = 16;   ///< of all pointers, bytes
  /// Of an expert: n, of a weight product k, is the most rows; others are run by its algorithm.
  bool routed = false;
  auto operator<=>(const Product&) const = default;
};

/// y = x·Wᵀ, dx = dy·W and dW += dyᵀ·x of a layer of `in` inputs and `out` outputs.
[[nodiscard]] Product forward_product(std::int64_t rows, std::int64_t in, std::int64_t out);
[[nodiscard]] Product input_product(std::int64_t rows, std::int64_t in, std::int64_t out);
[[nodiscard]] Product weight_product(std::int64_t rows, std::int64_t in, std::int64_t out);
/// For all numbers of rows up to the next power of two: the router decides the number anew in every
/// step, and what cuBLASLt does to describe a product and to suggest algorithms takes longer than
/// to launch it.
[[nodiscard]] Product routed_form(Product product);
/// All products of a chunk; the experts' in their routed form, for half, once and twice the mean of
/// an expert's rows.
[[nodiscard]] std::vector<Product> products_of(const ChunkSpec& spec);

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;
};

/// Algorithms chosen earlier on this kind of GPU with this cuBLASLt, in a file: a line of numbers
/// for each product. Unreadable or outdated entries are chosen again.
class Algorithms {
 public:
  using Algorithm = std::array<std::uint64_t, 8>;  ///< cublasLtMatmulAlgo_t
  /// Empty path: kept only in memory.
  explicit Algorithms(std::string path);
  [[nodiscard]] std::optional<Algorithm> find(const Product& product) const;
  void keep(const Product& product, const Algorithm& algorithm);
  /// Adds its own to those in the file, which other processes may have written meanwhile. Writes a
  /// temporary file and renames it; without space or permission nothing happens.
  void save() const;

 private:
  std::string path_;
  std::map<Product, Algorithm> known_;
  bool changed_ = false;
};
/// Equal for equal algorithms of equal products (content_hash).
[[nodiscard]] std::string fingerprint_of(const std::map<Product, Algorithms::Algorithm>& chosen);
/// Below XDG_CACHE_HOME or ~/.cache; empty if there is neither.
[[nodiscard]] std::string algorithms_path(const std::string& gpu);

/// For one queue of one device; the device is the calling thread's. cuBLASLt is opened with the
/// first product.
class Gemm {
 public:
  static constexpr std::int64_t kWorkspace = 32 << 20;  ///< what NVIDIA suggests for Hopper

  explicit Gemm(Algorithms& algorithms);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// kWorkspace bytes.
  void use_workspace(void* workspace) { workspace_ = workspace; }
  /// Chooses algorithms by timing, on its own operands, which are freed again. A product whose
  /// operands do not fit uses cuBLASLt's first suggestion. One that was not named here is an
  /// expert's: it uses the algorithm of its routed form, chosen here or suggested first, or, should
  /// that refuse its rows, the first one suggested for them.
  void select_algorithms(std::span<const Product> products, cudaStream_t stream);
  void run(const Product& product, const Operands& operands, cudaStream_t stream);
  /// For a report: cuBLASLt's identifiers of the algorithms in use, with the number of products,
  /// and a fingerprint: "cuBLASLt 21 (4 products), 66 (8 products); 8f3c…". Empty: none.
  [[nodiscard]] std::string in_use() const;

 private:
  struct Made;
  Made& made(const Product& product);
  /// `warm`: the GPU worked until now.
  void choose(Made& made, const Product& product, cudaStream_t stream, bool& warm);
  Made& routed(const Product& product);
  cublasStatus_t multiply(const Made& made, const Product& product, const Operands& operands,
                          const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const;

  Algorithms& algorithms_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Product, std::unique_ptr<Made>> made_;
};

}  // namespace echelon::cuda
