// Two machines on this one: network namespaces, with a link of shaped bandwidth between them.
#pragma once

#include <unistd.h>

#include <string>

#include "tests/support/process.hpp"
#include "tests/support/text.hpp"

namespace echelon::test {

class TwoMachines {
 public:
  /// Why there can be none here; empty if there can.
  [[nodiscard]] static std::string missing() {
    if (run_shell(kPath + "command -v ip && command -v tc").exit_code != 0) {
      return "ip and tc are not installed (apt-get install iproute2)";
    }
    if (run_shell(kPath + "ip netns add echelon-probe && ip netns del echelon-probe").exit_code !=
        0) {
      return "network namespaces need root";
    }
    return {};
  }

  /// `megabits` per second in each direction.
  explicit TwoMachines(int megabits) {
    (void)run_shell(kPath + "ip netns del " + name(0) + "; ip netns del " + name(1));
    std::string up = kPath + "set -e; ip netns add " + name(0) + "; ip netns add " + name(1) +
                     "; ip link add eth0 netns " + name(0) + " type veth peer name eth0 netns " +
                     name(1);
    for (const int machine : {0, 1}) {
      up += "; ip -n " + name(machine) + " addr add " + address(machine) + "/24 dev eth0; ip -n " +
            name(machine) + " link set lo up; ip -n " + name(machine) +
            " link set eth0 up; tc -n " + name(machine) + " qdisc add dev eth0 root tbf rate " +
            std::to_string(megabits) + "mbit burst 64kb latency 200ms";
    }
    failure_ = run_shell(up).err;
  }
  ~TwoMachines() {
    for (const int machine : {0, 1}) (void)run_shell(kPath + "ip netns del " + name(machine));
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;

  /// Empty if they are up.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] static std::string address(int machine) {
    return "10.77.0." + std::to_string(machine + 1);
  }
  /// What to put before a command so that it runs on a machine.
  [[nodiscard]] static std::string on(int machine) {
    return kPath + "exec ip netns exec " + name(machine) + " ";
  }

 private:
  inline static const std::string kPath = "PATH=$PATH:/usr/sbin:/sbin; ";
  /// Of this test process alone.
  static std::string name(int machine) {
    return "echelon-" + std::to_string(getpid()) + "-" + std::to_string(machine);
  }
  std::string failure_;
};

}  // namespace echelon::test
