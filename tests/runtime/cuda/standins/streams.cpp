// Streams, events and launches of kernels.
#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/graphs.hpp"
#include "tests/runtime/cuda/standins/launch.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

using namespace echelon::standins;

namespace {

std::function<bool()> stream_over(const CUstream_st& stream) {
  if (stream.queue.empty()) return [] { return true; };
  return [last = stream.queue.back()->over] { return *last; };
}

/// cudaErrorNotReady, unless it is over after some steps.
cudaError_t asked(Machine::Lock& lock, const std::function<bool()>& over) {
  if (const cudaError_t error = machine().throw_fault(false); error != cudaSuccess) return error;
  machine().run_some(lock);
  return over() ? cudaSuccess : failed(cudaErrorNotReady);
}

std::function<bool()> event_over(const CUevent_st& event) {
  if (!event.latest) return [] { return true; };
  return [record = event.latest] { return record->over; };
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  const Machine::Lock lock;
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) return failed(cudaErrorInvalidValue);
  *pStream = machine().new_stream(flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Machine::Lock lock;
  if (!machine().knows(stream) || stream->capture) {
    return machine().blame("a stream is destroyed that is not there, or captured",
                           cudaErrorInvalidResourceHandle);
  }
  machine().remove(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Machine::Lock lock;
  machine().check(stream);
  if (stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return machine().wait(lock, stream_over(*stream),
                        [name = said(*stream)] { return "cudaStreamSynchronize of " + name; });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Machine::Lock lock;
  machine().check(stream);
  if (stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return asked(lock, stream_over(*stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  const Machine::Lock lock;
  machine().check(stream);
  machine().check(event);
  if (flags != 0) return failed(cudaErrorNotSupported);
  const std::shared_ptr<Record> record = event->latest;
  if (!record) return cudaSuccess;
  if (record->capture || stream->capture) return join(*stream, *record);
  const std::string what = "event " + std::to_string(event->number);
  machine().enqueue(stream, plain(
                                "a wait for " + what, [] {},
                                [record, what]() -> std::string {
                                  return record->over ? "" : what + " of " + record->where;
                                }));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const Machine::Lock lock;
  if ((flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming}) != 0) {
    return failed(cudaErrorNotSupported);
  }
  *event = machine().new_event(flags);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Machine::Lock lock;
  if (!machine().knows(event)) {
    return machine().blame("an event is destroyed that is not there",
                           cudaErrorInvalidResourceHandle);
  }
  machine().remove(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  machine().check(event);
  if (event->device != stream->device) return failed(cudaErrorInvalidResourceHandle);
  const auto record = std::make_shared<Record>();
  record->where = said(*stream);
  event->latest = record;
  if (stream->capture) {
    record->capture = stream->capture;
    record->tips = stream->tips;
    return cudaSuccess;
  }
  const auto run = [record] {
    record->over = true;
    record->when = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(machine().ahead);
  };
  machine().enqueue(stream, plain("a record of event " + std::to_string(event->number), run));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Machine::Lock lock;
  machine().check(event);
  if (event->latest && event->latest->capture) return failed(cudaErrorCapturedEvent);
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return machine().wait(lock, event_over(*event), [number = event->number] {
    return "cudaEventSynchronize of event " + std::to_string(number);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine::Lock lock;
  machine().check(event);
  if (event->latest && event->latest->capture) return failed(cudaErrorCapturedEvent);
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return asked(lock, event_over(*event));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Machine::Lock lock;
  machine().check(start);
  machine().check(end);
  if (((start->flags | end->flags) & cudaEventDisableTiming) != 0 || !start->latest ||
      !end->latest || start->device != end->device) {
    return failed(cudaErrorInvalidResourceHandle);
  }
  if (start->latest->capture || end->latest->capture) return failed(cudaErrorCapturedEvent);
  if (!start->latest->over || !end->latest->over) return failed(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->latest->when - start->latest->when).count();
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
  const Machine::Lock lock;
  *attr = {};
  machine().loaded.emplace(this_thread().device, func);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Machine::Lock lock;
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  return machine().wait(lock, all_over(this_thread().device),
                        [] { return "cudaDeviceSynchronize"; });
}

namespace echelon::standins {

cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel,
                          const std::vector<const void*>& pointers,
                          const std::function<void()>& run) {
  const auto grid = [config, kernel, run] {
    emulation::run_grid(kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes, run);
  };
  const Machine::Lock lock;
  if (config.stream == nullptr) {
    grid();
    return cudaSuccess;
  }
  machine().check(config.stream);
  emulation::check_launch(kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes);
  const int device = config.stream->device;
  if (device != this_thread().device) return failed(cudaErrorInvalidResourceHandle);
  const std::string name = emulation::name_of_kernel(kernel);
  if (machine().settings().loads_kernels_first && machine().loaded.count({device, kernel}) == 0) {
    machine().complain(name + " is loaded by its first launch");
  }
  if (machine().launches++ == machine().settings().refused_launch) {
    return failed(cudaErrorLaunchOutOfResources);
  }
  if (config.stream->capture && machine().settings().refuses_captured_launches)
    return failed(cudaErrorStreamCaptureInvalidated);
  const auto check = [pointers, device, name] {
    for (const void* pointer : pointers) {
      if (pointer != nullptr) check_operand(name, pointer, 0, device, true);
    }
  };
  check();
  machine().enqueue(config.stream, plain(name, [check, grid] {
                      check();
                      grid();
                    }));
  return cudaSuccess;
}

}  // namespace echelon::standins
