#include "topologies/graph/placement.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using echelon::nodes_of_each_domain;
using echelon::place;
using echelon::Placement;

namespace {

struct Enumerated {
  int domains = 0;
  int min_members = 0;
  int max_members = 0;
  int sharing = 0;
};

/// Enumerates every group of the pattern, rank by rank.
Enumerated enumerate(int ranks, int stride, int domain, int gpus) {
  Enumerated worst;
  std::map<int, std::set<int>> groups_touching;
  int number = 0;
  for (int block = 0; block + ranks * stride <= gpus; block += ranks * stride) {
    for (int j = 0; j < stride; ++j, ++number) {
      std::map<int, int> members;
      for (int i = 0; i < ranks; ++i) {
        const int at = (block + j + i * stride) / domain;
        ++members[at];
        groups_touching[at].insert(number);
      }
      const int domains = static_cast<int>(members.size());
      if (domains > worst.domains) worst = {domains, ranks, 0, 0};
      if (domains < worst.domains) continue;
      for (const auto& [at, count] : members) {
        worst.min_members = std::min(worst.min_members, count);
        worst.max_members = std::max(worst.max_members, count);
      }
    }
  }
  for (const auto& [at, groups] : groups_touching) {
    worst.sharing = std::max(worst.sharing, static_cast<int>(groups.size()));
  }
  return worst;
}

}  // namespace

TEST_CASE("placement by arithmetic equals placement by enumeration") {
  for (const int domain : {1, 2, 4, 6, 8, 12}) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (int stride = 1; stride <= 16; ++stride) {
        for (const int blocks : {1, 2, 3, 12}) {
          const int gpus = ranks * stride * blocks;
          if (gpus < domain || gpus % domain != 0) continue;
          INFO("domain " << domain << " ranks " << ranks << " stride " << stride << " gpus "
                         << gpus);
          const Placement found = place(ranks, stride, domain, gpus);
          const Enumerated expected = enumerate(ranks, stride, domain, gpus);
          CHECK(found.domains == expected.domains);
          CHECK(found.min_members == expected.min_members);
          if (found.regular || found.domains <= 2) {
            CHECK(found.per_domain == expected.max_members);
          } else {
            CHECK(found.per_domain == (domain + stride - 1) / stride);
            CHECK(found.per_domain >= expected.max_members);
          }
          CHECK(found.sharing == expected.sharing);
        }
      }
    }
  }
}

TEST_CASE("a group of two whole nodes shares them with no other group") {
  const Placement tp16 = place(16, 1, 8, 64);
  CHECK(tp16.per_domain == 8);
  CHECK(tp16.domains == 2);
  CHECK(tp16.sharing == 1);
}

TEST_CASE("with a stride of three on nodes of eight, some group has one rank in a node") {
  const Placement odd = place(3, 3, 8, 72);
  CHECK_FALSE(odd.regular);
  CHECK(odd.domains == 2);
  CHECK(odd.min_members == 1);
}

TEST_CASE("a group far wider than a domain is placed in constant time") {
  const Placement wide = place(1000, 99'991, 8, 100'000'000);
  CHECK(wide.domains == 1000);
  CHECK(wide.per_domain == 1);
}

TEST_CASE("a job uses equally many nodes of each domain where its nodes divide so") {
  struct Case {
    std::int64_t nodes, whole, each;
  };
  for (const auto& [nodes, whole, each] : {
           Case{64, 18, 16},   // 256 GPUs on racks of 18 nodes of 4: 4 of 64
           Case{72, 18, 18},   // 288: 4 of 72
           Case{32, 18, 16},   // 128: 2 of 64
           Case{24, 18, 12},   // 96: 2 of 48
           Case{128, 18, 16},  // 512: 8 of 64
           Case{27, 18, 9},    // the half
           Case{19, 18, 18},   // prime: 18 and one
           Case{46, 18, 18},   // 23 is too many, 2 less than half
           Case{18, 18, 18},
           Case{7, 18, 7},
           Case{1, 18, 1},
           Case{20, 1, 1},
           Case{9, 2, 1},
       }) {
    INFO(nodes << " nodes on domains of " << whole);
    CHECK(nodes_of_each_domain(nodes, whole) == each);
  }
}
