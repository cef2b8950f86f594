// All groups of a plan on emulated GPUs.
#include "runtime/cuda/comm/cuda_world.hpp"

#include <cuda_runtime_api.h>

#include <map>
#include <string>

#include "core/model/model_io.hpp"

#include "tests/runtime/cuda/backend/device_memory.hpp"

namespace echelon {
namespace {

using cuda::Gpus;
using cuda::Seat;

ParallelPlan small_plan(int tp, int dp, int pp, int zero) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.dp = dp;
  plan.pp = pp;
  plan.zero = zero;
  plan.shard_group = zero > 0 ? dp : 1;
  return plan;
}

ModelSpec tied_model() {
  ModelSpec model;
  model.kv_heads = 8;
  model.tied_embeddings = true;
  return model;
}

/// The error's text; empty: there is none.
std::string why_not(const Result<bool>& shared) {
  return shared ? std::string() : shared.error().message();
}

TEST_CASE("every rank has its own GPU, or all share one in one process") {
  const auto alone = cuda::are_shared({{"a", "0"}, {"a", "1"}, {"b", "0"}}, false);
  CHECK((alone && !*alone));
  const auto together = cuda::are_shared({{"a", "0"}, {"a", "0"}}, true);
  CHECK((together && *together));
  CHECK(cuda::are_shared(std::vector<cuda::Seat>(64, {"a", "0"}), true).ok());
  CHECK_FALSE(cuda::are_shared(std::vector<cuda::Seat>(65, {"a", "0"}), true).ok());
  CHECK(why_not(cuda::are_shared({{"a", "0"}, {"b", "0"}, {"a", "0"}}, false))
            .find("ranks 0 and 2 are on one GPU, in different processes") != std::string::npos);
  CHECK(why_not(cuda::are_shared({{"a", "0"}, {"a", "1"}, {"a", "0"}}, true))
            .find("ranks 0 and 2 are on one GPU, of 3 ranks on 2 GPUs") != std::string::npos);
}

Result<Gpus> chosen(int ranks, int devices) {
  standins::start(settings_of(1, standins::Order::random, devices));
  RunThreads run_threads(Seconds{20});
  const auto host = thread_world(run_threads, small_plan(1, ranks, 1, 0), tied_model());
  return cuda::choose_gpus(run_threads, *host);
}

TEST_CASE("ranks of a host take its GPUs in turn, and exchange their choice") {
  const Result<Gpus> own = chosen(3, 4);
  REQUIRE(own);
  CHECK(own->device == std::map<int, int>{{0, 0}, {1, 1}, {2, 2}});
  CHECK_FALSE(own->shared);
  const Result<Gpus> one = chosen(3, 1);
  REQUIRE(one);
  CHECK(one->device == std::map<int, int>{{0, 0}, {1, 0}, {2, 0}});
  CHECK(one->shared);
  const Result<Gpus> between = chosen(3, 2);
  REQUIRE_FALSE(between);
  CHECK(between.error().kind == Error::Kind::environment);
  const Result<Gpus> none = chosen(1, 0);
  REQUIRE_FALSE(none);
  CHECK(none.error().message().find("no GPU: ") != std::string::npos);
}

TEST_CASE("a driver that is too old is not called a missing GPU") {
  CHECK(cuda::why_no_gpu(cudaSuccess, 13000, 13000) == "no GPU: CUDA finds none");
  CHECK(cuda::why_no_gpu(cudaErrorInsufficientDriver, 0, 13000) ==
        "no GPU: no NVIDIA driver is installed");
  CHECK(cuda::why_no_gpu(cudaErrorInsufficientDriver, 12080, 13000) ==
        "the NVIDIA driver supports CUDA up to 12.8, and this build needs 13.0");
  CHECK(cuda::why_no_gpu(cudaErrorNoDevice, 13000, 13000).starts_with("no GPU: "));
}

/// A stream per rank and queue.
class Streams {
 public:
  explicit Streams(const Gpus& gpus) {
    for (const auto& [rank, device] : gpus.device) {
      cudaSetDevice(device);
      for (int queue = 0; queue < kQueues; ++queue) {
        operands_.try_emplace({rank, static_cast<Queue>(queue)});
      }
    }
    cudaSetDevice(0);
  }
  [[nodiscard]] DeviceOperands& operands(int rank, Queue queue) {
    return operands_.at({rank, queue});
  }

