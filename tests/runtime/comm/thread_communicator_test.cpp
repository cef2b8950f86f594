#include "runtime/comm/thread_communicator.hpp"

#include <algorithm>
#include <numeric>

#include "tests/runtime/comm/collectives.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using Ends = std::vector<std::unique_ptr<Communicator>>;

Group group_of(int members) {
  Group group{"tp", std::vector<int>(static_cast<std::size_t>(members))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

/// Runs `work` as every member; returns the results.
template <class Work>
std::vector<Raw> by_all(RunThreads& run_threads, int members, Work&& work) {
  const Ends ends = thread_communicators(run_threads, group_of(members));
  std::vector<Raw> results(ends.size());
  for (std::size_t member = 0; member < ends.size(); ++member) {
    run_threads.add("rank " + std::to_string(member),
                    [&, member] { results[member] = work(*ends[member]); });
  }
  run_threads.run();
  return results;
}

template <class T>
T element_at(const Raw& bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Sum or maximum by hand, in member order, as 32 bits or 64.
template <class T>
Raw by_hand(int members, std::int64_t count, Element element, Reduction how, std::uint64_t seed) {
  using W = std::conditional_t<std::is_same_v<T, std::int32_t>, std::int64_t,
                               std::conditional_t<std::is_same_v<T, double>, double, float>>;
  std::vector<Raw> in;
  for (int member = 0; member < members; ++member) {
    in.push_back(numbers_of(member, count, element, seed));
  }
  Raw out(in[0].size());
  for (std::int64_t i = 0; i < count; ++i) {
    W sum = static_cast<W>(element_at<T>(in[0], i));
    for (std::size_t member = 1; member < in.size(); ++member) {
      const W next = static_cast<W>(element_at<T>(in[member], i));
      sum = how == Reduction::sum ? sum + next : std::max(sum, next);
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(out.data() + i * static_cast<std::int64_t>(sizeof(T)), &rounded, sizeof(T));
  }
  return out;
}

Raw by_hand(int members, std::int64_t count, Element element, Reduction how, std::uint64_t seed) {
  switch (element) {
    case Element::f32: return by_hand<float>(members, count, element, how, seed);
    case Element::f64: return by_hand<double>(members, count, element, how, seed);
    case Element::bf16: return by_hand<Bfloat16>(members, count, element, how, seed);
    case Element::i32: return by_hand<std::int32_t>(members, count, element, how, seed);
  }
  return {};
}

/// all_operations by hand.
Raw expected(int rank, int n, std::int64_t count, Element element, std::uint64_t seed) {
  Raw all;
  const auto keep = [&](const Raw& more) { all.insert(all.end(), more.begin(), more.end()); };
  const auto bytes = [&](std::int64_t elements) { return elements * bytes_of(element); };
  const auto of = [&](int member) { return numbers_of(member, count, element, seed); };
  keep(by_hand(n, count, element, Reduction::sum, seed));
  keep(by_hand(n, count, element, Reduction::max, seed));
  const Raw sums = by_hand(n, count * n, element, Reduction::sum, seed);
  const Raw part(sums.begin() + bytes(rank * count), sums.begin() + bytes((rank + 1) * count));
  keep(part);
  keep(part);
  for (int member = 0; member < n; ++member) keep(of(member));
  for (int member = 0; member < n; ++member) {
    const Raw whole = numbers_of(member, count * n, element, seed);
    keep({whole.begin() + bytes(member * count), whole.begin() + bytes((member + 1) * count)});
  }
  for (const bool even : {true, false}) {
    for (int from = 0; from < n; ++from) {
      const auto part = [&](int to) { return even ? count : uneven_part(count, from, to); };
      std::int64_t before = 0;
      for (int to = 0; to < rank; ++to) before += part(to);
      std::int64_t sent = before;
      for (int to = rank; to < n; ++to) sent += part(to);
      const Raw in = numbers_of(from, sent, element, seed);
      keep({in.begin() + bytes(before), in.begin() + bytes(before + part(rank))});
    }
  }
  for (const bool sent_by_part : {false, true}) {
    for (int i = 0; i < n * kPartsOfEach; ++i) {
      const int from = sent_by_part ? i / kPartsOfEach : i % n;
      const int part = sent_by_part ? i % kPartsOfEach : i / n;
      std::int64_t before = 0;
      std::int64_t sent = 0;
      for (int to = 0; to < n; ++to) {
        for (int p = 0; p < kPartsOfEach; ++p) {
          const std::int64_t more = uneven_part(count, from, to, p);
          const bool first = sent_by_part ? std::pair(p, to) < std::pair(part, rank)
                                          : std::pair(to, p) < std::pair(rank, part);
          before += first ? more : 0;
          sent += more;
        }
      }
      const Raw in = numbers_of(from, sent, element, seed);
      const std::int64_t own = uneven_part(count, from, rank, part);
      keep({in.begin() + bytes(before), in.begin() + bytes(before + own)});
    }
  }
  for (int root = 0; root < n; ++root) keep(of(root));
  if (n > 1) keep(of((rank + n - 1) % n));
  for (int from = 1; from < n && rank == 0; ++from) keep(of(from));
  if (n > 1) keep(of(rank == 0 ? n - 1 : rank));
  return all;
}

void check_all(RunThreads& run_threads, int members, std::int64_t count, Element element,
               std::uint64_t seed) {
  INFO(members << " members, " << count << " " << name_of(element) << ", seed " << seed);
  const auto got = by_all(run_threads, members, [&](Communicator& comm) {
    return all_operations(comm, count, element, seed);
  });
  for (int rank = 0; rank < members; ++rank) {
    // Not `got == expected`: a failure would print both.
    const bool same =
        got[static_cast<std::size_t>(rank)] == expected(rank, members, count, element, seed);
    REQUIRE(same);
  }
}

TEST_CASE("every operation is correct, for any members, counts and element types") {
  for (int members = 1; members <= 8; ++members) {
    for (const Element element : kElements) {
      for (const std::int64_t count : {0, 1, 7, 4099}) {
        RunThreads run_threads(Seconds{60});
        check_all(run_threads, members, count, element, 1);
      }
    }
  }
}

TEST_CASE("large operations are done in pieces, with the same result") {
  for (const int members : {2, 5}) {
    for (const Element element : kElements) {
      RunThreads run_threads(Seconds{60});
      check_all(run_threads, members, 70'001, element, 2);
    }
  }
}

TEST_CASE("every operation is correct in any order of the members") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Numbers numbers(seed);
    const int members = 1 + static_cast<int>(numbers.below(5));
    const std::int64_t count = std::array{0, 1, 33, 40'001}[numbers.below(4)];
    RunThreads run_threads(
        [&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
    check_all(run_threads, members, count, kElements[numbers.below(4)], seed);
  }
}

/// The message of the failure that ends two members that do this.
template <class Zero, class One>
std::string reported(bool directed, Zero&& zero, One&& one) {
  RunThreads real(Seconds{20});
  RunThreads chosen([](const std::vector<int>& ready) { return ready.size() - 1; });
  RunThreads& run_threads = directed ? chosen : real;
  const Ends ends = thread_communicators(run_threads, {"dp (reduce)", {4, 6, 9}});
  run_threads.add("rank 4", [&] { zero(*ends[0]); });
  run_threads.add("rank 6", [&] { one(*ends[1]); });
  try {
    run_threads.run();
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::defect);
    return failure.what();
  }
  return "";
}

TEST_CASE("members that make mismatched calls get an error with both calls and the group") {
  std::vector<float> data(256);
  const auto reduce = [&](std::int64_t count, Element element, Reduction how) {
    return [&data, count, element, how](Communicator& comm) {
      std::vector<float> own(data);
      comm.all_reduce(own.data(), count, element, how);
    };
  };
  const auto gather = [&](Communicator& comm) {
    std::vector<float> own(data);
    comm.all_gather(own.data(), own.data(), 32, Element::f32);
  };
  const auto root = [](int from) {
    return [from](Communicator& comm) {
      float own = 0;
      comm.broadcast(&own, 1, Element::f32, from);
    };
  };
  const auto send = [](std::int64_t count, int to) {
    return [count, to](Communicator& comm) {
      const std::vector<float> own(8);
      comm.send(own.data(), count, Element::f32, to);
    };
  };
  const auto receive = [](std::int64_t count, int from) {
    return [count, from](Communicator& comm) {
      std::vector<float> own(8);
      comm.receive(own.data(), count, Element::f32, from);
    };
  };
  const auto exchange = [](const std::vector<std::int64_t>& to,
                           const std::vector<std::int64_t>& from, Element element = Element::f32) {
    return [=](Communicator& comm) {
      std::vector<double> in(16);
      std::vector<double> out(16);
      comm.all_to_all(in.data(), to, out.data(), from, element);
    };
  };
  const std::string who = "dp (reduce) group of ranks {4,6,9}: rank 4 calls ";
  const std::string parts = "dp (reduce) group of ranks {4,6,9}: in an all_to_all of f32 rank ";
  const auto sum = Reduction::sum;
  for (const bool directed : {false, true}) {
    CHECK(reported(directed, reduce(64, Element::f32, sum), gather) ==
          who + "all_reduce of 64 f32, rank 6 all_gather of 32 f32");
    CHECK(reported(directed, reduce(64, Element::f32, sum), reduce(65, Element::f32, sum)) ==
          who + "all_reduce of 64 f32, rank 6 all_reduce of 65 f32");
    CHECK(reported(directed, reduce(64, Element::f32, sum), reduce(64, Element::bf16, sum)) ==
          who + "all_reduce of 64 f32, rank 6 all_reduce of 64 bf16");
    CHECK(reported(directed, reduce(64, Element::f32, sum),
                   reduce(64, Element::f32, Reduction::max)) ==
          who + "all_reduce of 64 f32, rank 6 all_reduce (max) of 64 f32");
    CHECK(reported(directed, root(0), root(1)) ==
          who + "broadcast of 1 f32 from rank 4, rank 6 broadcast of 1 f32 from rank 6");
    CHECK(reported(directed, exchange({1, 5, 2}, {1, 3, 0}), exchange({3, 0, 0}, {4, 0, 1})) ==
          parts + "4 sends 5 to rank 6, which expects 4");
    CHECK(reported(directed, exchange({1, 5, 2}, {1, 3, 0}), exchange({0, 0, 0}, {5, 0, 1})) ==
          parts + "6 sends 0 to rank 4, which expects 3");
    CHECK(reported(directed, exchange({1, 2, 3}, {1, 2, 3}),
                   exchange({2, 2, 3}, {2, 2, 3}, Element::f64)) ==
          who + "all_to_all of 6 f32, rank 6 all_to_all of 7 f64");
    CHECK(reported(directed, exchange({1, 2, 3, 4, 5, 6}, {0, 0, 0, 1, 0, 0}),
                   exchange({0, 2, 0, 0, 0, 0}, {3, 4, 0, 0, 0, 0})) ==
          parts + "6 sends 2 to rank 4, which expects 1");
    CHECK(reported(directed, exchange({1, 2, 3}, {1, 2, 3}),
                   exchange({1, 2, 3, 1, 2, 3}, {1, 2, 3, 1, 2, 3})) ==
          who + "all_to_all of 6 f32, rank 6 all_to_all of 12 f32, 2 parts a member");
    CHECK(reported(directed, exchange({1, 2, 3}, {1, 2, 3}), reduce(6, Element::f32, sum)) ==
          who + "all_to_all of 6 f32, rank 6 all_reduce of 6 f32");
    CHECK(reported(directed, send(8, 1), receive(7, 0)) ==
          who + "send of 8 f32 to rank 6, rank 6 receive of 7 f32 from rank 4");
    CHECK(reported(directed, send(8, 1), send(8, 0)) ==
          who + "send of 8 f32 to rank 6, rank 6 send of 8 f32 to rank 4");
    CHECK(reported(directed, receive(8, 1), receive(8, 0)) ==
          who + "receive of 8 f32 from rank 6, rank 6 receive of 8 f32 from rank 4");
    CHECK(reported(
              directed, [](Communicator& comm) { comm.barrier(); }, send(3, 0)) ==
          who + "barrier, rank 6 send of 3 f32 to rank 4");
  }
}

TEST_CASE("a member that fails ends those that wait for it in any call") {
  for (int operation = 0; operation < 7; ++operation) {
    for (const bool directed : {false, true}) {
      RunThreads real(Seconds{60});
      Numbers numbers(static_cast<std::uint64_t>(operation));
      RunThreads chosen([&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
      RunThreads& run_threads = directed ? chosen : real;
      const auto wait = [&](Communicator& comm) -> Raw {
        if (comm.rank() == 2) throw RunFailure(RunFailure::Kind::diverged, "loss is NaN");
        Raw data(1024);
        switch (operation) {
          case 0: comm.all_reduce(data.data(), 8, Element::f32, Reduction::sum); break;
          case 1: comm.reduce_scatter(data.data(), data.data() + 512, 8, Element::f32); break;
          case 2: comm.broadcast(data.data(), 8, Element::f32, 2); break;
          case 3: comm.send(data.data(), 8, Element::f32, 2); break;
          case 5: {
            const std::vector<std::int64_t> parts{2, 2, 2};
            comm.all_to_all(data.data(), parts, data.data() + 512, parts, Element::f32);
            break;
          }
          case 4: comm.receive(data.data(), 8, Element::f32, 2); break;
          default: comm.barrier();
        }
        return data;
      };
      CHECK_THROWS_WITH(by_all(run_threads, 3, wait), "loss is NaN");
    }
  }
}

/// Members leave in the middle of calls while others work on their memory.
TEST_CASE("a run that ends at any moment leaves no memory in use") {
  for (int round = 0; round < 100; ++round) {
    RunThreads run_threads(Seconds{60});
    const auto work = [&](Communicator& comm) -> Raw {
      for (int i = 0;; ++i) {
        if (comm.rank() == 3 && i == round % 7) throw RunFailure(RunFailure::Kind::stopped, "now");
        std::vector<float> data(50'000, 1.0F);
        if (comm.rank() < 3) {
          comm.rank() == 0
              ? comm.send(data.data(), 40'000, Element::f32, 1)
              : (comm.rank() == 1 ? comm.receive(data.data(), 40'000, Element::f32, 0) : void());
        }
        comm.all_reduce(data.data(), 50'000, Element::f32, Reduction::sum);
      }
    };
    CHECK_THROWS_WITH(by_all(run_threads, 4, work), "now");
  }
}

TEST_CASE("a missing member is a hang that names the waiting members and their calls") {
  const auto stuck = [](RunThreads& run_threads) {
    try {
      by_all(run_threads, 2, [&](Communicator& comm) {
        run_threads.set_activity("step 3");
        float data = 0;
        if (comm.rank() == 0) comm.all_reduce(&data, 1, Element::f32, Reduction::sum);
        return Raw();
      });
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == RunFailure::Kind::hang);
      return std::string(failure.what());
    }
    return std::string();
  };
  RunThreads real(Seconds{0.05});
  RunThreads directed([](const std::vector<int>&) { return std::size_t{0}; });
  for (const std::string& text : {stuck(real), stuck(directed)}) {
    INFO(text);
    CHECK(text.find("all_reduce of 1 f32 in the tp group of ranks {0,1} waits for rank 1") !=
          std::string::npos);
    CHECK(text.find("rank 0: step 3") != std::string::npos);
  }
}

}  // namespace
}  // namespace echelon
