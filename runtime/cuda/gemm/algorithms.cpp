// Algorithms: the file of chosen cuBLASLt algorithms.
#include <cublasLt.h>
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/content_hash.hpp"
#include "core/base/files.hpp"
#include "runtime/cuda/gemm/gemm.hpp"

namespace echelon::cuda {
namespace {

constexpr std::int64_t kLongestFile = 1 << 22;

std::string line_of(const Product& p, const Algorithms::Algorithm& algorithm) {
  std::string line =
      fmt::format("{} {} {} {:d} {:d} {:d} {:d} {:d} {} {:d}", p.m, p.n, p.k, p.a_transposed,
                  p.b_transposed, p.wide, p.bias, p.addend, p.alignment, p.routed);
  for (const std::uint64_t word : algorithm) line += fmt::format(" {:016x}", word);
  return line + "\n";
}

bool read_line(const std::string& line, Product& p, Algorithms::Algorithm& algorithm) {
  std::istringstream in(line);
  in >> p.m >> p.n >> p.k >> p.a_transposed >> p.b_transposed >> p.wide >> p.bias >> p.addend >>
      p.alignment >> p.routed >> std::hex;
  for (std::uint64_t& word : algorithm) in >> word;
  std::string more;
  return !in.fail() && !(in >> more);
}

}  // namespace

namespace {

/// Without a file, or of one that cannot be read: none.
std::map<Product, Algorithms::Algorithm> algorithms_in(const std::string& path) {
  std::map<Product, Algorithms::Algorithm> all;
  const Result<std::string> text = read_file(path, kLongestFile);
  if (!text) return all;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    Product product;
    Algorithms::Algorithm algorithm{};
    if (read_line(line, product, algorithm)) all[product] = algorithm;
  }
  return all;
}

}  // namespace

std::string fingerprint_of(const std::map<Product, Algorithms::Algorithm>& chosen) {
  std::string text;
  for (const auto& [product, algorithm] : chosen) text += line_of(product, algorithm);
  return content_hash(text);
}

std::string algorithms_path(const std::string& gpu) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path base;
  if (cache != nullptr && *cache != 0) {
    base = cache;
  } else if (home != nullptr && *home != 0) {
    base = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  std::string name;
  for (const char letter : gpu) {
    name += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '-';
  }
  return base / "echelon" / fmt::format("gemm-{}-{}.txt", name, cublasLtGetVersion());
}

Algorithms::Algorithms(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) known_ = algorithms_in(path_);
}

std::optional<Algorithms::Algorithm> Algorithms::find(const Product& product) const {
  const auto known = known_.find(product);
  if (known == known_.end()) return std::nullopt;
  return known->second;
}

void Algorithms::keep(const Product& product, const Algorithm& algorithm) {
  known_[product] = algorithm;
  changed_ = true;
}

void Algorithms::save() const {
  if (path_.empty() || !changed_) return;
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), none);
  std::map<Product, Algorithm> all = known_;
  all.merge(algorithms_in(path_));  // of other processes
  std::string text;
  for (const auto& [product, algorithm] : all) text += line_of(product, algorithm);
  static_cast<void>(write_file(path_, text));  // the file only saves time
}

}  // namespace echelon::cuda