 private:
  std::map<std::pair<int, Queue>, DeviceOperands> operands_;
};

/// Sums the ranks of every group of every used role, and sends along the pipeline.
void use_roles(cuda::CudaWorld& world, Streams& streams, int rank, const ParallelPlan& plan) {
  for (int each = 0; each < kGroupRoles; ++each) {
    const auto role = static_cast<GroupRole>(each);
    if (role == GroupRole::control || !is_used(role, plan)) continue;
    Communicator& end = world.at(rank, role);
    DeviceOperands& operands = streams.operands(rank, cuda::queue_of(role));
    const std::int32_t own = 1 << rank;
    Raw bytes(sizeof own);
    std::memcpy(bytes.data(), &own, sizeof own);
    std::byte* const sum = operands.place(bytes);
    end.all_reduce(sum, 1, Element::i32, Reduction::sum);
    operands.keep(sum, sizeof own);
    if (end.size() == 1) continue;
    std::byte* const got = operands.place(Raw(sizeof own));
    const bool first = end.rank() == 0;
    if (end.rank() < 2)
      first ? end.send(sum, 1, Element::i32, 1) : end.receive(got, 1, Element::i32, 0);
    operands.keep(got, sizeof own);
  }
}

/// By rank and queue, the results kept by use_lines.
std::map<std::pair<int, Queue>, Raw> results_of_roles(const ParallelPlan& plan) {
  std::map<std::pair<int, Queue>, Raw> all;
  for (int each = 0; each < kGroupRoles; ++each) {
    const auto role = static_cast<GroupRole>(each);
    if (role == GroupRole::control || !is_used(role, plan)) continue;
    for (const Group& group : groups_of(role, plan, tied_model())) {
      std::int32_t sum = 0;
      for (const int rank : group.ranks) sum += 1 << rank;
      for (int member = 0; member < group.size(); ++member) {
        Raw& kept = all[{group.rank(member), cuda::queue_of(role)}];
        const auto add = [&](std::int32_t number) {
          const auto* const first = reinterpret_cast<const std::byte*>(&number);
          kept.insert(kept.end(), first, first + sizeof number);
        };
        add(sum);
        if (group.size() > 1) add(member == 1 ? sum : 0);
      }
    }
  }
  return all;
}

void check_world(const ParallelPlan& plan, const standins::Settings& machine,
                 const std::string& transport) {
  CAPTURE(plan.tp, plan.dp, plan.pp, plan.zero, machine.devices, machine.seed);
  standins::start(machine);
  {
    RunThreads run_threads(Seconds{20});
    auto host = thread_world(run_threads, plan, tied_model());
    Communicator* const talk = &host->at(0, GroupRole::control);
    const Result<Gpus> gpus = cuda::choose_gpus(run_threads, *host);
    REQUIRE(gpus);
    Streams streams(*gpus);
    const auto stream_of = [&](int rank, GroupRole role) {
      return streams.operands(rank, cuda::queue_of(role)).stream();
    };
    cuda::CudaWorld world(run_threads, std::move(host), plan, tied_model(), *gpus, stream_of,
                          {4096});
    CHECK(world.ranks() == plan.gpus());
    // Ranks that exchange parts are connected before the first step.
    const bool exchanges = (plan.ep > 1 || plan.cp > 1) && !gpus->shared;
    CHECK((!exchanges || standins::connected_peers() >= plan.gpus()));
    CHECK(&world.at(0, GroupRole::control) == talk);
    CHECK(world.transport() == transport);
    CHECK(world.communicator_memory(0) >= Bytes{0});
    for (const int rank : world.local_ranks()) {
      run_threads.add("rank " + std::to_string(rank), [&, rank] {
        cudaSetDevice(gpus->device.at(rank));
        use_roles(world, streams, rank, plan);
      });
    }
    run_threads.run();
    for (const int rank : world.local_ranks()) world.check(rank);
    for (const auto& [place, expected] : results_of_roles(plan)) {
      INFO("rank " << place.first << ", " << name_of(place.second));
      const bool same = streams.operands(place.first, place.second).kept() == expected;
      CHECK(same);
    }
  }
  standins::check_nothing_left();
}

TEST_CASE("all group roles of plans connect the right ranks, through NCCL and on one GPU") {
  std::uint64_t seed = 0;
  ParallelPlan context = small_plan(1, 2, 1, 1);
  context.cp = 2;
  ParallelPlan ring = small_plan(1, 1, 1, 1);
  ring.cp = 4;
  context.cp_comm = CpComm::all_to_all;
  ParallelPlan experts = small_plan(1, 4, 1, 1);
  experts.ep = 2;
  for (const ParallelPlan& plan :
       {small_plan(2, 2, 2, 0), small_plan(1, 4, 1, 2), small_plan(2, 1, 3, 0),
        small_plan(1, 2, 2, 3), context, ring, experts}) {
    for (const standins::Order order : kOrders) {
      check_world(plan, settings_of(++seed, order, static_cast<int>(plan.gpus())), "nccl 2.28.9");
      check_world(plan, settings_of(++seed, order, 1), "memory of one GPU");
    }
  }
  check_world(small_plan(1, 1, 1, 0), settings_of(1, standins::Order::random, 1), "none");
}

TEST_CASE("NCCL's communicators are split off one, unless each is to have an identifier") {
  const ParallelPlan plan = small_plan(2, 2, 2, 1);
  const auto ids_with = [&](const char* split, const char* blocking) {
    setenv("ECHELON_NCCL_SPLIT", split, 1);
    setenv("ECHELON_NCCL_BLOCKING", blocking, 1);
    const int before = standins::counts().nccl_ids;
    check_world(plan, settings_of(3, standins::Order::random, 8), "nccl 2.28.9");
    unsetenv("ECHELON_NCCL_SPLIT");
    unsetenv("ECHELON_NCCL_BLOCKING");
    return standins::counts().nccl_ids - before;
  };
  for (const char* blocking : {"0", "1"}) {
    CHECK(ids_with("1", blocking) == 1);
    CHECK(standins::streams_of_resources() == 1);
    CHECK(ids_with("0", blocking) > 15);
  }
}

TEST_CASE("communicators are warmed up by the largest call of a step, up to 256 MiB") {
  PlanFile file;
  file.model = load_model("gpt2").value();
  file.job.sequence = 1024;
  file.plan.dp = 8;
  CHECK(cuda::world_options_of(file).warm_up_bytes == 256 << 20);  // 4 bytes of 124M parameters
  file.model.layers = 2;
  file.model.vocab = 128;
  file.plan.tp = 2;
  // 2 x 7.1M parameters of layers, 0.9M of the embeddings twice, on half of which each rank works.
  const std::int64_t small = cuda::world_options_of(file).warm_up_bytes;
  CHECK((small > 4 * 14'000'000 / 2 && small < 4 * 18'000'000 / 2));
  file.plan.microbatch = 64;
  CHECK(cuda::world_options_of(file).warm_up_bytes == std::int64_t{64} * 1024 * 768 * 2);
}

TEST_CASE("if a rank's NCCL dies during setup, the world ends with the reason") {
  const ParallelPlan plan = small_plan(2, 2, 1, 1);
  for (const int after : {0, 3}) {
    for (const auto kind :
         {standins::Failure::Kind::dies, standins::Failure::Kind::never_arrives}) {
      const bool dies = kind == standins::Failure::Kind::dies;
      standins::Settings machine = settings_of(6, standins::Order::random, 4);
      machine.failures = {{kind, 1, after, "all (reduce)"}};
      standins::start(machine);
      {
        RunThreads run_threads(dies ? Seconds{20} : Seconds{0.3});
        auto host = thread_world(run_threads, plan, tied_model());
        const Result<Gpus> gpus = cuda::choose_gpus(run_threads, *host);
        REQUIRE(gpus);
        Streams streams(*gpus);
        try {
          const cuda::CudaWorld world(
              run_threads, std::move(host), plan, tied_model(), *gpus,
              [&](int rank, GroupRole role) {
                return streams.operands(rank, cuda::queue_of(role)).stream();
              },
              {4096});
          FAIL("the world is made");
        } catch (const RunFailure& failure) {
          INFO(failure.what());
          CHECK(failure.kind() == (dies ? RunFailure::Kind::peer_lost : RunFailure::Kind::hang));
          CHECK(std::string(failure.what()).find("all (reduce)") != std::string::npos);
        }
      }
      standins::check_nothing_left();
    }
  }
}

}  // namespace
}  // namespace echelon
