// Checkpoints of earlier versions are read, with the constants they were computed with.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/content_hash.hpp"
#include "core/model/model_io.hpp"
#include "tests/runtime/training/sharded_state.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

TEST_CASE("a checkpoint of the version without constants is read with the constants of its time") {
  const TempDir dir;
  const StateFormat format{Element::bf16, Element::f32, Element::f32};
  RankState rank = rank_state(two_layer_llama(), format, 1, 0, 1, 0);
  fill(rank, format);
  const CheckpointContents contents = contents_of(two_layer_llama(), format, 1);
  REQUIRE(write_checkpoint(dir.path(), contents, rank.spans, {}, {}).ok());
  // As the first version wrote it: a model of shapes, two separate constants, and its hash.
  const std::string path = (dir.path() / "step_1" / "manifest.json").string();
  using Json = nlohmann::ordered_json;
  Json manifest = Json::parse(slurp(path));
  ModelSpec shapes = two_layer_llama();
  shapes.constants.reset();
  manifest["version"] = 1;
  manifest["model"] = Json::parse(model_to_json(shapes));
  manifest["norm_eps"] = 1e-5;
  manifest["rope_theta"] = 10000.0;
  manifest.erase("global_batch");
  manifest.erase("learning_rate");
  manifest.erase("hash");
  manifest["hash"] = content_hash(manifest.dump());
  std::ofstream(path) << manifest.dump(1);
  const auto found = find_checkpoint(dir.path(), contents.run, format);
  INFO((found ? "" : found.error().message()));
  REQUIRE(found.ok());
  CHECK(found->value().contents.run.model == two_layer_llama());
  RunIdentity other = contents.run;
  other.model.constants->rope.theta = 500000;
  CHECK_FALSE(find_checkpoint(dir.path(), other, format).ok());
}

}  // namespace
}  // namespace echelon
