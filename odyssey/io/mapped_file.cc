// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/mapped_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

// Closes when the scope ends; the mapping outlives it.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

UserError unreadable(const std::string& path, const std::string& actual) {
  return user_error(path, "a readable file", actual, "Check the path and its permissions.");
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe without a writer would wait for ever.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) throw unreadable(path, std::system_category().message(errno));
  struct stat status {};
  if (::fstat(file.number, &status) != 0) {
    throw unreadable(path, std::system_category().message(errno));
  }
  if (S_ISDIR(status.st_mode)) throw unreadable(path, "a folder");
  if (!S_ISREG(status.st_mode)) throw unreadable(path, "a pipe, socket or device");
  if (status.st_size == 0) return;  // mmap refuses length 0
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.number, 0);
  if (memory == MAP_FAILED) {
    throw RunError(fmt::format("{}: mapping {} bytes failed: {}", path,
                               static_cast<int64_t>(status.st_size),
                               std::system_category().message(errno)));
  }
  data_ = static_cast<const std::byte*>(memory);
  size_ = status.st_size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  }
}

}  // namespace odyssey
