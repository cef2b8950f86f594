// The state of a small run, sharded over ranks, with values that encode their place.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/io/weights/checkpoint.hpp"
#include "tests/runtime/training/small_models.hpp"

namespace echelon {

inline ModelSpec two_layer_llama() {
  ModelSpec model;
  model.name = "small";
  model.constants.emplace();
  model.layers = 2;
  model.hidden = 8;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 2;
  model.ffn_hidden = 12;
  model.vocab = 13;
  model.max_positions = 16;
  return model;
}

inline ModelSpec two_layer_gpt2() { return like_gpt2(two_layer_llama()); }

/// A number that encodes its place; exact in every element type except bf16.
inline double value_at(const std::string& name, std::int64_t element, StateKind kind) {
  return static_cast<double>(std::hash<std::string>()(name) % 1000) * 1000 +
         static_cast<double>(element) + 0.25 * static_cast<double>(kind);
}

inline void store_value(void* to, Element element, double value) {
  const auto narrow = static_cast<float>(value);
  const Bfloat16 brain(narrow);
  switch (element) {
    case Element::f64: std::memcpy(to, &value, 8); break;
    case Element::bf16: std::memcpy(to, &brain, 2); break;
    case Element::f32:
    case Element::i32: std::memcpy(to, &narrow, 4); break;
  }
}

/// The state of one rank of tp × dp: its shard of all flat parameters, of every kind.
struct RankState {
  ChunkParameters parameters;
  std::deque<std::vector<char>> memory;
  std::vector<StateSpan> spans;
};

inline std::optional<Element> element_for(const StateFormat& format, StateKind kind) {
  if (kind == StateKind::weight) return format.weight;
  return kind == StateKind::master ? format.master : format.moment;
}

inline RankState rank_state(const ModelSpec& model, const StateFormat& format, int tp, int tp_rank,
                            int dp, int dp_rank) {
  ChunkSpec spec;
  spec.model = model;
  spec.layers = model.layers;
  spec.embedding = spec.loss = true;
  spec.units = 2;
  spec.tp = tp;
  spec.tp_rank = tp_rank;
  spec.shards = dp;
  spec.padded_vocab = (model.vocab + tp - 1) / tp * tp;
  RankState rank;
  rank.parameters = parameters_of(spec);
  for (const FlatParameters& flat : rank.parameters.flat_params) {
    const std::int64_t part = flat.padded / dp;
    for (const StateKindInfo& info : kStateKinds) {
      const StateKind kind = info.kind;
      const std::optional<Element> element = element_for(format, kind);
      if (!element) continue;
      auto& memory = rank.memory.emplace_back(std::size_t(part * bytes_of(*element)), '\x7f');
      append_spans(flat, kind, dp_rank * part, (dp_rank + 1) * part, memory.data(), *element,
                   rank.spans);
    }
  }
  return rank;
}

/// The expected value of every element of the spans; padding is 0.
inline void fill(const StateSpan& span, Element element, void* data) {
  const std::int64_t size = bytes_of(element);
  std::memset(data, 0, static_cast<std::size_t>((span.end - span.begin) * size));
  for_each_piece(*span.parameter, span.begin, span.end,
                 [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                   for (std::int64_t i = 0; i < count; ++i) {
                     store_value(static_cast<char*>(data) + (local - span.begin + i) * size,
                                 element, value_at(span.parameter->name, global + i, span.kind));
                   }
                 });
}

inline void fill(RankState& rank, const StateFormat& format) {
  for (const StateSpan& span : rank.spans) fill(span, *element_for(format, span.kind), span.data);
}

/// Spans with wrong values.
inline int wrong_spans(const RankState& rank, const StateFormat& format) {
  int wrong = 0;
  for (const StateSpan& span : rank.spans) {
    const Element element = *element_for(format, span.kind);
    std::vector<char> right(static_cast<std::size_t>((span.end - span.begin) * bytes_of(element)));
    fill(span, element, right.data());
    wrong += std::memcmp(right.data(), span.data, right.size()) != 0;
  }
  return wrong;
}

/// Runs `work(group)` on the given number of threads, which form a group.
inline void together(int members, const std::function<void(const CheckpointGroup&)>& work) {
  std::barrier meet(members);
  std::vector<std::string> texts(static_cast<std::size_t>(members));
  std::vector<std::jthread> threads;
  for (int member = 0; member < members; ++member) {
    threads.emplace_back([&, member] {
      CheckpointGroup group;
      group.member = member;
      group.members = members;
      group.patience = Seconds{0.1};
      group.exchange = [&](const std::string& own) {
        texts[static_cast<std::size_t>(member)] = own;
        meet.arrive_and_wait();
        const std::vector<std::string> all = texts;
        meet.arrive_and_wait();
        return all;
      };
      work(group);
    });
  }
}

inline CheckpointContents contents_of(const ModelSpec& model, const StateFormat& format,
                                      std::int64_t step) {
  CheckpointContents contents;
  contents.run = {model, "tp 2, dp 2", "aaaa", "synthetic"};
  contents.format = format;
  contents.progress = {.step = step,
                       .samples = 8 * step,
                       .tokens = 128 * step,
                       .skipped = 1,
                       .seed = 0xfedcba9876543210,
                       .losses = {4.5, 0.1 + 0.2, 3.25},
                       .global_batch = 8,
                       .rate = RateSchedule{1e-3, 1e-4, 16, 80, 2, 0}};
  return contents;
}

}  // namespace echelon
