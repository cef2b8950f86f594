// Members of communicators, for the tests of the stand-ins.
#pragma once

#include <nccl.h>

#include <initializer_list>
#include <thread>

#include "tests/runtime/cuda/standins/rig.hpp"

namespace echelon::standins {

/// A rank's thread, device, communicator and stream.
struct Member {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  [[nodiscard]] cudaError_t wait() const { return cudaStreamSynchronize(stream); }
};

inline void expect(ncclResult_t result) {
  expect(result == ncclSuccess, ncclGetErrorString(result));
}

inline ncclConfig_t named(const char* name, int blocking = 1) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  config.commName = name;
  return config;
}

/// The exception of each rank's thread; empty if there was none.
template <class Body>
std::vector<std::string> in_threads(int ranks, const Body& body) {
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        wrong[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

inline void free_memory(const Member& me, std::initializer_list<void*> memory) {
  expect(ncclCommDestroy(me.comm));
  for (void* one : memory) expect(cudaFree(one));
  expect(cudaStreamDestroy(me.stream));
}

}  // namespace echelon::standins
