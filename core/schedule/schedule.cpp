#include "core/schedule/schedule.hpp"

#include <fmt/format.h>

namespace echelon {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::load_batch: return "load";
    case Op::forward: return "F";
    case Op::backward: return "B";
    case Op::backward_input: return "I";
    case Op::backward_weight: return "W";
    case Op::send_activation: return "send_f";
    case Op::recv_activation: return "recv_f";
    case Op::send_gradient: return "send_b";
    case Op::recv_gradient: return "recv_b";
    case Op::gather_parameters: return "gather";
    case Op::release_parameters: return "release";
    case Op::reduce_gradients: return "reduce";
    case Op::reduce_tied_embedding: return "tied";
    case Op::norm_reduce: return "norm";
    case Op::clip: return "clip";
    case Op::optimizer_step: return "step";
    case Op::gather_updated: return "updated";
    case Op::zero_gradients: return "zero";
  }
  return "?";
}

std::string_view name_of(Queue queue) {
  switch (queue) {
    case Queue::compute: return "compute";
    case Queue::p2p_forward: return "p2p_forward";
    case Queue::p2p_backward: return "p2p_backward";
    case Queue::gather: return "gather";
    case Queue::reduce: return "reduce";
    case Queue::host: return "host";
  }
  return "?";
}

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::batch: return "batch";
    case BufferKind::input: return "input";
    case BufferKind::saved: return "saved";
    case BufferKind::output: return "output";
    case BufferKind::output_gradient: return "output_gradient";
    case BufferKind::input_gradient: return "input_gradient";
    case BufferKind::weight_inputs: return "weight_inputs";
    case BufferKind::parameters: return "parameters";
  }
  return "?";
}

Queue home_queue(Op op) {
  switch (op) {
    case Op::load_batch: return Queue::host;
    case Op::send_activation:
    case Op::recv_activation: return Queue::p2p_forward;
    case Op::send_gradient:
    case Op::recv_gradient: return Queue::p2p_backward;
    case Op::gather_parameters:
    case Op::gather_updated: return Queue::gather;
    case Op::reduce_gradients:
    case Op::reduce_tied_embedding:
    case Op::norm_reduce: return Queue::reduce;
    default: return Queue::compute;
  }
}

bool is_communication(Op op) {
  const Queue home = home_queue(op);
  return home != Queue::compute && home != Queue::host;
}

std::string describe(int rank, const Instruction& instruction) {
  std::string text = fmt::format("rank {} #{} {}", rank, instruction.id, name_of(instruction.op));
  if (instruction.chunk) text += fmt::format(" c{}", *instruction.chunk);
  if (instruction.microbatch) text += fmt::format(" m{}", *instruction.microbatch);
  if (instruction.unit) text += fmt::format(" u{}", *instruction.unit);
  return text;
}

}  // namespace echelon
