// Communicators of the CUDA backend: they take memory of a GPU and enqueue their work on a stream.
//
// A call returns when its work is on the stream it was created with; later work on that stream sees
// the results and may overwrite the operands. Nothing is allocated in a call. transfer_began() is
// meaningless: times come from events. The calling thread's device is the stream's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/call.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

/// For a rank alone in its group: the stream copies if in and out differ.
[[nodiscard]] std::unique_ptr<Communicator> solo_communicator(Stream stream);

/// Ranks that share a GPU, threads of this process and members of `run_threads`; `streams` by
/// member, all of the calling thread's device. At most kMaxMembers. Members meet on the host: the
/// last one to arrive enqueues the call on its stream, after the present work of the others'
/// streams, which then wait for it. So mismatched calls are reported as for threads, and sums have
/// the same bits. No memory is allocated.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> loopback_communicators(
    RunThreads& run_threads, const Group& group, std::span<const Stream> streams);

}  // namespace echelon::cuda
