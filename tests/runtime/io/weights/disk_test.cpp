// Files of their full size, on file systems that reserve space and on those that cannot.
#include "runtime/io/weights/disk.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kBytes = std::int64_t{8} << 20;

struct stat facts_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info;
}

TEST_CASE("a file system that cannot reserve space gets a file of full size, no block written") {
  const TempDir dir;
  for (const int answer : {EOPNOTSUPP, ENOSYS, EINVAL}) {
    const Disk disk(
        [&](std::string_view what, const std::string&) { return what == "allocate" ? answer : 0; });
    const std::string path = (dir.path() / std::to_string(answer)).string();
    const Result<Disk::File> file = disk.create(path, kBytes);
    INFO((file ? "" : file.error().message()));
    REQUIRE(file.ok());
    const struct stat info = facts_of(path);
    CHECK(info.st_size == kBytes);
    CHECK(info.st_blocks * 512 < kBytes / 8);
  }
}

TEST_CASE("a full disk is reported with the space needed and free") {
  const TempDir dir;
  for (const int answer : {ENOSPC, EDQUOT}) {
    const Disk disk(
        [&](std::string_view what, const std::string&) { return what == "allocate" ? answer : 0; });
    const Result<Disk::File> file =
        disk.create((dir.path() / std::to_string(answer)).string(), kBytes);
    REQUIRE(!file.ok());
    INFO(file.error().message());
    CHECK(file.error().kind == Error::Kind::environment);
    CHECK(file.error().found.starts_with(
        "cannot be written: no space left on the device: 8.4 MB are needed, "));
    CHECK(file.error().found.ends_with(" are free"));
  }
}

TEST_CASE("sizes are shown in a unit that is not too large for them") {
  CHECK(size_text(12'340'000'000) == "12.3 GB");
  CHECK(size_text(4'100'000) == "4.1 MB");
  CHECK(size_text(3'200) == "3.2 kB");
  CHECK(size_text(0) == "0 bytes");
}

}  // namespace
}  // namespace echelon
