// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"

namespace odyssey {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_none(std::string_view text) {
  const std::string word = lower(text);
  return word.empty() || word == "none" || word == "null" || word == "~";
}

// Takes out the '_' between digits and a leading '+'; nothing where a '_' stands elsewhere.
std::optional<std::string> plain_number(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.erase(0, 1);
  return digits;
}

// from_chars: decimal whatever the zeros in front, and deaf to the locale.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  const std::optional<std::string> digits = plain_number(text);
  if (!digits) return std::nullopt;
  Number number{};
  const char* end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

bool in_range(const Range& range, double number) {
  if (range.also && number == *range.also) return true;
  if (!std::isfinite(number)) return false;
  return number <= range.most &&
         (range.least_is_open ? number > range.least : number >= range.least);
}

// "[silu,linear]" from ["silu", 'linear'].
std::optional<std::string> plain_list(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  std::string list;
  for (char c : text) {
    if (c != ' ' && c != '"' && c != '\'') list += c;
  }
  return lower(list);
}

std::string number_text(double number) {
  // Whole numbers in full: 1000000, not 1e+06.
  if (number == std::floor(number) && std::fabs(number) < 1e15)
    return fmt::format("{:.0f}", number);
  return fmt::format("{}", number);
}

std::string range_text(const Range& range, std::string_view noun) {
  std::string expected(noun);
  if (std::isfinite(range.least) && std::isfinite(range.most)) {
    expected += fmt::format(" {} {} {} {}", range.least_is_open ? "above" : "from",
                            number_text(range.least), range.least_is_open ? "and up to" : "to",
                            number_text(range.most));
  } else if (std::isfinite(range.least)) {
    expected += fmt::format(" {} {}", range.least_is_open ? "above" : "of at least",
                            number_text(range.least));
  }
  if (range.also) return fmt::format("{} or {}", number_text(*range.also), expected);
  return expected;
}

// The value of the type, unchecked; nothing where the text is no such value.
std::optional<Value> parse_type(KeyType type, std::string_view text) {
  switch (type) {
    case KeyType::kBool: {
      const std::string word = lower(text);
      if (word == "true") return Value(true);
      if (word == "false") return Value(false);
      return std::nullopt;
    }
    case KeyType::kOptionalInt:
      if (is_none(text)) return Value();
      [[fallthrough]];
    case KeyType::kInt: {
      const auto number = parse_number<int64_t>(text);
      return number ? std::optional<Value>(*number) : std::nullopt;
    }
    case KeyType::kOptionalFloat:
      if (is_none(text)) return Value();
      [[fallthrough]];
    case KeyType::kFloat: {
      const auto number = parse_number<double>(text);
      return number ? std::optional<Value>(*number) : std::nullopt;
    }
    case KeyType::kString:
      return Value(is_none(text) ? std::string() : std::string(text));
    case KeyType::kEnum:
      return Value(is_none(text) ? std::string() : lower(text));
    case KeyType::kList: {
      const auto list = plain_list(text);
      return list ? std::optional<Value>(*list) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::vector<std::string> accepted_by(const Key& key, Purpose purpose) {
  std::vector<std::string> accepted = key.accepted;
  if (purpose == Purpose::kPlan) {
    accepted.insert(accepted.end(), key.plan_accepted.begin(), key.plan_accepted.end());
  }
  return accepted;
}

bool is_accepted(const Key& key, const Value& value, Purpose purpose) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    if (!in_range(key.range, static_cast<double>(*number))) return false;
  }
  if (const auto* number = std::get_if<double>(&value)) {
    if (!in_range(key.range, *number)) return false;
  }
  const std::vector<std::string> accepted = accepted_by(key, purpose);
  if (accepted.empty()) return true;
  return std::any_of(accepted.begin(), accepted.end(), [&](const std::string& word) {
    const std::optional<Value> one = parse_type(key.type, word);
    return one && *one == value;
  });
}

std::string remedy_for(const Key& key, std::string_view text) {
  if (key.type == KeyType::kInt || key.type == KeyType::kOptionalInt) {
    const auto number = parse_number<double>(text);
    const bool is_int = parse_number<int64_t>(text).has_value();
    if (!is_int && number && *number == std::floor(*number) && in_range(key.range, *number)) {
      return fmt::format("Write it as {}.", number_text(*number));
    }
  }
  if (!key.remedy.empty()) return key.remedy;
  return key.default_text.empty() ? "The default is empty."
                                  : fmt::format("The default is {}.", key.default_text);
}

}  // namespace

std::string expected_of(const Key& key, Purpose purpose) {
  if (!key.accepted.empty()) return join_with_or(accepted_by(key, purpose));
  switch (key.type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInt:
      return range_text(key.range, "a whole number");
    case KeyType::kFloat:
      return range_text(key.range, "a number");
    case KeyType::kOptionalInt:
      return "None or " + range_text(key.range, "a whole number");
    case KeyType::kOptionalFloat:
      return "None or " + range_text(key.range, "a number");
    case KeyType::kList:
      return "a list such as [a,b]";
    case KeyType::kString:
    case KeyType::kEnum:
      return "a text";
  }
  return "";
}

Value parse_value(const Key& key, std::string_view text, std::string_view where, Purpose purpose) {
  // A text may begin or end with blanks on purpose; nothing else can.
  const std::string_view word = key.type == KeyType::kString ? text : trim(text);
  const std::optional<Value> value = parse_type(key.type, word);
  if (value && is_accepted(key, *value, purpose)) return *value;
  constexpr size_t kMostShown = 100;
  std::string shown = word.empty() ? "nothing" : std::string(word.substr(0, kMostShown));
  if (word.size() > kMostShown) shown += "...";
  throw user_error(fmt::format("{}{}", where, key.name), expected_of(key, purpose), shown,
                   remedy_for(key, word));
}

std::string to_text(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "None";
}

}  // namespace odyssey
