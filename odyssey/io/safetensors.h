// SPDX-License-Identifier: Apache-2.0
// Files in the safetensors format: 8 bytes header length, a JSON header, then the tensors' bytes,
// all little-endian. The reader trusts nothing: every number is compared with the others and with
// the file before it is used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "odyssey/io/json.h"
#include "odyssey/io/mapped_file.h"

namespace odyssey {

// How a file stores one element; the names are those of the format (F64, F32, F16, BF16, I64, ...).
enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBf16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};
std::string_view name_of(StoredType type);
int64_t bytes_of(StoredType type);  // per element
// Of a whole tensor; nothing where the product does not fit 63 bits.
std::optional<int64_t> bytes_of(StoredType type, std::span<const int64_t> shape);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;        // empty: one number
  std::span<const std::byte> bytes;  // may start at any address: copy before reading it as numbers
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / bytes_of(type); }
};

// Open for as long as its bytes are in use; what it returns points into the mapped file.
class SafetensorsFile {
 public:
  // A longer header is refused. 1 GiB lists some ten million tensors.
  static constexpr int64_t kMostHeaderBytes = int64_t{1} << 30;

  // Throws UserError naming the file, and the tensor at fault, unless: names differ; types are
  // known; each tensor has as many bytes as its shape asks for; together they fill the file without
  // overlap.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of the header.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return index_.contains(name); }
  // Throws UserError when there is none of that name.
  const StoredTensor& tensor(std::string_view name) const;

  // Elements [first, first + out.size()) in storage order, from F64, F32, F16 or BF16. UserError
  // for another type, and for a finite F64 that float cannot hold.
  void read_floats(std::string_view name, int64_t first, std::span<float> out) const;
  std::vector<float> read_floats(std::string_view name) const;
  // From I32 or I64; UserError naming the index of a number that int32 cannot hold.
  std::vector<int32_t> read_int32(std::string_view name) const;

 private:
  void add(TensorEntry entry, std::span<const std::byte> data);
  void check_order(std::span<const std::byte> data) const;

  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;  // the names live in tensors_
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  const void* bytes = nullptr;  // contiguous, row-major
};

// Writes aside and renames, so `path` is the old file or the whole new one. The header lists the
// tensors as given; wide types are stored first, so every tensor is aligned to its element. Throws
// UserError when the folder is missing or may not be written, RunError for all else, such as a full
// disk; nothing is left behind then.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace odyssey
