// Copies and settings of memory. Bytes are read and written when the operation is executed.
#include <cstring>

#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

/// Pack rows of equal width.
struct Rows {
  unsigned char* first;
  std::size_t pitch;
  std::size_t width;
  std::size_t height;
  [[nodiscard]] std::size_t bytes() const { return (height - 1) * pitch + width; }
};

/// Checks one end of a copy: reports faults that the call would not return as errors.
cudaError_t check_end(const std::string& who, const Rows& rows, bool device_asked, bool host_asked,
                      int device) {
  const auto where = allocations().find(rows.first, rows.bytes());
  if (device_asked) {
    check_operand(who, rows.first, rows.bytes(), device);
    return cudaSuccess;
  }
  if (!where) return cudaErrorNotSupported;  // pageable, and then a copy need not be asynchronous
  if (where->device == kPinned) return cudaSuccess;
  if (host_asked) return cudaErrorInvalidValue;
  check_operand(who, rows.first, rows.bytes(), device);
  return cudaSuccess;
}

cudaError_t copy_rows(Rows to, Rows from, cudaMemcpyKind kind, cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  const int device = stream->device;
  const std::string who =
      "a copy of " + std::to_string(to.width * to.height) + " bytes in " + said(*stream);
  if (kind == cudaMemcpyHostToHost) return failed(cudaErrorNotSupported);
  if (to.width == 0 || to.height == 0) return cudaSuccess;
  const bool known = kind != cudaMemcpyDefault;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  cudaError_t error = check_end(who, to, to_device, known && !to_device, device);
  if (error == cudaSuccess) {
    error = check_end(who, from, from_device, known && !from_device, device);
  }
  if (error != cudaSuccess) return failed(error);
  if (to.first < from.first + from.bytes() && from.first < to.first + to.bytes()) {
    machine().complain(who + ": source and destination overlap");
  }
  const auto run = [=] {
    check_operand(who, to.first, to.bytes(), device, true);
    check_operand(who, from.first, from.bytes(), device, true);
    for (std::size_t row = 0; row < to.height; ++row) {
      std::memcpy(to.first + row * to.pitch, from.first + row * from.pitch, to.width);
    }
  };
  machine().enqueue(stream,
                    plain("a copy of " + std::to_string(to.width * to.height) + " bytes", run));
  return cudaSuccess;
}

Rows rows_at(const void* first, std::size_t pitch, std::size_t width, std::size_t height) {
  return {static_cast<unsigned char*>(const_cast<void*>(first)), pitch, width, height};
}

}  // namespace
}  // namespace echelon::standins

using namespace echelon::standins;

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_rows(rows_at(dst, count, count, 1), rows_at(src, count, count, 1), kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (width > dpitch || width > spitch) return failed(cudaErrorInvalidPitchValue);
  return copy_rows(rows_at(dst, dpitch, width, height), rows_at(src, spitch, width, height), kind,
                   stream);
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  if (count == 0) return cudaSuccess;
  const std::string who = "a setting of " + std::to_string(count) + " bytes";
  const int device = stream->device;
  check_operand(who, devPtr, count, device);
  const auto run = [=] {
    check_operand(who, devPtr, count, device);
    std::memset(devPtr, value, count);
  };
  machine().enqueue(stream, plain(who, run));
  return cudaSuccess;
}
