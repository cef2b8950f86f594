// Captures of streams, and the graphs that come of them. Under the machine's lock.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {

struct Capture {
  Graph graph;
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  bool valid = true;
  std::vector<CUstream_st*> streams;
};

/// Appends to the graph a stream is captured for.
void record(CUstream_st& stream, const Operation& operation);
/// True, and the capture is spoilt: this thread captures, and so may not wait or allocate.
bool forbidden_in_capture();
/// The stream waits for what a captured event stands for, joining its capture.
cudaError_t join(CUstream_st& stream, const Record& record);
cudaError_t spoil(CUstream_st& stream, cudaError_t error);

/// The graph that a capture goes into, as the program names it.
cudaGraph_t handle_of(const Capture& capture);
/// What such a name, or one of a finished graph, stands for; nullptr: nothing.
Graph* graph_behind(cudaGraph_t graph);

/// Tells whether all that lies in the device's streams now is over.
std::function<bool()> all_over(int device);

}  // namespace echelon::standins
