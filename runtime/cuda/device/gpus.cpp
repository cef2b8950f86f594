#include "runtime/cuda/device/gpus.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/content_hash.hpp"
#include "runtime/comm/local_ranks.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/devices.hpp"
#include "runtime/cuda/kernels/kernels.hpp"

namespace echelon::cuda {
namespace {

constexpr const char* kWhere = "--backend cuda";

/// Distinguishes hosts as NCCL does: containers with different names see different GPUs.
/// Source: NCCL 2.28, getHostHash() in utils.cc.
std::string this_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return name.data() + boot;
}

std::string bus_of(int device) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), bus.size() - 1, device), "ask where a GPU is");
  return bus.data();
}

/// All GPUs visible to this process.
std::string buses_of(int count) {
  std::string all;
  for (int device = 0; device < count; ++device) all += bus_of(device) + " ";
  return all;
}

/// The texts of all ranks, by rank, as fingerprints.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& own) {
  constexpr std::size_t kDigits = 32;
  const std::string text = content_hash(own);
  std::string all(kDigits * static_cast<std::size_t>(comm.size()), '\0');
  constexpr std::int64_t kNumbers = kDigits / sizeof(std::int32_t);
  comm.all_gather(text.data(), all.data(), kNumbers, Element::i32);
  std::vector<std::string> by_rank;
  for (std::size_t at = 0; at < all.size(); at += kDigits) {
    by_rank.push_back(all.substr(at, kDigits));
  }
  return by_rank;
}

}  // namespace

std::string why_no_gpu(cudaError_t status, int driver, int runtime) {
  if (status == cudaSuccess) return "no GPU: CUDA finds none";
  if (status != cudaErrorInsufficientDriver)
    return std::string("no GPU: ") + cudaGetErrorString(status);
  if (driver == 0) return "no GPU: no NVIDIA driver is installed";
  return fmt::format("the NVIDIA driver supports CUDA up to {}, and this build needs {}",
                     version_text(driver), version_text(runtime));
}

Result<int> count_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);  // leaves it alone without a driver
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    int driver = 0;
    int runtime = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    return environment_error(kWhere, why_no_gpu(status, driver, runtime),
                             "--backend cpu needs none");
  }
  return count;
}

Result<bool> are_shared(const std::vector<Seat>& seats, bool in_one_process) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> by_gpu;
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    by_gpu[{seats[rank].host, seats[rank].gpu}].push_back(rank);
  }
  const auto crowded = std::find_if(by_gpu.begin(), by_gpu.end(),
                                    [](const auto& each) { return each.second.size() > 1; });
  if (crowded == by_gpu.end()) return false;
  const std::vector<std::size_t>& ranks = crowded->second;
  if (in_one_process && by_gpu.size() == 1) {
    if (ranks.size() <= kMaxMembers) return true;
    return environment_error(kWhere, fmt::format("{} ranks on one GPU", ranks.size()),
                             fmt::format("at most {} can share one", kMaxMembers));
  }
  const std::string found = fmt::format("ranks {} and {} are on one GPU", ranks[0], ranks[1]);
  if (!in_one_process) {
    return environment_error(
        kWhere, found + ", in different processes",
        "give every process a GPU of its own, or use --launcher local: threads can share one");
  }
  return environment_error(
      kWhere, fmt::format("{}, of {} ranks on {} GPUs", found, seats.size(), by_gpu.size()),
      "use as many GPUs as ranks, or CUDA_VISIBLE_DEVICES=0: then all ranks share one");
}

Result<Gpus> choose_gpus(RunThreads& run_threads, World& host) {
  const Result<int> count = count_gpus();
  if (!count) return count.error();
  std::mutex mutex;
  Gpus gpus;
  std::vector<Seat> seats;
  on_local_ranks(run_threads, host, [&](int rank) {
    Communicator& comm = host.at(rank, GroupRole::control);
    const std::vector<std::string> hosts = gather_texts(comm, this_host());
    const std::vector<std::string> seen = gather_texts(comm, this_host() + buses_of(*count));
    const auto mine = seen.begin() + rank;
    const auto before = std::count(seen.begin(), mine, *mine);
    const int device = static_cast<int>(before) % *count;
    const std::vector<std::string> buses = gather_texts(comm, bus_of(device));
    const std::lock_guard lock(mutex);
    gpus.device[rank] = device;
    seats.clear();
    for (std::size_t each = 0; each < hosts.size(); ++each) {
      seats.push_back({hosts[each], buses[each]});
    }
  });
  const bool alone = host.local_ranks().size() == seats.size();
  const Result<bool> shared = are_shared(seats, alone);
  if (!shared) return shared.error();
  gpus.shared = *shared;
  return gpus;
}

}  // namespace echelon::cuda
