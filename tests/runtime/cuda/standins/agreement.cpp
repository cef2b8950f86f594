// Compiled against the stand-ins' headers, and also against the real ones if they are installed:
// names, values and signatures are the same in both.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace {

template <class... Parameters>
using Cuda = cudaError_t (*)(Parameters...);
template <class... Parameters>
using Cublas = cublasStatus_t (*)(Parameters...);
template <class... Parameters>
using Nccl = ncclResult_t (*)(Parameters...);
template <class Expected, class Found>
constexpr bool same(Found*) {
  return std::is_same_v<Expected, Found*>;
}
using Size = std::size_t;

static_assert(cudaSuccess == 0 && cudaErrorInvalidValue == 1 && cudaErrorMemoryAllocation == 2 &&
              cudaErrorInvalidPitchValue == 12 && cudaErrorInsufficientDriver == 35 &&
              cudaErrorNoDevice == 100 && cudaErrorInvalidDevice == 101 &&
              cudaErrorInvalidResourceHandle == 400 && cudaErrorNotReady == 600 &&
              cudaErrorLaunchOutOfResources == 701 && cudaErrorLaunchFailure == 719 &&
              cudaErrorNotSupported == 801);
static_assert(cudaErrorStreamCaptureUnsupported == 900 &&
              cudaErrorStreamCaptureInvalidated == 901 && cudaErrorStreamCaptureMerge == 902 &&
              cudaErrorStreamCaptureUnmatched == 903 && cudaErrorStreamCaptureUnjoined == 904 &&
              cudaErrorStreamCaptureIsolation == 905 && cudaErrorCapturedEvent == 907 &&
              cudaErrorStreamCaptureWrongThread == 908);
static_assert(cudaMemcpyHostToHost == 0 && cudaMemcpyHostToDevice == 1 &&
              cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3 &&
              cudaMemcpyDefault == 4);
static_assert(cudaDevAttrWarpSize == 10 && cudaDevAttrClockRate == 13 &&
              cudaDevAttrMultiProcessorCount == 16 && cudaDevAttrMemoryClockRate == 36 &&
              cudaDevAttrGlobalMemoryBusWidth == 37 && cudaDevAttrL2CacheSize == 38 &&
              cudaDevAttrComputeCapabilityMajor == 75 && cudaDevAttrComputeCapabilityMinor == 76 &&
              cudaDevAttrMaxSharedMemoryPerMultiprocessor == 81 &&
              cudaDevAttrMaxSharedMemoryPerBlockOptin == 97);
static_assert(cudaStreamCaptureModeThreadLocal == 1 && cudaStreamCaptureStatusInvalidated == 2);
static_assert(cudaStreamDefault == 0 && cudaStreamNonBlocking == 1 && cudaEventDefault == 0 &&
              cudaEventBlockingSync == 1 && cudaEventDisableTiming == 2 &&
              cudaHostAllocDefault == 0 && cudaHostAllocPortable == 1);

static_assert(same<Cuda<int*>>(&cudaGetDeviceCount) && same<Cuda<int>>(&cudaSetDevice) &&
              same<Cuda<int*>>(&cudaGetDevice) &&
              same<Cuda<cudaDeviceProp*, int>>(&cudaGetDeviceProperties) &&
              same<Cuda<int*, cudaDeviceAttr, int>>(&cudaDeviceGetAttribute) &&
              same<Cuda<char*, int, int>>(&cudaDeviceGetPCIBusId) &&
              same<Cuda<int*, int, int>>(&cudaDeviceCanAccessPeer) &&
              same<Cuda<int*, int*>>(&cudaDeviceGetStreamPriorityRange) &&
              same<Cuda<int*>>(&cudaDriverGetVersion) && same<Cuda<int*>>(&cudaRuntimeGetVersion) &&
              same<Cuda<>>(&cudaGetLastError) && same<Cuda<>>(&cudaPeekAtLastError) &&
              same<const char* (*)(cudaError_t)>(&cudaGetErrorName) &&
              same<const char* (*)(cudaError_t)>(&cudaGetErrorString));
static_assert(
    same<Cuda<Size*, Size*>>(&cudaMemGetInfo) && same<Cuda<void*>>(&cudaFree) &&
    same<Cuda<void*>>(&cudaFreeHost) &&
    same<Cuda<void*, const void*, Size, cudaMemcpyKind, cudaStream_t>>(&cudaMemcpyAsync) &&
    same<Cuda<void*, Size, const void*, Size, Size, Size, cudaMemcpyKind, cudaStream_t>>(
        &cudaMemcpy2DAsync) &&
    same<Cuda<void*, int, Size, cudaStream_t>>(&cudaMemsetAsync));
