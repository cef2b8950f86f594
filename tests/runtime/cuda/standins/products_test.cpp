#include <cublasLt.h>

#include <cmath>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/standins/rig.hpp"
#include "tests/support/numbers.hpp"

namespace echelon::standins {
namespace {

/// A matrix with its descriptor; `transposed` as the product takes it, `by_rows` as it is stored.
struct Stored {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, ld = 0;
  bool by_rows = false;
  void* memory = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;

  Stored(cudaDataType_t type_, std::int64_t rows_, std::int64_t columns_, bool by_rows_,
         Numbers& draws)
      : type(type_),
        rows(rows_),
        columns(columns_),
        ld((by_rows_ ? columns_ : rows_) + 3),
        by_rows(by_rows_) {
    const auto count = static_cast<std::size_t>(ld * (by_rows ? rows : columns));
    std::vector<float> wide(count);
    for (float& x : wide)
      x = static_cast<float>(Bfloat16(static_cast<float>(draws.between(-1, 1))));
    if (type == CUDA_R_32F) {
      memory = on_the_device(wide);
    } else {
      memory = on_the_device(std::vector<Bfloat16>(wide.begin(), wide.end()));
    }
    CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns),
                                     ld) == CUBLAS_STATUS_SUCCESS);
    const std::int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                           sizeof order) == CUBLAS_STATUS_SUCCESS);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  ~Stored() {
    cublasLtMatrixLayoutDestroy(layout);
    cudaFree(memory);
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = by_rows ? row * ld + column : column * ld + row;
    if (type == CUDA_R_32F) return static_cast<const float*>(memory)[i];
    return static_cast<float>(static_cast<const Bfloat16*>(memory)[i]);
  }
};

struct Handles {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cudaStream_t stream = new_stream();
  void* workspace = nullptr;
  static constexpr std::size_t kBytes = 1U << 16U;

  Handles() {
    CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    const std::uint64_t bytes = kBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof bytes);
    workspace = on_the_device<char>(kBytes);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
    cudaFree(workspace);
    cudaStreamDestroy(stream);
  }
  void set(cublasLtMatmulDescAttributes_t attribute, std::int32_t value) const {
    CHECK(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value) ==
          CUBLAS_STATUS_SUCCESS);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(
      const Stored& a, const Stored& b, const Stored& c, const Stored& d,
      cublasStatus_t expected = CUBLAS_STATUS_SUCCESS) const {
    std::vector<cublasLtMatmulHeuristicResult_t> all(8);
    int count = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, product, a.layout, b.layout, c.layout, d.layout,
                                         preference, 8, all.data(), &count) == expected);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }
  cublasStatus_t multiply(float alpha, const Stored& a, const Stored& b, float beta,
                          const Stored& c, const Stored& d, const cublasLtMatmulAlgo_t* algorithm,
                          std::size_t bytes = kBytes, std::size_t shift = 0) const {
    return cublasLtMatmul(handle, product, &alpha, a.memory, a.layout, b.memory, b.layout, &beta,
                          c.memory, c.layout, static_cast<char*>(d.memory) + shift, d.layout,
                          algorithm, workspace, bytes, stream);
  }
};

constexpr std::int64_t kRows = 9, kColumns = 5, kDepth = 7;

TEST_CASE("products of the stand-ins follow their descriptors") {
  start(1, Order::random);
  Numbers draws(3);
  for (int variant = 0; variant < 64; ++variant) {
    CAPTURE(variant);
    const Handles handles;
    const bool ta = (variant & 1) != 0, tb = (variant & 2) != 0, by_rows = (variant & 4) != 0;
    const auto in = (variant & 8) != 0 ? CUDA_R_16BF : CUDA_R_32F;
    const auto out = in == CUDA_R_16BF && (variant & 16) != 0 ? CUDA_R_16BF : CUDA_R_32F;
    const bool in_place = (variant & 32) != 0;
    const Stored a(in, ta ? kDepth : kRows, ta ? kRows : kDepth, by_rows, draws);
    const Stored b(in, tb ? kColumns : kDepth, tb ? kDepth : kColumns, !by_rows, draws);
    const Stored c(out, kRows, kColumns, by_rows, draws);
    const Stored other(out, kRows, kColumns, by_rows, draws);
    const Stored& d = in_place ? c : other;
    handles.set(CUBLASLT_MATMUL_DESC_TRANSA, ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    handles.set(CUBLASLT_MATMUL_DESC_TRANSB, tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    std::vector<double> expected;
    for (std::int64_t column = 0; column < kColumns; ++column) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (std::int64_t k = 0; k < kDepth; ++k) {
          sum += double{ta ? a.at(k, row) : a.at(row, k)} *
                 double{tb ? b.at(column, k) : b.at(k, column)};
        }
        expected.push_back(0.5 * sum + 2 * double{c.at(row, column)});
      }
    }
    const auto algorithms = handles.algorithms(a, b, c, d);
    REQUIRE(algorithms.size() == 3);
    const auto& algorithm = algorithms[static_cast<std::size_t>(variant) % 3].algo;
    CHECK(handles.multiply(0.5F, a, b, 2, c, d, &algorithm) == CUBLAS_STATUS_SUCCESS);
    CHECK(cudaStreamSynchronize(handles.stream) == cudaSuccess);
    std::size_t i = 0;
    for (std::int64_t column = 0; column < kColumns; ++column) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        const double bound = out == CUDA_R_16BF ? 0x1p-8 : 0x1p-20;
        CHECK(std::abs(double{d.at(row, column)} - expected[i]) <=
              bound * (1 + std::abs(expected[i])));
        ++i;
      }
    }
  }
  CHECK(complaint([] { check_nothing_left(); }).empty());
}

