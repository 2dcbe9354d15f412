// SPDX-License-Identifier: Apache-2.0
// model_name=llama3-8b and its kin: the published shapes of dense models as key and value texts.
// Sources: the config.json of each model and MaxText's model files, which agree.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace odyssey {

struct PresetEntry {
  std::string key, text;
};

// Every key of the shape of that model; nothing for "default". Throws UserError for models that are
// known but not built, with the reason, and for unknown names, with the nearest known one.
// `where` is empty, or "file:line: ".
std::vector<PresetEntry> model_preset(std::string_view model_name, std::string_view where);

// The names of all models that are built.
std::vector<std::string> model_names();

}  // namespace odyssey
