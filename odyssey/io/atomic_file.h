// SPDX-License-Identifier: Apache-2.0
// AtomicFile: writes a file aside and puts it in place only when every byte is safely stored.
// Whoever reads the path sees the old file or the whole new one, never a half, also after a full
// disk.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace odyssey {

class AtomicFile {
 public:
  // Opens a temporary file beside `path`. Throws UserError when the folder is missing or may not be
  // written, or when `path` is there and is no plain file.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Without a successful commit() the temporary file is removed.
  ~AtomicFile();

  // Both throw RunError naming the path and the cause.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Flushes to the disk, closes, renames to `path`.
  void commit();

 private:
  void fail(std::string_view doing) const;

  std::string path_, temporary_;  // temporary_ is empty once it is in place
  int descriptor_ = -1;
};

}  // namespace odyssey