static_assert(same<Cuda<cudaStream_t*, unsigned>>(&cudaStreamCreateWithFlags) &&
              same<Cuda<cudaStream_t*, unsigned, int>>(&cudaStreamCreateWithPriority) &&
              same<Cuda<cudaStream_t>>(&cudaStreamDestroy) &&
              same<Cuda<cudaStream_t>>(&cudaStreamSynchronize) &&
              same<Cuda<cudaStream_t>>(&cudaStreamQuery) &&
              same<Cuda<cudaEvent_t*, unsigned>>(&cudaEventCreateWithFlags) &&
              same<Cuda<cudaEvent_t>>(&cudaEventDestroy) &&
              same<Cuda<cudaEvent_t, cudaStream_t>>(&cudaEventRecord) &&
              same<Cuda<cudaEvent_t>>(&cudaEventSynchronize) &&
              same<Cuda<cudaEvent_t>>(&cudaEventQuery) &&
              same<Cuda<float*, cudaEvent_t, cudaEvent_t>>(&cudaEventElapsedTime) &&
              same<Cuda<>>(&cudaDeviceSynchronize) &&
              same<Cuda<cudaFuncAttributes*, const void*>>(&cudaFuncGetAttributes));
static_assert(same<Cuda<cudaStream_t, cudaStreamCaptureMode>>(&cudaStreamBeginCapture) &&
              same<Cuda<cudaStream_t, cudaGraph_t*>>(&cudaStreamEndCapture) &&
              same<Cuda<cudaStream_t, cudaStreamCaptureStatus*>>(&cudaStreamIsCapturing) &&
              same<Cuda<cudaGraphExec_t, cudaStream_t>>(&cudaGraphUpload) &&
              same<Cuda<cudaGraphExec_t, cudaStream_t>>(&cudaGraphLaunch) &&
              same<Cuda<cudaGraphExec_t>>(&cudaGraphExecDestroy) &&
              same<Cuda<cudaGraph_t>>(&cudaGraphDestroy));
#if CUDART_VERSION >= 13000  // cudaStreamGetCaptureInfo() had another signature before
static_assert(cudaUserObjectNoDestructorSync == 1 && cudaDriverEntryPointSuccess == 0 &&
              cudaDriverEntryPointSymbolNotFound == 1 && cudaStreamCaptureModeGlobal == 0 &&
              cudaStreamCaptureModeRelaxed == 2);
static_assert(
    same<Cuda<cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned>>(&cudaUserObjectCreate) &&
    same<Cuda<cudaUserObject_t, unsigned>>(&cudaUserObjectRelease) &&
    same<Cuda<cudaGraph_t, cudaUserObject_t, unsigned, unsigned>>(&cudaGraphRetainUserObject) &&
    same<Cuda<cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, cudaGraph_t*,
              const cudaGraphNode_t**, const cudaGraphEdgeData**, Size*>>(
        &cudaStreamGetCaptureInfo) &&
    same<Cuda<cudaStreamCaptureMode*>>(&cudaThreadExchangeStreamCaptureMode) &&
    same<Cuda<const char*, void**, unsigned, unsigned long long, cudaDriverEntryPointQueryResult*>>(
        &cudaGetDriverEntryPointByVersion));
#endif
// Overloaded in C++: the right one is found.
[[maybe_unused]] constexpr Cuda<void**, Size> kMalloc = &cudaMalloc;
[[maybe_unused]] constexpr Cuda<void**, Size> kMallocHost = &cudaMallocHost;
[[maybe_unused]] constexpr Cuda<void**, Size, unsigned> kHostAlloc = &cudaHostAlloc;
[[maybe_unused]] constexpr Cuda<cudaStream_t, cudaEvent_t, unsigned> kWait = &cudaStreamWaitEvent;
[[maybe_unused]] constexpr Cuda<cudaGraphExec_t*, cudaGraph_t, unsigned long long> kInstantiate =
    &cudaGraphInstantiate;

static_assert(CUDA_R_32F == 0 && CUDA_R_16BF == 14 && CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1 &&
              CUBLAS_OP_C == 2 && CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77);
static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_NOT_INITIALIZED == 1 &&
              CUBLAS_STATUS_ALLOC_FAILED == 3 && CUBLAS_STATUS_INVALID_VALUE == 7 &&
              CUBLAS_STATUS_ARCH_MISMATCH == 8 && CUBLAS_STATUS_MAPPING_ERROR == 11 &&
              CUBLAS_STATUS_EXECUTION_FAILED == 13 && CUBLAS_STATUS_INTERNAL_ERROR == 14 &&
              CUBLAS_STATUS_NOT_SUPPORTED == 15 && CUBLAS_STATUS_LICENSE_ERROR == 16);
static_assert(CUBLASLT_ORDER_COL == 0 && CUBLASLT_ORDER_ROW == 1 &&
              CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4 &&
              CUBLASLT_EPILOGUE_GELU_AUX == 160 && CUBLASLT_EPILOGUE_GELU_AUX_BIAS == 164 &&
              CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 &&
              CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8 &&
              CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE == 26 && CUBLASLT_MATRIX_LAYOUT_ORDER == 1 &&
              CUBLASLT_MATRIX_LAYOUT_COLS == 3 && CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 &&
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3 &&
              CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2 && CUBLASLT_REDUCTION_SCHEME_MASK == 7 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == 6 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == 7 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);

