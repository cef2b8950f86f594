// Host time of calls of NCCL, on a communicator of one rank that sends to itself.
#include <fmt/format.h>
#include <nccl.h>

#include <utility>

#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/measure/measure_parts.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {
namespace {

void check_nccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw RunFailure(RunFailure::Kind::environment,
                   fmt::format("{}: NCCL says {}", what, ncclGetErrorString(result)));
}

/// A communicator whose calls return at once when nonblocking, and are then polled.
class LoneComm {
 public:
  explicit LoneComm(bool blocking) {
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id), "an id");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    await_result(ncclCommInitRankConfig(&comm_, 1, id, 0, &config), "joining");
  }
  ~LoneComm() {
    if (comm_ != nullptr) static_cast<void>(ncclCommAbort(comm_));
  }
  LoneComm(const LoneComm&) = delete;
  LoneComm& operator=(const LoneComm&) = delete;

  /// A collective of one rank would start neither a kernel nor a thread (ncclLaunchOneRank in
  /// NCCL's src/device/onerank.cu), unlike a message.
  void exchange(float* two, cudaStream_t stream) {
    check_nccl(ncclGroupStart(), "a call");
    accept(ncclSend(two, 1, ncclFloat, 0, comm_, stream));
    accept(ncclRecv(two + 1, 1, ncclFloat, 0, comm_, stream));
    await_result(ncclGroupEnd(), "a call");
  }

 private:
  static void accept(ncclResult_t result) {
    check_nccl(result == ncclInProgress ? ncclSuccess : result, "a call");
  }
  void await_result(ncclResult_t result, const char* what) {
    constexpr Seconds kLimit{10};
    const Seconds begin = steady_now();
    while (result == ncclInProgress) {
      if (steady_now() - begin > kLimit) {
        throw RunFailure(RunFailure::Kind::hang,
                         fmt::format("{}: NCCL is still in progress after 10 s", what));
      }
      check_nccl(ncclCommGetAsyncError(comm_, &result), what);
    }
    check_nccl(result, what);
  }

  ncclComm_t comm_ = nullptr;
};

/// Time of a call until it is on the stream: median over rounds of `count` calls each.
Seconds time_of_call(bool blocking, int count) {
  const OwnStream own = new_stream();
  const DeviceBuffer numbers =
      DeviceBuffer::required(2 * sizeof(float), DeviceBuffer::Where::device, "two numbers");
  clear(numbers, 2 * sizeof(float), own.get());
  LoneComm comm(blocking);
  constexpr int kRounds = 8;
  std::vector<Seconds> times;
  for (int round = 0; round <= kRounds; ++round) {
    const Seconds begin = steady_now();
    for (int i = 0; i < count; ++i) comm.exchange(numbers.as<float>(), own.get());
    if (round > 0) times.push_back((steady_now() - begin) / count);  // the first makes channels
    check(cudaStreamSynchronize(own.get()), "wait for NCCL");
  }
  return median(std::move(times));
}

}  // namespace

void measure_nccl_calls(const MeasuredSizes& sizes,
                        const std::function<void(const std::string&)>& log, GpuFacts& facts,
                        std::vector<Measurement>& out) {
  static_cast<void>(ncclGetVersion(&facts.nccl));  // fails only for a null pointer
  if (sizes.nccl_calls == 0) return;
  log("calls of NCCL");
  for (const bool blocking : {true, false}) {
    const char* const what = blocking ? "call of NCCL, blocking" : "call of NCCL, nonblocking";
    try {
      out.push_back({what, 1, 1, {sizes.nccl_calls}, time_of_call(blocking, sizes.nccl_calls)});
    } catch (const RunFailure& failure) {
      log(std::string(what) + " is left out: " + failure.what());
    }
  }
}

}  // namespace echelon::cuda
