#include "runtime/io/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "core/base/files.hpp"

namespace echelon {

Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return environment_error(path, "cannot be read: " + reason_of(errno));
  struct stat info {};
  const int status = ::fstat(fd, &info);
  InputFile file(path, fd, info.st_size);  // closes from here on
  if (status != 0) return environment_error(path, "cannot be read: " + reason_of(errno));
  if (!S_ISREG(info.st_mode)) {
    return input_error(
        path, S_ISDIR(info.st_mode) ? "is a directory, not a file" : "is not a regular file",
        "a file");
  }
  return file;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status InputFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  auto* to = static_cast<char*>(out);
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(fd_, to + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return environment_error(path_, "cannot be read: " + reason_of(errno));
    if (got == 0) {
      return environment_error(
          path_, fmt::format("ends at byte {}, before byte {}", offset + done, offset + bytes),
          "it was cut off while it was in use");
    }
    done += got;
    bytes_read_ += got;
  }
  return Done{};
}

}  // namespace echelon
