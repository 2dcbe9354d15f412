// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "odyssey/base/bf16.h"
#include "odyssey/base/error.h"

namespace odyssey {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kPrefix = 8;  // bytes of the header length
constexpr std::string_view kDamaged =
    "The file is damaged or its writer is faulty: write or download it again.";

struct TypeRow {
  std::string_view name;
  int64_t bytes;
};
// In the order of StoredType.
constexpr std::array<TypeRow, 13> kTypes{{{"F64", 8},
                                          {"F32", 4},
                                          {"F16", 2},
                                          {"BF16", 2},
                                          {"I64", 8},
                                          {"I32", 4},
                                          {"I16", 2},
                                          {"I8", 1},
                                          {"U64", 8},
                                          {"U32", 4},
                                          {"U16", 2},
                                          {"U8", 1},
                                          {"BOOL", 1}}};

std::string label(const std::string& path, std::string_view tensor) {
  return fmt::format("{}: tensor {}", path, quote_json(tensor.substr(0, 200)));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < std::min<size_t>(shape.size(), 16); ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : ", ", shape[axis]);
  }
  return text + (shape.size() > 16 ? ", ...]" : "]");
}

std::string_view header_of(const MappedFile& file) {
  if (file.size() < kPrefix) {
    throw user_error(file.path(), "a safetensors file of at least 8 bytes",
                     fmt::format("{} bytes", file.size()), kDamaged);
  }
  uint64_t length = 0;
  std::memcpy(&length, file.bytes().data(), kPrefix);
  const int64_t room = std::min(file.size() - kPrefix, SafetensorsFile::kMostHeaderBytes);
  if (length > static_cast<uint64_t>(room)) {
    throw user_error(fmt::format("{}: header length", file.path()),
                     fmt::format("at most {} bytes (the file has {}, the limit is {})", room,
                                 file.size(), SafetensorsFile::kMostHeaderBytes),
                     fmt::format("{}", length), kDamaged);
  }
  return {reinterpret_cast<const char*>(file.bytes().data()) + kPrefix,
          static_cast<size_t>(length)};
}

// Element i of memory that may not be aligned.
template <class T>
T load(std::span<const std::byte> bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float half_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace

std::string_view name_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
int64_t bytes_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

std::optional<int64_t> bytes_of(StoredType type, std::span<const int64_t> shape) {
  int64_t bytes = bytes_of(type);
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string_view text = header_of(file_);
  SafetensorsHeader header = parse_safetensors_header(path, text);
  metadata_ = std::move(header.metadata);
  const auto data = file_.bytes().subspan(kPrefix + text.size());
  tensors_.reserve(header.tensors.size());
  for (TensorEntry& entry : header.tensors) add(std::move(entry), data);
  check_order(data);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second) {
      throw user_error(label(path, tensors_[i].name), "one of that name", "two", kDamaged);
    }
  }
}

// Sorted by place, each tensor must begin where the one before it ends, and the last one must end
// with the file.
void SafetensorsFile::check_order(std::span<const std::byte> data) const {
  std::vector<const StoredTensor*> sorted;
  sorted.reserve(tensors_.size());
  for (const StoredTensor& tensor : tensors_) sorted.push_back(&tensor);
  const auto place = [](const StoredTensor* tensor) {
    return std::pair(tensor->bytes.data(), tensor->bytes.size());
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](const StoredTensor* a, const StoredTensor* b) { return place(a) < place(b); });
  int64_t end = 0;
  for (const StoredTensor* tensor : sorted) {
    const int64_t begin = tensor->bytes.data() - data.data();
    if (begin != end) {
      throw user_error(label(path(), tensor->name),
                       fmt::format("to begin at byte {}, where the tensor before it ends", end),
                       fmt::format("{} ({})", begin, begin < end ? "overlap" : "gap"), kDamaged);
    }
    end = begin + static_cast<int64_t>(tensor->bytes.size());
  }
  if (end != static_cast<int64_t>(data.size())) {
    throw user_error(fmt::format("{}: data", path()),
                     fmt::format("{} bytes, where the last tensor ends", end),
                     fmt::format("{}", data.size()), kDamaged);
  }
}

