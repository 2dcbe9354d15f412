// SPDX-License-Identifier: Apache-2.0
// JSON, as far as the project needs it: the header of a safetensors file in, one object per line
// out. The JSON library stays behind this header.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

// One tensor as the header of a safetensors file lists it. Only its JSON form is checked; the
// numbers are not yet compared with each other or with the file, but none is negative.
struct TensorEntry {
  std::string name, type;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of the text; names may still be repeated
  std::map<std::string, std::string> metadata;
};

// Throws UserError that names the file and, where it is known, the tensor.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text);

// The text as a JSON string, with quotes. Bytes that are no UTF-8 become U+FFFD.
std::string quote_json(std::string_view text);

// One JSON object on one line, keys in the order they were added; objects may hold others.
class JsonLine {
 public:
  // Shortest text that reads back as the same double, always with a point or an exponent. JSON has
  // no word for the rest: these become the strings "NaN", "Infinity" and "-Infinity".
  JsonLine& add(std::string_view name, double value);
  JsonLine& add(std::string_view name, int64_t value);
  JsonLine& add(std::string_view name, int value) { return add(name, int64_t{value}); }
  JsonLine& add(std::string_view name, std::string_view value);

  JsonLine& add_flag(std::string_view name, bool value);
  JsonLine& add(std::string_view name, const JsonLine& value);
  JsonLine& add(std::string_view name, const std::vector<JsonLine>& values);
  JsonLine& add(std::string_view name, const std::vector<std::string>& values);

  // Without a line end.
  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonLine& add_raw(std::string_view name, std::string_view value);

  std::string members_;
  std::vector<std::string> names_;
};

}  // namespace odyssey
