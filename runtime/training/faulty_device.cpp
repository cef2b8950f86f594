#include "runtime/training/faulty_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>
#include <utility>

namespace echelon {

FaultyDevice::FaultyDevice(RunThreads& run_threads, Device& inner, World& world,
                           std::vector<InjectedFault> faults, std::int64_t first_step, Means means)
    : run_threads_(run_threads),
      inner_(inner),
      world_(world),
      faults_(std::move(faults)),
      first_step_(first_step),
      means_(std::move(means)) {}

bool FaultyDevice::is_due(const InjectedFault& fault, const Work& work) const {
  const std::int64_t step = first_step_ + work.step;
  if (fault.rank != work.rank || fault.kind == FaultKind::disk_full) return false;
  const Instruction& i = work.instruction;
  if (fault.kind == FaultKind::slow) return step >= fault.step && i.op == Op::forward;
  if (step != fault.step) return false;
  const bool at_norm = fault.kind == FaultKind::nan || fault.kind == FaultKind::skip ||
                       fault.kind == FaultKind::mismatch;
  if (at_norm) return i.op == Op::norm_reduce;
  return i.op == Op::forward && i.microbatch == 0 && i.chunk == 0;
}

void FaultyDevice::execute(Work& work) {
  for (const InjectedFault& fault : faults_) {
    if (is_due(fault, work) && commit(fault, work)) return;
  }
  inner_.execute(work);
}

/// Whether it replaces the instruction.
bool FaultyDevice::commit(const InjectedFault& fault, Work& work) {
  switch (fault.kind) {
    case FaultKind::stop: stop(); return false;
    case FaultKind::kill: std::raise(SIGKILL); return false;
    case FaultKind::slow:
      std::this_thread::sleep_for(std::chrono::duration<double>(kSlowDown.in(kSecond)));
      return false;
    case FaultKind::nan: means_.make_nan(work.rank); return false;
    case FaultKind::corrupt: means_.corrupt_message(); return false;
    case FaultKind::skip: work.report_done(work.instruction); return true;
    case FaultKind::mismatch: {
      std::array<double, 3> numbers{};
      world_.at(work.rank, GroupRole::norm)
          .all_reduce(numbers.data(), numbers.size(), Element::f64, Reduction::sum);
      return false;
    }
    case FaultKind::oom: throw std::bad_alloc();
    case FaultKind::disk_full: return false;
  }
  return false;
}

/// A process of one of several ranks stops as a whole; among threads this one does.
void FaultyDevice::stop() {
  if (world_.local_ranks().size() == 1 && world_.ranks() > 1) {
    std::raise(SIGSTOP);
    return;
  }
  while (!run_threads_.stopping()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Status check_faults(const std::vector<InjectedFault>& faults, const FaultTargets& run) {
  constexpr const char* kFlag = "--inject";
  for (const InjectedFault& fault : faults) {
    if (fault.rank >= run.ranks) {
      return input_error(kFlag, fmt::format("rank {}", fault.rank),
                         fmt::format("a rank from 0 to {}", run.ranks - 1));
    }
    if (fault.kind == FaultKind::corrupt && !run.corrupts) {
      const bool threads = run.launcher == "local";
      return input_error(
          kFlag,
          threads ? "corrupt, where all ranks are threads, which send no messages"
                  : "corrupt, where MPI carries the messages",
          "one process per rank, connected by TCP",
          "start the processes with torchrun, srun, mpirun -n N plan run, or by hand");
    }
    if (fault.kind == FaultKind::disk_full && !run.checkpoints) {
      return input_error(kFlag, "disk-full, in a run without checkpoints", "--checkpoint-dir DIR");
    }
    if (fault.kind == FaultKind::mismatch && run.backend != "cpu") {
      return input_error(kFlag, "mismatch, with --backend cuda",
                         "--backend cpu: NCCL does not compare the sizes of calls");
    }
  }
  return Done{};
}

Disk disk_that_fills(std::shared_ptr<const std::atomic<bool>> full) {
  return Disk([full = std::move(full)](std::string_view operation, const std::string&) {
    const bool takes_space = operation == "allocate" || operation == "write";
    return *full && takes_space ? ENOSPC : 0;
  });
}

bool has_full_disk(const std::vector<InjectedFault>& faults, int rank, std::int64_t steps) {
  return std::any_of(faults.begin(), faults.end(), [&](const InjectedFault& fault) {
    return fault.kind == FaultKind::disk_full && fault.rank == rank && steps > fault.step;
  });
}

}  // namespace echelon