void SafetensorsFile::add(TensorEntry entry, std::span<const std::byte> data) {
  if (entry.begin > entry.end || entry.end > static_cast<int64_t>(data.size())) {
    throw user_error(label(path(), entry.name),
                     fmt::format("rising offsets of at most {}, where the file ends", data.size()),
                     fmt::format("[{}, {}]", entry.begin, entry.end), kDamaged);
  }
  const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeRow& type) { return type.name == entry.type; });
  if (row == kTypes.end()) {
    throw user_error(label(path(), entry.name), "a known dtype such as F32, BF16 or I64",
                     quote_json(std::string_view(entry.type).substr(0, 200)),
                     "Convert the tensor to one of these.");
  }
  const auto type = static_cast<StoredType>(row - kTypes.begin());
  const auto needed = bytes_of(type, entry.shape);
  if (needed != entry.end - entry.begin) {
    throw user_error(
        label(path(), entry.name),
        needed ? fmt::format("{} bytes for {} {}", *needed, entry.type, shape_text(entry.shape))
               : fmt::format("a size below 2^63 bytes, not {}", shape_text(entry.shape)),
        fmt::format("offsets [{}, {}]", entry.begin, entry.end), kDamaged);
  }
  const auto bytes =
      data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.end - entry.begin));
  tensors_.push_back({std::move(entry.name), type, std::move(entry.shape), bytes});
}

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw user_error(label(path(), name), "a tensor of that name",
                     fmt::format("{} tensors of other names", tensors_.size()),
                     "Check the file and the name.");
  }
  return tensors_[found->second];
}

void SafetensorsFile::read_floats(std::string_view name, int64_t first,
                                  std::span<float> out) const {
  const StoredTensor& stored = tensor(name);
  const int64_t count = static_cast<int64_t>(out.size());
  ODYSSEY_CHECK(first >= 0 && first <= stored.count() && count <= stored.count() - first,
                "elements [{}, {}) of {} {}", first, first + count, stored.count(), name);
  const auto bytes = stored.bytes.subspan(static_cast<size_t>(first * bytes_of(stored.type)));
  switch (stored.type) {
    case StoredType::kF32:
      if (count > 0) std::memcpy(out.data(), bytes.data(), out.size_bytes());
      return;
    case StoredType::kBf16:
      for (int64_t i = 0; i < count; ++i) out[i] = to_float(load<bf16>(bytes, i));
      return;
    case StoredType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = half_to_float(load<uint16_t>(bytes, i));
      return;
    case StoredType::kF64:
      for (int64_t i = 0; i < count; ++i) {
        const double wide = load<double>(bytes, i);
        // Beyond this float rounds to infinity; the cast itself would be undefined.
        if (std::isfinite(wide) && std::abs(wide) >= 0x1.ffffffp127) {
          throw user_error(label(path(), name), "numbers that float can hold",
                           fmt::format("{} at index {}", wide, first + i), "Scale the tensor.");
        }
        out[i] = static_cast<float>(wide);
      }
      return;
    default:
      throw user_error(label(path(), name), "dtype F64, F32, F16 or BF16",
                       std::string(name_of(stored.type)), "Convert the tensor.");
  }
}

std::vector<float> SafetensorsFile::read_floats(std::string_view name) const {
  std::vector<float> out(static_cast<size_t>(tensor(name).count()));
  read_floats(name, 0, out);
  return out;
}

std::vector<int32_t> SafetensorsFile::read_int32(std::string_view name) const {
  const StoredTensor& stored = tensor(name);
  if (stored.type != StoredType::kI32 && stored.type != StoredType::kI64) {
    throw user_error(label(path(), name), "dtype I32 or I64", std::string(name_of(stored.type)),
                     "Convert the tensor.");
  }
  std::vector<int32_t> out(static_cast<size_t>(stored.count()));
  for (int64_t i = 0; i < stored.count(); ++i) {
    const int64_t value = stored.type == StoredType::kI32 ? load<int32_t>(stored.bytes, i)
                                                          : load<int64_t>(stored.bytes, i);
    if (!std::in_range<int32_t>(value)) {
      throw user_error(label(path(), name), "numbers that 32 bits can hold",
                       fmt::format("{} at index {}", value, i), "Check the tensor.");
    }
    out[i] = static_cast<int32_t>(value);
  }
  return out;
}

}  // namespace odyssey
