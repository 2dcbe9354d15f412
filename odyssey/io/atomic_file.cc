// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/atomic_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool user_can_mend(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
         error == EROFS || error == EISDIR || error == ENAMETOOLONG;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  // Renaming onto a device such as /dev/null would replace it.
  if (path_.empty() || (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))) {
    throw user_error(fmt::format("cannot write '{}'", path_), "the name of a file",
                     "a folder or special file", "Choose another name.");
  }
  // The number tells apart several writers and what a killed run left behind.
  for (int number = 0; number < 1000 && descriptor_ < 0; ++number) {
    temporary_ = fmt::format("{}.tmp{}", path_, number);
    descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ >= 0) return;
  const int error = errno;
  temporary_.clear();
  if (user_can_mend(error)) {
    throw user_error(fmt::format("cannot write {}", path_),
                     "a folder that exists and may be written",
                     std::system_category().message(error),
                     fmt::format("Make the folder {} or choose another.", folder_of(path_)));
  }
  errno = error;
  fail("opening a temporary file");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(std::string_view doing) const {
  throw RunError(
      fmt::format("cannot write {}: {}: {}", path_, doing, std::system_category().message(errno)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  ODYSSEY_CHECK(descriptor_ >= 0, "{} is already in place", path_);
  if (::fsync(descriptor_) != 0) fail("flushing");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("closing");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renaming");
  temporary_.clear();
  // The new name itself is on the disk only after the folder is.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder that may be written but not read
  const int result = ::fsync(folder);
  const int error = errno;
  ::close(folder);
  errno = error;
  if (result != 0 && error != EINVAL) fail("flushing the folder");  // EINVAL: no such call there
}

}  // namespace odyssey
