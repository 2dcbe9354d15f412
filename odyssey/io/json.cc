// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

using Json = nlohmann::json;

// Reads the header event by event: a tree would silently keep the last of two equal names.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("true or false"); }
  bool number_float(double value, const std::string&) override { refuse(fmt::format("{}", value)); }
  bool number_integer(int64_t value) override { refuse(fmt::format("{}", value)); }
  bool binary(Json::binary_t&) override { refuse("binary data"); }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse(fmt::format("{}", value));
    }
    if (place_ == Place::kShape) {
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::kOffsets) {
      offsets_.push_back(static_cast<int64_t>(value));
    } else {
      refuse(fmt::format("{}", value));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kTensor && field_ == "dtype") {
      tensor_.type = std::move(value);
    } else if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(field_, std::move(value)).second) refuse("a repeated key");
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && tensor_.name == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) refuse("a second one");
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    field_ = std::move(name);
    if (place_ == Place::kTop) {
      tensor_ = TensorEntry{.name = field_, .type = {}, .shape = {}};
      offsets_.clear();
      fields_.clear();
    } else if (place_ == Place::kTensor) {
      if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") refuse("the key");
      if (std::find(fields_.begin(), fields_.end(), field_) != fields_.end()) {
        refuse("a repeated key");
      }
      fields_.push_back(field_);
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (fields_.size() != 3) refuse("fewer keys");
      if (offsets_.size() != 2) refuse(fmt::format("{} offsets", offsets_.size()));
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
      header_.tensors.push_back(std::move(tensor_));
      tensor_ = {};
    }
    place_ = Place::kTop;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    throw user_error(fmt::format("{}: header", path_), "valid JSON",
                     fmt::format("a fault at its byte {}", position),
                     "The file is damaged: write or download it again.");
  }

 private:
  enum class Place { kOutside, kTop, kTensor, kShape, kOffsets, kMetadata };

  [[noreturn]] void refuse(const std::string& actual) const {
    const bool metadata = tensor_.name == "__metadata__";
    throw user_error(
        fmt::format("{}: {} {}", path_, metadata ? "entry" : "tensor",
                    quote_json(std::string_view(tensor_.name).substr(0, 200))),
        metadata ? "one object of strings with different names"
                 : "dtype (a string), shape (whole numbers from 0 up) and data_offsets (two of "
                   "these), each once",
        fmt::format("{} at {}", actual, quote_json(std::string_view(field_).substr(0, 200))),
        "The file is damaged or its writer is faulty: write or download it again.");
  }

  const std::string& path_;
  SafetensorsHeader header_;
  Place place_ = Place::kOutside;
  std::string field_;                // the last key read
  TensorEntry tensor_;               // the one being read
  std::vector<std::string> fields_;  // keys of it read so far
  std::vector<int64_t> offsets_;
  bool metadata_seen_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text) {
  // The format asks for the brace; the library would take a NUL byte for the end of the text.
  if (!text.starts_with('{') || text.find('\0') != std::string_view::npos) {
    throw user_error(fmt::format("{}: header", path), "a JSON object",
                     text.empty() ? "no header" : "other bytes", "Is it a safetensors file?");
  }
  HeaderReader reader(path);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

std::string quote_json(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonLine& JsonLine::add(std::string_view name, double value) {
  if (std::isnan(value)) return add_raw(name, "\"NaN\"");
  if (std::isinf(value)) return add_raw(name, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  char digits[32];  // the longest shortest form has 24
  const auto result = std::to_chars(std::begin(digits), std::end(digits), value);
  std::string text(std::begin(digits), result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return add_raw(name, text);
}

JsonLine& JsonLine::add(std::string_view name, int64_t value) {
  return add_raw(name, fmt::format("{}", value));
}

JsonLine& JsonLine::add(std::string_view name, std::string_view value) {
  return add_raw(name, quote_json(value));
}

JsonLine& JsonLine::add_flag(std::string_view name, bool value) {
  return add_raw(name, value ? "true" : "false");
}

JsonLine& JsonLine::add(std::string_view name, const JsonLine& value) {
  return add_raw(name, value.text());
}

JsonLine& JsonLine::add(std::string_view name, const std::vector<JsonLine>& values) {
  std::string list;
  for (const JsonLine& value : values) list += (list.empty() ? "" : ", ") + value.text();
  return add_raw(name, "[" + list + "]");
}

JsonLine& JsonLine::add(std::string_view name, const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + quote_json(value);
  return add_raw(name, "[" + list + "]");
}

JsonLine& JsonLine::add_raw(std::string_view name, std::string_view value) {
  ODYSSEY_CHECK(std::find(names_.begin(), names_.end(), name) == names_.end(),
                "the key {} was added twice", name);
  names_.emplace_back(name);
  if (!members_.empty()) members_ += ", ";
  members_ += fmt::format("{}: {}", quote_json(name), value);
  return *this;
}

}  // namespace odyssey
