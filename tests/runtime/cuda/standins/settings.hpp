// Setup of the machine that the stand-ins of the CUDA runtime, cuBLASLt and NCCL emulate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace echelon::standins {

/// The choice of the next operation among the ready ones.
enum class Order : std::uint8_t {
  random,
  newest_first,  ///< always the most recently created stream
  starve_one,    ///< one stream, drawn by the seed, only when no other can go on
  eager,         ///< random, but every ready operation runs as soon as it is enqueued
};

/// A member of communicators fails at its operation number `after`, counted from 0.
struct Failure {
  enum class Kind : std::uint8_t {
    never_arrives,  ///< the call is accepted, and its stream never passes it
    never_returns,  ///< the call holds its thread until the communicator is aborted
    dies,  ///< the call returns ncclSystemError, and the others get it as asynchronous error
  };
  Kind kind = Kind::never_arrives;
  int rank = 0;
  int after = 0;
  std::string communicator;  ///< commName of its ncclConfig_t; empty: all
};

struct Settings {
  std::uint64_t seed = 1;
  Order order = Order::random;
  int devices = 1;
  /// The first device's number on its computer, if other processes see other devices.
  int first_device = 0;
  /// Members of communicators are notified when another one's process has ended, as with NCCL over
  /// a network. Within a computer NCCL does not notify them: github.com/NVIDIA/nccl/issues/279.
  bool over_network = false;
  std::size_t device_bytes = std::size_t{1} << 30U;
  int cache_bytes = 40 << 20;         ///< of the L2 cache
  int shared_per_block = 163 * 1024;  ///< that a launch may ask for
  /// How long a host thread waits without any progress or new operation before it fails.
  std::chrono::milliseconds limit{30000};
  std::vector<Failure> failures;
  /// Operations that a blocked stream accepts; the driver would block the thread that enqueues
  /// another one. Source: stackoverflow.com/questions/53970187.
  std::size_t stream_holds = 1000;
  /// Launching a kernel on a device before it was loaded there is a fault.
  bool loads_kernels_first = false;
  /// The number of the launch on a stream, from 0, that is refused with
  /// cudaErrorLaunchOutOfResources.
  std::optional<int> refused_launch;
  /// Seconds that a product takes by the clock of events: of an algorithm that sums in so many
  /// parts, after so many products of the machine. None: the time of the emulation.
  std::function<double(int parts, int before)> product_time;
  /// The number of the product, from 0, that meets an uncorrectable error of the device's memory:
  /// it and all later calls fail.
  std::optional<int> broken_product;
  bool refuses_captured_products = false;
  bool graph_uploads_lack_memory = false;
  bool refuses_captured_launches = false;  ///< as if something else had ended every capture
};

/// A new machine: nothing of an earlier one stays valid, and no host thread may be using it.
void start(const Settings& settings);

/// Of this process, ever.
struct Counts {
  int taken = 0;                   ///< blocks of memory of devices and pinned ones, streams, events
  int waits = 0;                   ///< calls that block the host until a device has caught up
  int graphs_on_busy_devices = 0;  ///< instantiated or uploaded while work was on the device
  int products_of_zeros = 0;       ///< with a factor that is all zero
  int nccl_ids = 0;                ///< of ncclGetUniqueId
};
Counts counts();

/// Products that ran since start().
struct ProductCounts {
  int runs = 0;
  std::size_t operands = 0;    ///< distinct addresses of their first operands
  int beside_collectives = 0;  ///< while another stream of the device was at a call of NCCL
  int beside_gathers = 0;      ///< … an all-gather
  int suggestions = 0;         ///< times that cuBLASLt was asked for algorithms
};
ProductCounts product_counts();

/// The most streams on which communicators that share resources had calls since start(): one after
/// the other.
int streams_of_resources();

/// Pairs of a communicator's member and a peer that it sends to or receives from, since start():
/// NCCL connects them, and takes memory, when that first happens (src/transport.cc,
/// ncclTransportP2pSetup, of its connection 1).
int connected_peers();

/// Throws emulation::Fault: the one that happened, or one for objects that were not freed (memory,
/// streams, events, graphs, handles, communicators) or work that was not finished.
void check_nothing_left();

}  // namespace echelon::standins