/// Square matrices of floats, 8 × 8.
struct Squares {
  Numbers draws{5};
  Stored a{CUDA_R_32F, 8, 8, false, draws};
  Stored b{CUDA_R_32F, 8, 8, false, draws};
  Stored c{CUDA_R_32F, 8, 8, false, draws};
};

TEST_CASE("products of the stand-ins do not read C times zero, and add a bias to columns") {
  start(1, Order::random);
  const Handles handles;
  const Squares squares;
  const auto* const bias = on_the_device(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  handles.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  handles.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  const auto algorithms = handles.algorithms(squares.a, squares.b, squares.c, squares.c);
  const auto multiply = [&] {
    return handles.multiply(0, squares.a, squares.b, 0, squares.c, squares.c, &algorithms[0].algo);
  };
  CHECK(multiply() == CUBLAS_STATUS_INVALID_VALUE);  // no bias yet
  CHECK(cublasLtMatmulDescSetAttribute(handles.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                       sizeof bias) == CUBLAS_STATUS_SUCCESS);
  static_cast<float*>(squares.c.memory)[0] = NAN;
  CHECK(multiply() == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(handles.stream) == cudaSuccess);
  CHECK((squares.c.at(0, 0) == 1 && squares.c.at(6, 3) == 7));
}

TEST_CASE("stand-ins refuse products that cuBLASLt would refuse or that are not emulated") {
  start(1, Order::random);
  const Handles handles;
  const Squares squares;
  Numbers draws(1);
  const Stored& a = squares.a;
  const Stored& b = squares.b;
  const Stored& c = squares.c;
  const auto algorithms = handles.algorithms(a, b, c, c);
  REQUIRE(algorithms.size() == 3);
  std::size_t with_workspace = 0;
  for (const auto& one : algorithms) with_workspace += one.workspaceSize > 0 ? 1 : 0;
  CHECK(with_workspace == 2);
  const auto* const needs = &algorithms[0].algo;
  CHECK(handles.multiply(1, a, b, 0, c, c, nullptr) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(handles.multiply(1, a, b, 0, c, c, needs, algorithms[0].workspaceSize - 1) ==
        CUBLAS_STATUS_INVALID_VALUE);
  const Stored d(CUDA_R_32F, 8, 9, false, draws);
  CHECK(handles.multiply(1, a, b, 0, c, d, needs) == CUBLAS_STATUS_INVALID_VALUE);
  const Stored aside(CUDA_R_32F, 8, 8, true, draws);  // the algorithm is for other descriptors
  CHECK(handles.multiply(1, aside, b, 0, c, c, needs) == CUBLAS_STATUS_INVALID_VALUE);
  const Stored wide(CUDA_R_32F, 8, 8, false, draws);
  CHECK(handles.multiply(1, a, b, 0, c, wide, needs, Handles::kBytes, 4) ==
        CUBLAS_STATUS_NOT_SUPPORTED);  // not aligned
  const Stored half(CUDA_R_16BF, 8, 8, false, draws);
  handles.algorithms(a, half, c, c, CUBLAS_STATUS_NOT_SUPPORTED);
  handles.algorithms(a, b, half, half, CUBLAS_STATUS_NOT_SUPPORTED);
  handles.algorithms(a, d, c, c, CUBLAS_STATUS_INVALID_VALUE);
  handles.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
  handles.algorithms(a, b, c, c, CUBLAS_STATUS_NOT_SUPPORTED);
  handles.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const std::uint64_t none = 0;
  cublasLtMatmulPreferenceSetAttribute(handles.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &none, sizeof none);
  CHECK(handles.algorithms(a, b, c, c).size() == 1);
  const std::uint32_t alignment = 8;
  cublasLtMatmulPreferenceSetAttribute(
      handles.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment);
  handles.algorithms(a, b, c, c, CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(says(complaint([&] { handles.multiply(1, a, b, 0, a, a, &algorithms[1].algo); }),
             "D overlaps an operand"));
}

}  // namespace
}  // namespace echelon::standins