static_assert(
    same<Cublas<cublasLtHandle_t*>>(&cublasLtCreate) &&
    same<Cublas<cublasLtHandle_t>>(&cublasLtDestroy) && same<Size (*)()>(&cublasLtGetVersion) &&
    same<const char* (*)(cublasStatus_t)>(&cublasLtGetStatusName) &&
    same<const char* (*)(cublasStatus_t)>(&cublasLtGetStatusString) &&
    same<Cublas<cublasLtMatmulDesc_t*, cublasComputeType_t, cudaDataType_t>>(
        &cublasLtMatmulDescCreate) &&
    same<Cublas<cublasLtMatmulDesc_t>>(&cublasLtMatmulDescDestroy) &&
    same<Cublas<cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*, Size>>(
        &cublasLtMatmulDescSetAttribute) &&
    same<Cublas<cublasLtMatrixLayout_t*, cudaDataType, std::uint64_t, std::uint64_t, std::int64_t>>(
        &cublasLtMatrixLayoutCreate) &&
    same<Cublas<cublasLtMatrixLayout_t>>(&cublasLtMatrixLayoutDestroy) &&
    same<Cublas<cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*, Size>>(
        &cublasLtMatrixLayoutSetAttribute) &&
    same<Cublas<cublasLtMatmulPreference_t*>>(&cublasLtMatmulPreferenceCreate) &&
    same<Cublas<cublasLtMatmulPreference_t>>(&cublasLtMatmulPreferenceDestroy) &&
    same<Cublas<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*,
                Size>>(&cublasLtMatmulPreferenceSetAttribute) &&
    same<Cublas<cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*, int*>>(
        &cublasLtMatmulAlgoGetHeuristic) &&
    CUBLASLT_ALGO_CONFIG_ID == 0 &&
    same<Cublas<const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t, void*, Size,
                Size*>>(&cublasLtMatmulAlgoConfigGetAttribute) &&
    same<Cublas<cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                const cublasLtMatmulAlgo_t*, void*, Size, cudaStream_t>>(&cublasLtMatmul));

static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 &&
              ncclInternalError == 3 && ncclInvalidArgument == 4 && ncclInvalidUsage == 5 &&
              ncclRemoteError == 6 && ncclInProgress == 7 && ncclSum == 0 && ncclMax == 2 &&
              ncclInt32 == 2 && ncclInt == 2 && ncclFloat32 == 7 && ncclFloat == 7 &&
              ncclFloat64 == 8 && ncclDouble == 8 && ncclBfloat16 == 9);
static_assert(sizeof(ncclUniqueId) == 128 && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(NCCL_SPLIT_NOCOLOR == -1);
[[maybe_unused]] ncclConfig_t configured() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = 16;
  config.splitShare = 1;
  config.commName = "a name";
  return config;
}

using Comm = ncclComm_t;
using Type = ncclDataType_t;
static_assert(
    same<Nccl<int*>>(&ncclGetVersion) && same<const char* (*)(ncclResult_t)>(&ncclGetErrorString) &&
    same<const char* (*)(Comm)>(&ncclGetLastError) && same<Nccl<ncclUniqueId*>>(&ncclGetUniqueId) &&
    same<Nccl<Comm*, int, ncclUniqueId, int>>(&ncclCommInitRank) &&
    same<Nccl<Comm*, int, ncclUniqueId, int, ncclConfig_t*>>(&ncclCommInitRankConfig) &&
    same<Nccl<Comm, int, int, Comm*, ncclConfig_t*>>(&ncclCommSplit) &&
    same<Nccl<Comm>>(&ncclCommFinalize) && same<Nccl<Comm>>(&ncclCommDestroy) &&
    same<Nccl<Comm>>(&ncclCommAbort) && same<Nccl<Comm, ncclResult_t*>>(&ncclCommGetAsyncError) &&
    same<Nccl<Comm, int*>>(&ncclCommCount) && same<Nccl<Comm, int*>>(&ncclCommUserRank) &&
    same<Nccl<const void*, void*, Size, Type, ncclRedOp_t, Comm, cudaStream_t>>(&ncclAllReduce) &&
    same<Nccl<const void*, void*, Size, Type, ncclRedOp_t, Comm, cudaStream_t>>(
        &ncclReduceScatter) &&
    same<Nccl<const void*, void*, Size, Type, Comm, cudaStream_t>>(&ncclAllGather) &&
    same<Nccl<const void*, void*, Size, Type, int, Comm, cudaStream_t>>(&ncclBroadcast) &&
    same<Nccl<const void*, Size, Type, int, Comm, cudaStream_t>>(&ncclSend) &&
    same<Nccl<void*, Size, Type, int, Comm, cudaStream_t>>(&ncclRecv) &&
    same<Nccl<>>(&ncclGroupStart) && same<Nccl<>>(&ncclGroupEnd));

}  // namespace
