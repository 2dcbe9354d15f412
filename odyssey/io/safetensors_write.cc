// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "odyssey/base/error.h"
#include "odyssey/io/atomic_file.h"
#include "odyssey/io/json.h"
#include "odyssey/io/safetensors.h"

namespace odyssey {

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<int64_t> sizes, begins(tensors.size()), order(tensors.size());
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorToWrite& tensor : tensors) {
    ODYSSEY_CHECK(names.insert(tensor.name).second, "the name {} is taken", tensor.name);
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    ODYSSEY_CHECK(bytes && *bytes >= 0 && (*bytes == 0 || tensor.bytes != nullptr), "{} {}",
                  tensor.name, fmt::join(tensor.shape, " x "));
    sizes.push_back(*bytes);
  }
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return bytes_of(tensors[a].type) > bytes_of(tensors[b].type);
  });
  int64_t end = 0;
  for (int64_t i : order) {
    begins[i] = end;
    end += sizes[i];
  }

  std::string header = "{";
  if (!metadata.empty()) {
    JsonLine entry;
    for (const auto& [key, value] : metadata) entry.add(key, std::string_view(value));
    header += "\"__metadata__\": " + entry.text();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    header += fmt::format(
        "{}{}: {{\"dtype\": \"{}\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
        header.size() == 1 ? "" : ", ", quote_json(tensors[i].name), name_of(tensors[i].type),
        fmt::join(tensors[i].shape, ", "), begins[i], begins[i] + sizes[i]);
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');

  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (int64_t i : order) {
    file.write({static_cast<const std::byte*>(tensors[i].bytes), static_cast<size_t>(sizes[i])});
  }
  file.commit();
}

}  // namespace odyssey
