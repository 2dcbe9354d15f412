// SPDX-License-Identifier: Apache-2.0
// The words that the tables of keys are written in. Only keys_*.cc and keys.cc include this.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "odyssey/config/keys.h"

namespace odyssey {

// One table a theme; keys.cc puts them together.
std::vector<Key> parallel_keys();
std::vector<Key> attention_keys();
std::vector<Key> model_keys();
std::vector<Key> data_keys();
std::vector<Key> train_keys();
std::vector<Key> run_keys();
std::vector<Key> no_effect_keys();

inline Key make_key(KeyType type, std::string name, std::string default_text, std::string help) {
  Key key;
  key.name = std::move(name);
  key.type = type;
  key.default_text = std::move(default_text);
  key.help = std::move(help);
  return key;
}

inline Key flag(std::string name, std::string default_text, std::string help) {
  return make_key(KeyType::kBool, std::move(name), std::move(default_text), std::move(help));
}

inline Key text(std::string name, std::string default_text, std::string help) {
  return make_key(KeyType::kString, std::move(name), std::move(default_text), std::move(help));
}

inline Key whole(std::string name, std::string default_text, Range range, std::string help) {
  Key key = make_key(KeyType::kInt, std::move(name), std::move(default_text), std::move(help));
  key.range = range;
  return key;
}

inline Key real(std::string name, std::string default_text, Range range, std::string help) {
  Key key = make_key(KeyType::kFloat, std::move(name), std::move(default_text), std::move(help));
  key.range = range;
  return key;
}

inline Key optional_real(std::string name, Range range, std::string help) {
  Key key = make_key(KeyType::kOptionalFloat, std::move(name), "None", std::move(help));
  key.range = range;
  return key;
}

// `remedy` answers those who ask for a value that MaxText knows and that is not built here.
inline Key choice(std::string name, std::string default_text, std::vector<std::string> accepted,
                  std::string help, std::string remedy = "") {
  Key key = make_key(KeyType::kEnum, std::move(name), std::move(default_text), std::move(help));
  key.accepted = std::move(accepted);
  key.remedy = std::move(remedy);
  return key;
}

// A key that only `odyssey plan` reads.
inline Key plan_only(Key key) {
  key.effect = KeyEffect::kPlan;
  return key;
}

// Adds values that are not built here but that `odyssey plan` can price.
inline Key and_plans(std::vector<std::string> accepted, Key key) {
  key.plan_accepted = std::move(accepted);
  return key;
}

// Narrows a key to the values that are built here.
inline Key only(std::vector<std::string> accepted, std::string remedy, Key key) {
  key.effect = KeyEffect::kFixed;
  key.accepted = std::move(accepted);
  key.remedy = std::move(remedy);
  return key;
}

}  // namespace odyssey
