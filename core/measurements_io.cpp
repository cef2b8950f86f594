#include <algorithm>

#include "core/json_io.hpp"
#include "core/measurements.hpp"

namespace echelon {

std::string measurements_to_json(const std::vector<Measurement>& all) {
  Json list = Json::array();
  for (const Measurement& one : all) {
    list.push_back({{"what", one.what},
                    {"ranks", one.ranks},
                    {"cores", one.cores},
                    {"shape", one.shape},
                    {"seconds", one.seconds.in(kSecond)}});
  }
  return Json{{"schema", 1}, {"measurements", std::move(list)}}.dump(1) + "\n";
}

Result<std::vector<Measurement>> parse_measurements(std::string_view json, std::string_view where) {
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  JsonReader reader(*root, std::string(where));
  (void)reader.integer("schema", 1, 1);
  const Json* list = reader.member("measurements");
  if (list == nullptr || !list->is_array()) {
    reader.fail("measurements", "no list", "a list of measurements");
  }
  if (Status done = reader.finish(); !done) return done.error();
  std::vector<Measurement> all;
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonReader one((*list)[i], std::string(where), "/measurements/" + std::to_string(i));
    constexpr std::int64_t kMany = 4096;
    Measurement measured;
    measured.what = one.string("what");
    measured.ranks = static_cast<int>(one.integer("ranks", 1, kMany));
    measured.cores = static_cast<int>(one.integer("cores", 1, kMany));
    measured.seconds = Seconds{one.number("seconds", 0, 1e6)};
    const Json* shape = one.member("shape");
    const bool numbers = shape != nullptr && shape->is_array() &&
                         std::all_of(shape->begin(), shape->end(),
                                     [](const Json& n) { return n.is_number_integer(); });
    if (!numbers) one.fail("shape", "no list of whole numbers", "for example [256, 128, 512]");
    if (Status done = one.finish(); !done) return done.error();
    measured.shape = shape->get<std::vector<std::int64_t>>();
    all.push_back(std::move(measured));
  }
  return all;
}

}  // namespace echelon
