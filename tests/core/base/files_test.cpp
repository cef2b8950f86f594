#include "core/base/files.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/json/json_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kLimit = 1 << 20;

template <class T>
Error environment_error_of(const Result<T>& result) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().message());
  CHECK(result.error().kind == Error::Kind::environment);
  return result.error();
}

std::size_t entries_in(const fs::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("written content is read back byte for byte") {
  const TempDir dir;
  const std::string path = (dir.path() / "a.bin").string();
  const std::string content("a\0b\r\n\xff", 6);
  REQUIRE(write_file(path, content).ok());
  CHECK(read_file(path, kLimit).value() == content);
  CHECK(entries_in(dir.path()) == 1);  // no temporary file stays behind
}

TEST_CASE("a file is replaced as a whole") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", std::string(1000, 'x')).string();
  REQUIRE(write_file(path, "short").ok());
  CHECK(slurp(path) == "short");
  REQUIRE(write_file(path, "").ok());
  CHECK(slurp(path).empty());
}

TEST_CASE("a missing file, a directory and a path through a file give different errors") {
  const TempDir dir;
  const std::string file = dir.write("a.txt", "x").string();
  const std::string missing = (dir.path() / "none.json").string();
  CHECK(mentions(environment_error_of(read_file(missing, kLimit)), "no such file"));
  CHECK(environment_error_of(read_file(missing, kLimit)).where == missing);
  const Result<std::string> folder = read_file(dir.path().string(), kLimit);
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.error().kind == Error::Kind::input);
  CHECK(mentions(folder.error(), "is a directory"));
  CHECK(mentions(environment_error_of(read_file(file + "/b", kLimit)), "not a directory"));
  CHECK(mentions(environment_error_of(read_file("", kLimit)), "no such file"));
}

TEST_CASE("an unreadable file is reported as permission denied") {
  if (::geteuid() == 0) return skip("the superuser may read every file");
  const TempDir dir;
  const fs::path file = dir.write("secret.json", "{}");
  fs::permissions(file, fs::perms::none);
  CHECK(mentions(environment_error_of(read_file(file.string(), kLimit)), "permission denied"));
}

TEST_CASE("a folder without write permission is reported as permission denied") {
  if (::geteuid() == 0) return skip("the superuser may write everywhere");
  const TempDir dir;
  fs::create_directory(dir.path() / "closed");
  fs::permissions(dir.path() / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  CHECK(mentions(environment_error_of(write_file((dir.path() / "closed/a.txt").string(), "x")),
                 "permission denied"));
}

TEST_CASE("a file longer than the limit is refused without reading it") {
  const TempDir dir;
  const fs::path file = dir.write("big.json", "");
  fs::resize_file(file, std::uintmax_t{100'000'000});  // sparse: reading it would give zeros
  const Result<std::string> content = read_file(file.string(), kLimit);
  REQUIRE_FALSE(content.ok());
  CHECK(content.error().kind == Error::Kind::input);
  CHECK(mentions(content.error(), "100000000 bytes"));
  const Result<Json> document = read_json(file.string());
  REQUIRE_FALSE(document.ok());
  CHECK(mentions(document.error(), "too long"));
}

TEST_CASE("a file exactly as long as the limit is read") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", "12345").string();
  CHECK(read_file(path, 5).ok());
  CHECK_FALSE(read_file(path, 4).ok());
}

TEST_CASE("reading an endless device stops at the limit") {
  if (!fs::exists("/dev/zero")) return skip("this system has no /dev/zero");
  const Result<std::string> content = read_file("/dev/zero", kLimit);
  REQUIRE_FALSE(content.ok());
  CHECK(mentions(content.error(), "too long"));
}

TEST_CASE("a full device is reported") {
  if (!fs::exists("/dev/full")) return skip("this system has no /dev/full");
  CHECK(mentions(environment_error_of(write_file("/dev/full", "x")), "no space left"));
}

TEST_CASE("a device can be written") {
  if (!fs::exists("/dev/null")) return skip("this system has no /dev/null");
  REQUIRE(write_file("/dev/null", "x").ok());
  CHECK(fs::is_character_file("/dev/null"));  // still the device, not a file of that name
}

TEST_CASE("a pipe can be written") {
  const TempDir dir;
  const std::string path = (dir.path() / "pipe").string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  CHECK(write_file(path, "through").ok());
  char buffer[16] = {};
  CHECK(::read(reader, buffer, sizeof buffer) == 7);
  ::close(reader);
  CHECK(std::string(buffer) == "through");
  CHECK(fs::is_fifo(path));
}

TEST_CASE("a missing folder is reported, a directory is not overwritten") {
  const TempDir dir;
  const std::string path = (dir.path() / "none" / "a.txt").string();
  CHECK(mentions(environment_error_of(write_file(path, "x")), "no such file or directory"));
  CHECK(mentions(environment_error_of(write_file(dir.path().string(), "x")), "is a directory"));
  CHECK_FALSE(write_file("", "x").ok());
}

TEST_CASE("a failed write keeps the old content and leaves nothing behind") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", "old").string();
  // A limit on file sizes makes the write fail half way, as on a full disk.
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status status = write_file(path, std::string(100'000, 'n'));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, old_handler);
  CHECK(mentions(environment_error_of(status), "its old content was kept"));
  CHECK(slurp(path) == "old");
  CHECK(entries_in(dir.path()) == 1);
}

TEST_CASE("a symbolic link stays a link and its target is written") {
  const TempDir dir;
  dir.write("target.txt", "old");
  fs::create_symlink("target.txt", dir.path() / "link.txt");
  REQUIRE(write_file((dir.path() / "link.txt").string(), "new").ok());
  CHECK(fs::is_symlink(dir.path() / "link.txt"));
  CHECK(slurp(dir.path() / "target.txt") == "new");
}

TEST_CASE("writing a dangling link creates its target or reports the reason") {
  const TempDir dir;
  fs::create_symlink("later.txt", dir.path() / "link.txt");
  REQUIRE(write_file((dir.path() / "link.txt").string(), "new").ok());
  CHECK(slurp(dir.path() / "later.txt") == "new");
  fs::create_symlink("nowhere/later.txt", dir.path() / "lost.txt");
  environment_error_of(write_file((dir.path() / "lost.txt").string(), "new"));
  fs::create_symlink("loop.txt", dir.path() / "loop.txt");
  CHECK(mentions(environment_error_of(write_file((dir.path() / "loop.txt").string(), "new")),
                 "too many symbolic links"));
}

TEST_CASE("a replaced file keeps its permissions") {
  const TempDir dir;
  const fs::path file = dir.write("a.txt", "old");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  REQUIRE(write_file(file.string(), "new").ok());
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}
