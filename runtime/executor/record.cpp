#include "runtime/executor/record.hpp"

#include "core/base/content_hash.hpp"

namespace echelon {

Program Record::executed() const {
  Program program;
  program.buffers = planned_.buffers;
  for (std::size_t id = 0; id < done_.size(); ++id) {
    program.instructions.insert(program.instructions.end(), static_cast<std::size_t>(times_[id]),
                                done_[id]);
  }
  return program;
}

const Instruction* Record::first_irregular() const {
  for (std::size_t id = 0; id < done_.size(); ++id) {
    const Instruction& planned = planned_.instructions[id];
    if (times_[id] != 1 || !(done_[id] == planned)) return &planned;
  }
  return nullptr;
}

std::string executed_hash(const Schedule& planned, std::span<const Program> executed) {
  return content_hash(to_text({.kind = planned.kind,
                               .ranks = planned.ranks,
                               .chunks = planned.chunks,
                               .microbatches = planned.microbatches,
                               .group = planned.group,
                               .units = planned.units,
                               .programs = {executed.begin(), executed.end()}}));
}

}  // namespace echelon
