// Where a rank's weights and states come from: the seed, a HuggingFace folder or a checkpoint.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/model/initial.hpp"
#include "runtime/training/persistence.hpp"
#include "runtime/training/state_format.hpp"

namespace echelon {
namespace {

/// A block of the processor for the host to fill: the block itself, or a copy that is uploaded at
/// the end.
template <class E, class T>
class Filling {
 public:
  Filling(Processor<T>& processor, E* block, std::int64_t count)
      : processor_(processor), block_(block) {
    if (!processor.in_host_memory()) copy_.resize(static_cast<std::size_t>(count));
  }
  [[nodiscard]] E* data() { return copy_.empty() ? block_ : copy_.data(); }
  void finish() {
    if (copy_.empty()) return;
    processor_.write(copy_.data(), block_, static_cast<std::int64_t>(copy_.size() * sizeof(E)));
  }

 private:
  Processor<T>& processor_;
  E* block_;
  std::vector<E> copy_;
};

/// Elements [begin, end) of flat parameters.
template <class T>
Status read_foreign(const HuggingFaceWeights& given, const FlatParameters& flat, std::int64_t begin,
                    std::int64_t end, T* out) {
  for (const Parameter& p : flat.parameters) {
    const std::int64_t from = std::max(begin, p.offset);
    const std::int64_t to = std::min(end, p.offset + p.count());
    if (from >= to) continue;
    const Status read =
        given.read(p, from - p.offset, to - p.offset, out + (from - begin), Number<T>::kElement);
    if (!read) return read;
  }
  return Done{};
}

/// The same of one kind of state; padding is 0.
template <class E>
Status read_saved(const CheckpointReader& saved, const FlatParameters& flat, StateKind kind,
                  std::int64_t begin, std::int64_t end, E* out) {
  std::fill(out, out + (end - begin), E{});
  std::vector<StateSpan> spans;
  append_spans(flat, kind, begin, end, out, Number<E>::kElement, spans);
  return saved.read(spans);
}

}  // namespace

/// The weights of a run that does not resume.
template <class T>
Status Persistence<T>::fill_weights(const FlatParameters& flat, std::int64_t begin,
                                    std::int64_t end, T* out, Communicator& replicas) const {
  if (!given_ || (plan_.job.adapters && !flat.frozen)) {
    fill_initial(flat, settings_.seed, begin, end, out);
    return Done{};
  }
  return read_together<T>(replicas, end - begin, out,
                          [&](std::int64_t first, std::int64_t last, T* to) {
                            return read_foreign(*given_, flat, begin + first, begin + last, to);
                          });
}

/// One set of flat parameters after the other, so that copies in host memory stay small.
template <class T>
Status Persistence<T>::fill(const std::vector<OptimizerState<T>*>& chunks, Processor<T>& processor,
                            const Replicas& replicas) {
  std::optional<Result<CheckpointReader>> saved;
  if (found_) saved = CheckpointReader::open(found_->path, format_of<T>());
  Status fine = saved && !*saved ? Status(saved->error()) : Status(Done{});
  const auto note = [&](const Status& read) {
    if (fine) fine = read;
  };
  for (OptimizerState<T>* states : chunks) {
    for (FlatState<T>& r : states->flat_states()) {
      const bool whole = r.weights != nullptr;
      const std::int64_t begin = whole ? 0 : r.begin;
      const std::int64_t end = whole ? r.layout->padded : r.end;
      const bool experts = r.layout->experts;
      Communicator& of_own = experts ? replicas.own_experts : replicas.own;
      Communicator& of_whole = experts ? replicas.expert_weights : replicas.weights;
      Communicator& of_weights = whole ? of_whole : of_own;
      Filling<T, T> weights(processor, whole ? r.weights : r.own_weights, end - begin);
      if (!found_) {
        note(fill_weights(*r.layout, begin, end, weights.data(), of_weights));
        weights.finish();
        states->take_weights_as_master(processor.on(Queue::compute), r);
        continue;
      }
      const auto read = [&]<class E>(Communicator& among, StateKind kind, std::int64_t from,
                                     std::int64_t to, E* out) {
        note(read_together<E>(
            among, to - from, out, [&](std::int64_t first, std::int64_t last, E* at) {
              return fine ? read_saved(**saved, *r.layout, kind, from + first, from + last, at)
                          : fine;
            }));
      };
      read(of_weights, StateKind::weight, begin, end, weights.data());
      weights.finish();
      if (r.layout->frozen) continue;
      const auto read_own = [&](StateKind kind, Wide<T>* block) {
        Filling<Wide<T>, T> filling(processor, block, r.own());
        read(of_own, kind, r.begin, r.end, filling.data());
        filling.finish();
      };
      if (kHasMaster<T>) read_own(StateKind::master, r.master);
      for (std::size_t k = 0; k < kOptimizerStates; ++k)
        read_own(OptimizerStep::kStates[k], r.states[k]);
    }
  }
  if (saved && *saved) bytes_read_ += (*saved)->bytes_read();
  return fine;
}

template <class T>
ReadBytes Persistence<T>::bytes_read() const {
  ReadBytes bytes;
  bytes.state = bytes_read_ + (given_ ? given_->bytes_read() : 0);
  if (found_) bytes.hashed = found_->bytes_hashed;
  return bytes;
}

#define ECHELON_PERSISTENCE_FILL(T)                                                           \
  template Status Persistence<T>::fill(const std::vector<OptimizerState<T>*>&, Processor<T>&, \
                                       const Replicas&);                                      \
  template ReadBytes Persistence<T>::bytes_read() const;
ECHELON_PERSISTENCE_FILL(double)
ECHELON_PERSISTENCE_FILL(float)
ECHELON_PERSISTENCE_FILL(Bfloat16)
#undef ECHELON_PERSISTENCE_FILL

}  // namespace echelon
