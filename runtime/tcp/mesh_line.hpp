// MeshLine: what is under way on one line of a mesh.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/tcp/mesh.hpp"

namespace echelon::tcp {

class MeshLine final : public Messages {
 public:
  MeshLine(Mesh& mesh, std::uint32_t number, const Group& group);

  void send(const void* data, std::int64_t bytes, int to) override;
  void receive(void* data, std::int64_t bytes, int from) override;
  void gather(std::byte* blocks, std::int64_t bytes) override;
  void wait(const std::function<std::string()>& waiting) override;
  [[nodiscard]] bool idle() const override;

  // For the mesh.
  [[nodiscard]] int member_of(int rank) const;  ///< -1: not in the group
  /// The next message of this member, before its first byte. "" or what is wrong with it.
  [[nodiscard]] std::string begin(int member, const Head& head);
  /// Reads of that message what is there; what recv said.
  [[nodiscard]] std::int64_t read(int member, std::uint64_t left, int descriptor);
  void under_way(int member);  ///< a parcel is queued
  void sent(int member);       ///< it is written
  void wake() {
    gate_.change([] {});
  }

 private:
  /// Somebody waits for a message.
  struct Posted {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  /// A message nobody waits for yet.
  struct Early {
    std::vector<std::byte> data;
    bool whole = false;
  };
  struct Lane {
    std::deque<Posted> posted;
    std::deque<Early> early;
    bool direct = false;  ///< what comes goes to posted.front()
    int parcels = 0;
    std::uint32_t next_in = 0;
    std::uint32_t next_out = 0;  ///< of the queue's thread alone
  };
  [[nodiscard]] Lane& lane(int member) { return lanes_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] int under_way() const;
  [[nodiscard]] int gone() const;
  void match(Lane& lane);
  [[nodiscard]] std::string missing() const;

  Mesh& mesh_;
  const std::uint32_t number_;
  const Group group_;
  const int own_;
  mutable Gate gate_;
  std::vector<Lane> lanes_;  ///< by member; guarded by gate_
  bool abandoned_ = false;   ///< guarded by gate_
};

}  // namespace echelon::tcp
