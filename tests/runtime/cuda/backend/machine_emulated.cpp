#include "tests/runtime/cuda/backend/machine.hpp"

#include <array>

#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon {

bool start_gpus(int count, std::uint64_t seed) {
  using enum standins::Order;
  constexpr std::array kOrders{random, newest_first, starve_one, eager};
  standins::Settings machine;
  machine.seed = seed;
  machine.order = kOrders[seed % kOrders.size()];
  machine.devices = count;
  standins::start(machine);
  return true;
}

void end_gpus() { standins::check_nothing_left(); }

}  // namespace echelon
