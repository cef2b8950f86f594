#include "runtime/comm/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <vector>

#include "runtime/comm/message_communicator.hpp"

namespace echelon::mpi {
namespace {

/// Size limit of one message; MPI counts in int.
constexpr std::int64_t kMessageBytes = 1 << 30;

class MpiMessages final : public Messages {
 public:
  MpiMessages(RunThreads& run_threads, std::string where, MPI_Comm comm)
      : run_threads_(run_threads), where_(std::move(where)), comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), where_);
  }
  ~MpiMessages() override {
    if (!run_threads_.stopping()) MPI_Comm_free(&comm_);
  }

  void send(const void* data, std::int64_t bytes, int to) override {
    for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
      check(MPI_Isend(static_cast<const std::byte*>(data) + at, length(bytes - at), MPI_BYTE, to, 0,
                      comm_, &under_way_.emplace_back(MPI_REQUEST_NULL)),
            where_);
    }
  }
  void receive(void* data, std::int64_t bytes, int from) override {
    for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
      check(MPI_Irecv(static_cast<std::byte*>(data) + at, length(bytes - at), MPI_BYTE, from, 0,
                      comm_, &under_way_.emplace_back(MPI_REQUEST_NULL)),
            where_);
    }
  }
  void gather(std::byte* blocks, std::int64_t bytes) override {
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, blocks, static_cast<int>(bytes),
                         MPI_BYTE, comm_, &under_way_.emplace_back(MPI_REQUEST_NULL)),
          where_);
  }
  /// Polls and never blocks in MPI: the run may stop meanwhile.
  void wait(const DescribeWait& waiting) override {
    const auto ready = [this] {
      int all = 0;
      check(MPI_Testall(static_cast<int>(under_way_.size()), under_way_.data(), &all,
                        MPI_STATUSES_IGNORE),
            where_);
      return all != 0;
    };
    run_threads_.poll(ready, waiting);
    under_way_.clear();
  }
  [[nodiscard]] bool idle() const override {
    return !run_threads_.stopping() && under_way_.empty();
  }

 private:
  static int length(std::int64_t bytes) { return static_cast<int>(std::min(kMessageBytes, bytes)); }

  RunThreads& run_threads_;
  std::string where_;
  MPI_Comm comm_;
  std::vector<MPI_Request> under_way_;
};

}  // namespace

std::unique_ptr<Communicator> communicator(RunThreads& run_threads, const Group& group,
                                           MPI_Comm comm) {
  int member = 0;
  check(MPI_Comm_rank(comm, &member), describe(group));
  return message_communicator(group, member,
                              std::make_unique<MpiMessages>(run_threads, describe(group), comm));
}

}  // namespace echelon::mpi
