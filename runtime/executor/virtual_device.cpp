#include "runtime/executor/virtual_device.hpp"

#include <algorithm>

namespace echelon {

VirtualDevice::VirtualDevice(RunThreads& run_threads, const Schedule& schedule,
                             const ProcessGrid& grid, Takes takes, TakesWithin within)
    : schedule_(schedule),
      grid_(grid),
      takes_(std::move(takes)),
      within_(std::move(within)),
      clocks_(static_cast<std::size_t>(grid.ranks())),
      monitor_(run_threads) {}

void VirtualDevice::begin_step(int rank, std::int64_t, bool) {
  Clock& clock = clocks_[static_cast<std::size_t>(rank)];
  clock.free.fill(*std::max_element(clock.free.begin(), clock.free.end()));
  const auto program = static_cast<std::size_t>(grid_.coordinates(rank).pp);
  clock.end.assign(schedule_.programs[program].instructions.size(), {});
}

Seconds VirtualDevice::now(int rank, Queue queue) const {
  return clocks_[static_cast<std::size_t>(rank)].free[static_cast<std::size_t>(queue)];
}

void VirtualDevice::execute(Work& work) {
  const Instruction& i = work.instruction;
  Clock& clock = clocks_[static_cast<std::size_t>(work.rank)];
  Seconds& free = clock.free[static_cast<std::size_t>(i.queue)];
  Seconds ready = free;
  for (const std::uint32_t id : i.after) ready = std::max(ready, clock.end[id]);
  work.ready = ready;
  Seconds takes = takes_(work.rank, i);
  if (const Group group = group_of(work.rank, i.op); group.members > 1) {
    const Communication communication =
        join_communication({work.step, *i.sequence, group.number}, group.members, ready, takes);
    ready = communication.ready;
    takes = communication.takes;
  }
  work.transfer_began = ready;
  if (within_) work.within = within_(work.rank, i);
  free = clock.end[i.id] = ready + takes;
  work.report_done(i);
}

VirtualDevice::Group VirtualDevice::group_of(int rank, Op op) const {
  const Coordinates at = grid_.coordinates(rank);
  switch (op) {
    case Op::send_activation:
    case Op::recv_activation:
    case Op::send_gradient:
    case Op::recv_gradient:
    case Op::reduce_tied_embedding: return {grid_.group(Axis::pp, rank).front(), 2};
    case Op::norm_reduce: return {0, grid_.ranks()};
    case Op::gather_parameters:
    case Op::gather_updated:
    case Op::reduce_gradients:
      return {grid_.rank({.tp = at.tp, .cp = 0, .dp = 0, .pp = at.pp}),
              grid_.degree(Axis::dp) * grid_.degree(Axis::cp)};
    default: return {rank, 1};
  }
}

VirtualDevice::Communication VirtualDevice::join_communication(const Key& key, int members,
                                                               Seconds ready, Seconds takes) {
  Communication* const communication = monitor_.change([&] {
    Communication& at = communications_[key];
    at.ready = std::max(at.ready, ready);
    at.takes = std::max(at.takes, takes);
    ++at.arrived;
    return &at;
  });
  monitor_.await([&] { return communication->arrived == members; });
  return monitor_.change([&] {
    const Communication transfer_began = *communication;
    if (++communication->left == members) communications_.erase(key);
    return transfer_began;
  });
}

}  // namespace echelon
