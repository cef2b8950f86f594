// Communicators of the CUDA backend: ends that take memory of a GPU and put their work on a stream.
//
// A call returns when its work is on the stream it was made with; what is put there afterwards
// finds the results, and may overwrite what was read. Nothing is allocated in a call. met() tells
// nothing: times come from events. The calling thread's device is the stream's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/call.hpp"
#include "runtime/crew.hpp"
#include "runtime/cuda/kernels.hpp"

namespace echelon::cuda {

/// Of a rank that is alone in its group: where in and out differ, the stream copies.
[[nodiscard]] std::unique_ptr<Communicator> solo_communicator(Stream stream);

/// Ranks that share a GPU, threads of this process and members of `crew`; `streams` by member, all
/// of the calling thread's device. At most kMembersAtMost. Members meet on the host: a call is put
/// on the stream of the member that comes last, behind what the others' streams hold by then, and
/// the others' streams wait for it. So calls that do not agree are told as those of threads are,
/// and sums have the same bits. No memory is taken.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> loopback_communicators(
    Crew& crew, const Group& group, std::span<const Stream> streams);

}  // namespace echelon::cuda
