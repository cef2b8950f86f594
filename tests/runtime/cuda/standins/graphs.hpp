// Captures of streams, and the resulting graphs. Under the machine's lock.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {

/// Device memory that an executable graph takes for each of its nodes, as if it were a driver's.
inline constexpr std::size_t kNodeBytes = 4096;

struct Capture {
  Graph graph;
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  bool valid = true;
  std::vector<CUstream_st*> streams;
};

/// Appends to the graph a stream is captured for.
void record(CUstream_st& stream, const Operation& operation);
/// True, and the capture is invalidated: this thread captures, and may not wait or allocate.
bool forbidden_in_capture();
/// The stream waits for the nodes of a captured event and joins its capture.
cudaError_t join(CUstream_st& stream, const Record& record);
cudaError_t spoil(CUstream_st& stream, cudaError_t error);

/// The graph that a capture goes into, as the program names it.
cudaGraph_t handle_of(const Capture& capture);
/// The graph of such a handle, or of a finished graph's; nullptr: none.
Graph* graph_behind(cudaGraph_t graph);

/// Returns a test of whether all work now in the device's streams has finished.
std::function<bool()> all_over(int device);

}  // namespace echelon::standins
