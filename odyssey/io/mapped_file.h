// SPDX-License-Identifier: Apache-2.0
// MappedFile: a whole file as read-only memory. Pages are read when they are touched, so a file may
// be larger than the memory, and ranks on one node share the pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace odyssey {

class MappedFile {
 public:
  // Throws UserError that names the path when it is missing, a folder or unreadable. An empty file
  // is legal. The file must not shrink while it is mapped: touching a lost page kills the process.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace odyssey
