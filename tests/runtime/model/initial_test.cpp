#include "runtime/model/initial.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using Four = std::array<std::uint32_t, 4>;

TEST_CASE("Philox gives the known answers of Random123") {
  // Source: Random123 1.14, tests/kat_vectors, "philox4x32 10".
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t f = 0xffffffff;
  CHECK(philox({f, f, f, f}, {f, f}) == Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("initial values have the moments of a normal distribution") {
  const std::uint64_t hash = hash_of_name("layers.0.mlp.up.weight");
  const int count = 200000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double neighbours = 0;
  double last = 0;
  for (int i = 0; i < count; ++i) {
    const double z = initial_normal(1234, hash, i);
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += z * last;
    last = z;
  }
  // Five deviations of each estimate: 1/√n, √(2/n), √(96/n), 1/√n.
  const double root = std::sqrt(double{count});
  CHECK(std::abs(sum / count) < 5 / root);
  CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(fourth / count - 3) < 5 * std::sqrt(96.0) / root);
  CHECK(std::abs(neighbours / count) < 5 / root);
  CHECK(initial_normal(1234, hash, 7) != initial_normal(1235, hash, 7));
  CHECK(initial_normal(1234, hash, 7) != initial_normal(1234, hash_of_name("head.weight"), 7));
}

ChunkSpec initial_spec(int tp, int tp_rank, int units, int shards) {
  ChunkSpec spec;
  ModelSpec& model = spec.model;
  model.constants.emplace();
  model.layers = spec.layers = 2;
  model.hidden = 8;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 2;
  model.ffn_hidden = 12;
  model.vocab = 13;
  model.max_positions = 8;
  model.tied_embeddings = units == 1;
  spec.embedding = spec.loss = true;
  spec.units = units;
  spec.tp = tp;
  spec.tp_rank = tp_rank;
  spec.padded_vocab = 16;
  spec.shards = shards;
  return spec;
}

TEST_CASE("every plan initializes the same model, however it is sharded") {
  std::map<std::string, std::vector<double>> first;
  for (const int tp : {1, 2, 4}) {
    for (const int shards : {1, 3}) {
      for (int rank = 0; rank < tp; ++rank) {
        for (const FlatParameters& params :
             parameters_of(initial_spec(tp, rank, 2, shards)).flat_params) {
          std::vector<double> flat(static_cast<std::size_t>(params.padded), 99);
          const std::int64_t part = params.padded / shards;
          for (int s = 0; s < shards; ++s) {
            fill_initial(params, 42, s * part, (s + 1) * part, flat.data() + s * part);
          }
          for (std::int64_t i = params.count; i < params.padded; ++i) {
            CHECK(flat[static_cast<std::size_t>(i)] == 0);
          }
          for (const Parameter& p : params.parameters) {
            std::vector<double>& whole = first[p.name];
            if (tp == 1 && shards == 1) whole.resize(static_cast<std::size_t>(p.rows * p.columns));
            std::int64_t visited = 0;
            const auto same = [&](std::int64_t global, std::int64_t local, std::int64_t count) {
              visited += count;
              for (std::int64_t i = 0; i < count; ++i) {
                double& expected = whole[static_cast<std::size_t>(global + i)];
                const double here = flat[static_cast<std::size_t>(p.offset + local + i)];
                if (tp == 1 && shards == 1) expected = here;
                if (here != expected) FAIL(p.name << " at " << global + i);
              }
            };
            for_each_piece(p, 0, p.count(), same);
            for (std::int64_t i = visited; i < p.count(); ++i) {  // padding of the vocabulary
              CHECK(flat[static_cast<std::size_t>(p.offset + i)] == 0);
            }
          }
        }
      }
    }
  }
  CHECK(first.at("final_norm.weight") == std::vector<double>(8, 1));
}

/// Four threads may begin anywhere, also between the two elements of a pair.
TEST_CASE("initial values are the same by one thread and by four") {
  FlatParameters flat;
  Parameter matrix;
  matrix.name = "layers.0.mlp.up.weight";
  matrix.rows = matrix.local_rows = 401;
  matrix.columns = 1003;
  matrix.first_column = 333;
  matrix.local_columns = 501;
  matrix.deviation = 0.5;
  flat.parameters.push_back(matrix);
  flat.count = flat.padded = matrix.count();
  const std::int64_t begin = 7;
  std::vector<float> found(static_cast<std::size_t>(flat.padded - begin));
  const int before = omp_get_max_threads();
  for (const int threads : {1, 4}) {
    omp_set_num_threads(threads);
    std::fill(found.begin(), found.end(), 99.0F);
    fill_initial(flat, 42, begin, flat.padded, found.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = begin; i < flat.padded; ++i) {
      const std::int64_t global = i / matrix.local_columns * matrix.columns + matrix.first_column +
                                  i % matrix.local_columns;
      const double expected = 0.5 * initial_normal(42, hash_of_name(matrix.name), global);
      if (found[static_cast<std::size_t>(i - begin)] != static_cast<float>(expected)) ++wrong;
    }
    CHECK(wrong == 0);
  }
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace echelon
