// How a test sets up the machine that the stand-ins of the CUDA runtime, cuBLASLt and NCCL pretend.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace echelon::standins {

/// Which of the operations that may run is run next.
enum class Order : std::uint8_t {
  random,
  newest_first,  ///< always the stream that was created last
  starve_one,    ///< one stream, drawn by the seed, only when no other can go on
  eager,         ///< random, but everything that may run does so while it is enqueued
};

/// A member of communicators fails at its operation number `after`, counted from 0.
struct Failure {
  enum class Kind : std::uint8_t {
    never_arrives,  ///< the call is accepted, and its stream stays there
    dies,           ///< the call gives ncclSystemError; the others' asynchronous error says so
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
  /// The first one's number on its computer, where other processes see others.
  int first_device = 0;
  /// Members of communicators are told when another one's process is gone, as where NCCL talks over
  /// a network. Within a computer it tells them nothing: github.com/NVIDIA/nccl/issues/279.
  bool over_network = false;
  std::size_t device_bytes = std::size_t{1} << 30U;
  /// How long a host thread waits while nothing goes on and nothing comes, before it fails.
  std::chrono::milliseconds limit{30000};
  std::vector<Failure> failures;
  /// Operations that a stream takes while it does not get on; the driver would hold the thread that
  /// brings another one, whatever that waits for. Source: stackoverflow.com/questions/53970187.
  std::size_t stream_holds = 1000;
  /// A kernel that was not loaded to the device before it is launched there is a fault.
  bool loads_kernels_first = false;
};

/// A new machine: nothing of an earlier one is valid, and no host thread may be using that.
void start(const Settings& settings);

/// Of this process, ever.
struct Counts {
  int taken = 0;  ///< blocks of memory of devices and pinned ones, streams, events
  int waits = 0;  ///< calls that hold the host until a device has come so far
};
Counts counts();

/// Throws emulation::Fault: the one that happened, or what was not given back (memory, streams,
/// events, graphs, handles, communicators) or not finished.
void check_nothing_left();

}  // namespace echelon::standins
