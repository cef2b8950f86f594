// Over 400 lines because it is one library: its descriptors, its heuristics and its products.
// cuBLASLt: descriptors, algorithms, and the conditions of a product.
#include <algorithm>
#include <cstring>

#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"
#include "tests/runtime/cuda/standins/products.hpp"

struct cublasLtContext {
  int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
  bool transposes_a = false;
  bool transposes_b = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int bias_type = -1;  // D's
};
struct cublasLtMatrixLayoutOpaque_t {
  echelon::standins::Layout layout;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

namespace echelon::standins {
namespace {

const std::string kHandle = "cuBLASLt handle";
const std::string kDescriptor = "descriptor of a product";
const std::string kLayout = "descriptor of a matrix";
const std::string kPreference = "preference for products";

// Vectorised accesses take 16 bytes; a workspace is aligned as cuBLASLt's manual requires.
constexpr std::uintptr_t kOperandAlignment = 16;
constexpr std::uintptr_t kWorkspaceAlignment = 256;
constexpr int kPartsOfAlgorithms[] = {2, 1, 4};

/// The content of a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t mark;
  std::uint64_t parts;
  std::uint64_t workspace_bytes;
  std::uint64_t product;
  std::uint64_t rounds;  ///< parts are stored in D's type
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kMark = 0x6563'6865'6c6f'6e21;

/// FNV-1a of an algorithm's problem, without what its columns decide: an algorithm may be used for
/// other sizes than it was suggested for, if cuBLASLt then supports it (cublasLtMatmulAlgoCheck).
std::uint64_t digest(const Product& product) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3;
    hash ^= hash >> 29;
  };
  add(product.transposes_a);
  add(product.transposes_b);
  add(product.epilogue);
  add(product.bias_type);
  for (const Layout* layout : {&product.a, &product.b, &product.c, &product.d}) {
    add(layout->type);
    add(layout->rows);
    add(layout->ld);
    add(layout->order);
  }
  return hash;
}

template <class T, class... Values>
cublasStatus_t created(T** to, const std::string& what, Values... values) {
  const Machine::Lock lock;
  if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *to = machine().own(std::make_shared<T>(T{values...}), what);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroyed(const void* handle, const std::string& what) {
  const Machine::Lock lock;
  return machine().disown(handle, what) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/// False: the buffer has another size.
template <class T>
bool taken(T& to, const void* buf, std::size_t bytes) {
  if (buf == nullptr || bytes != sizeof to) return false;
  std::memcpy(&to, buf, bytes);
  return true;
}

struct Descriptors {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c, d;
};

/// The whole product; invalid descriptors give none.
cublasStatus_t read_product(const Descriptors& from, Product& to) {
  const bool there = machine().owns(from.product, kDescriptor) && machine().owns(from.a, kLayout) &&
                     machine().owns(from.b, kLayout) && machine().owns(from.c, kLayout) &&
                     machine().owns(from.d, kLayout);
  if (!there) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasLtMatmulDescOpaque_t& product = *from.product;
  to = {product.transposes_a, product.transposes_b, product.epilogue, from.d->layout.type,
        from.a->layout,       from.b->layout,       from.c->layout,   from.d->layout};
  for (const Layout* layout : {&to.a, &to.b, &to.c, &to.d}) {
    const bool by_columns = layout->order == CUBLASLT_ORDER_COL;
    if (layout->rows < 1 || layout->columns < 1 ||
        layout->ld < (by_columns ? layout->rows : layout->columns)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const std::int64_t rows = to.transposes_a ? to.a.columns : to.a.rows;
  const std::int64_t depth = to.transposes_b ? to.b.columns : to.b.rows;
  const std::int64_t columns = to.transposes_b ? to.b.rows : to.b.columns;
  if (depth != to.depth() || to.d.rows != rows || to.d.columns != columns || to.c.rows != rows ||
      to.c.columns != columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // cuBLASLt's table of types for CUBLAS_COMPUTE_32F; a bias has D's.
  if (to.a.type != to.b.type || to.c.type != to.d.type || to.c.order != to.d.order) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (to.a.type == CUDA_R_32F && to.d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (to.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (to.epilogue != CUBLASLT_EPILOGUE_BIAS || to.d.order != CUBLASLT_ORDER_COL) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (product.bias_type >= 0 && product.bias_type != to.d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t workspace_of(const Product& product, int parts) {
  return parts == 1
             ? 0
             : sizeof(float) * static_cast<std::size_t>(product.d.rows * product.d.columns * parts);
}

bool misaligned(const void* memory, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes != 0;
}

/// All memory is valid, and D is none of the operands.
void check_memory(const std::string& who, const Product& product, const Operands& with,
                  std::size_t workspace_bytes, int device) {
  check_operand(who + ", A", with.a, product.a.bytes(), device);
  check_operand(who + ", B", with.b, product.b.bytes(), device);
  check_operand(who + ", C", with.c, product.c.bytes(), device);
  check_operand(who + ", D", with.d, product.d.bytes(), device);
  if (with.bias != nullptr) {
    check_operand(who + ", bias", with.bias,
                  static_cast<std::size_t>(product.d.rows) * product.d.element(), device);
  }
  if (workspace_bytes > 0) {
    check_operand(who + ", workspace", with.workspace, workspace_bytes, device);
  }
  const std::size_t bytes = product.d.bytes();
  if (overlap(with.d, bytes, with.a, product.a.bytes()) ||
      overlap(with.d, bytes, with.b, product.b.bytes()) ||
      (with.c != with.d && overlap(with.d, bytes, with.c, product.c.bytes()))) {
    machine().complain(who + ": D overlaps an operand");
  }
}

}  // namespace
}  // namespace echelon::standins

using namespace echelon::standins;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  return created(lightHandle, kHandle, this_thread().device);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  return destroyed(lightHandle, kHandle);
}
std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  if (computeType != CUBLAS_COMPUTE_32F || scaleType != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return created(matmulDesc, kDescriptor);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  return destroyed(matmulDesc, kDescriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              std::size_t sizeInBytes) {
  const Machine::Lock lock;
  if (!machine().owns(matmulDesc, kDescriptor)) return CUBLAS_STATUS_INVALID_VALUE;
  std::int32_t value = 0;
  if (attr == CUBLASLT_MATMUL_DESC_BIAS_POINTER) {
    return taken(matmulDesc->bias, buf, sizeInBytes) ? CUBLAS_STATUS_SUCCESS
                                                     : CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!taken(value, buf, sizeInBytes)) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB: {
      if (value != CUBLAS_OP_N && value != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
      const bool transposes = value == CUBLAS_OP_T;
      (attr == CUBLASLT_MATMUL_DESC_TRANSA ? matmulDesc->transposes_a : matmulDesc->transposes_b) =
          transposes;
      return CUBLAS_STATUS_SUCCESS;
    }
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      matmulDesc->epilogue = static_cast<cublasLtEpilogue_t>(value);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      matmulDesc->bias_type = value;
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: break;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (type != CUDA_R_32F && type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  return created(matLayout, kLayout,
                 Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), ld,
                        CUBLASLT_ORDER_COL});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  return destroyed(matLayout, kLayout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, std::size_t sizeInBytes) {
  const Machine::Lock lock;
  std::int32_t order = 0;
  std::uint64_t columns = 0;
  if (attr == CUBLASLT_MATRIX_LAYOUT_COLS) {
    if (!machine().owns(matLayout, kLayout) || !taken(columns, buf, sizeInBytes) || columns < 1) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    matLayout->layout.columns = static_cast<std::int64_t>(columns);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (!machine().owns(matLayout, kLayout) || !taken(order, buf, sizeInBytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (attr != CUBLASLT_MATRIX_LAYOUT_ORDER ||
      (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  matLayout->layout.order = static_cast<cublasLtOrder_t>(order);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return created(pref, kPreference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return destroyed(pref, kPreference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, std::size_t sizeInBytes) {
  const Machine::Lock lock;
  if (!machine().owns(pref, kPreference)) return CUBLAS_STATUS_INVALID_VALUE;
  bool taken_over = false;
  if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    taken_over = taken(pref->workspace_bytes, buf, sizeInBytes);
  } else if (attr == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    taken_over = taken(pref->reductions, buf, sizeInBytes);
  } else if (attr >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attr <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
    taken_over = taken(pref->alignments[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], buf,
                       sizeInBytes);
  } else {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return taken_over ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  const Machine::Lock lock;
  *returnAlgoCount = 0;
  if (!machine().owns(lightHandle, kHandle) || !machine().owns(preference, kPreference) ||
      requestedAlgoCount < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Product product;
  const cublasStatus_t status = read_product({operationDesc, Adesc, Bdesc, Cdesc, Ddesc}, product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool enough =
      std::all_of(std::begin(preference->alignments), std::end(preference->alignments),
                  [](std::uint32_t alignment) { return alignment >= kOperandAlignment; });
  if (!enough) return CUBLAS_STATUS_NOT_SUPPORTED;
  ++machine().suggestions;
  for (const int parts : kPartsOfAlgorithms) {
    const std::size_t bytes = workspace_of(product, parts);
    if (parts > product.depth()) continue;
    if (bytes > preference->workspace_bytes || *returnAlgoCount == requestedAlgoCount) continue;
    cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[(*returnAlgoCount)++];
    result = {};
    const bool rounds = (preference->reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
    const Algorithm algorithm{kMark, static_cast<std::uint64_t>(parts), bytes, digest(product),
                              rounds ? 1U : 0U};
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = bytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void* buf, std::size_t sizeInBytes,
                                                    std::size_t* sizeWritten) {
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  const auto id = static_cast<std::int32_t>(algorithm.parts);
  if (algorithm.mark != kMark || attr != CUBLASLT_ALGO_CONFIG_ID || sizeInBytes < sizeof id) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(buf, &id, sizeof id);
  if (sizeWritten != nullptr) *sizeWritten = sizeof id;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspaceSizeInBytes,
                              cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  if (!machine().owns(lightHandle, kHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (stream->capture && machine().settings().refuses_captured_products)
    return CUBLAS_STATUS_INTERNAL_ERROR;
  if (lightHandle->device != stream->device || this_thread().device != stream->device) {
    machine().complain("a product in " + said(*stream) +
                       ", with another current device or a handle of another");
  }
  Product product;
  const cublasStatus_t status = read_product({computeDesc, Adesc, Bdesc, Cdesc, Ddesc}, product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (alpha == nullptr || beta == nullptr || A == nullptr || B == nullptr || C == nullptr ||
      D == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (C == D && product.c != product.d) return CUBLAS_STATUS_INVALID_VALUE;
  // Without an algorithm the library would choose one itself, possibly a different one each time.
  if (algo == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if (algorithm.mark != kMark || algorithm.product != digest(product) ||
      workspaceSizeInBytes < algorithm.workspace_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (static_cast<std::int64_t>(algorithm.parts) > product.depth()) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Operands with{
      *static_cast<const float*>(alpha), *static_cast<const float*>(beta), A, B, C, D, nullptr,
      static_cast<float*>(workspace)};
  if (product.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    with.bias = computeDesc->bias;
    if (with.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const void* operand : {A, B, C, static_cast<const void*>(D), with.bias}) {
    if (misaligned(operand, kOperandAlignment)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (algorithm.workspace_bytes > 0 &&
      (workspace == nullptr || misaligned(workspace, kWorkspaceAlignment))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::string who = "a product of " + std::to_string(product.d.rows) + " × " +
                          std::to_string(product.d.columns) + " × " +
                          std::to_string(product.depth());
  const int device = stream->device;
  check_memory(who, product, with, algorithm.workspace_bytes, device);
  const int number = machine().products++;
  if (number == machine().settings().broken_product) machine().broken = true;
  if (machine().broken) return CUBLAS_STATUS_EXECUTION_FAILED;
  machine().enqueue(stream, plain(who, [=] {
                      check_memory(who, product, with, algorithm.workspace_bytes, device);
                      const int parts = static_cast<int>(algorithm.parts);
                      observe(product, with, parts, number, device);
                      multiply(product, with, parts, algorithm.rounds == 1);
                    }));
  return CUBLAS_STATUS_SUCCESS;
}
