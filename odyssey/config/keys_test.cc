// SPDX-License-Identifier: Apache-2.0
// The registry, and how values are spelled.
#include "odyssey/config/keys.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/error.h"
#include "odyssey/config/spelling.h"
#include "odyssey/config/value.h"
#include "odyssey/config/yaml.h"

namespace odyssey {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string canonical(const char* key, const char* text) {
  return to_text(parse_value(*find_key(key), text, ""));
}

TEST(Registry, NamesEveryKeyOnceWithHelpAndAValidDefault) {
  std::set<std::string> names;
  for (const Key& key : all_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.theme.empty()) << key.name;
    EXPECT_NO_THROW(parse_value(key, key.default_text, "")) << key.name;
    if (key.effect == KeyEffect::kFixed) {
      EXPECT_FALSE(key.accepted.empty() || key.remedy.empty()) << key.name;
    }
    if (key.type == KeyType::kEnum) {
      EXPECT_FALSE(key.accepted.empty()) << key.name;
    }
  }
}

TEST(Registry, FindsTheOlderSpellingOfTheUlyssesAxis) {
  EXPECT_EQ(find_key("ici_context_ulysses_parallelism"),
            find_key("ici_context_usp_ulysses_parallelism"));
  EXPECT_EQ(find_key("dcn_context_ulysses_parallelism")->name,
            "dcn_context_usp_ulysses_parallelism");
  EXPECT_EQ(find_key("no_such_key"), nullptr);
  EXPECT_EQ(find_key(""), nullptr);
}

TEST(Registry, BaseYmlHoldsEveryUsedKeyWithItsDefault) {
  const std::vector<YamlFile> files = read_yaml("configs/base.yml");
  ASSERT_EQ(files.size(), 1u);
  std::set<std::string> present;
  for (const YamlEntry& entry : files[0].entries) {
    const Key* key = find_key(entry.key);
    ASSERT_NE(key, nullptr) << entry.key;
    EXPECT_NE(key->effect, KeyEffect::kNone) << entry.key;
    EXPECT_EQ(parse_value(*key, entry.text, ""), parse_value(*key, key->default_text, ""))
        << entry.key;
    present.insert(entry.key);
  }
  for (const Key& key : all_keys()) {
    if (key.effect != KeyEffect::kUsed) continue;
    EXPECT_TRUE(present.contains(key.name)) << key.name;
  }
  EXPECT_TRUE(present.contains("enable_checkpointing"));
}

TEST(Value, ReadsTheSpellingsOfYmlAndPython) {
  for (const char* word : {"True", "true", "TRUE", " true "}) {
    EXPECT_EQ(canonical("packing", word), "true");
  }
  EXPECT_EQ(canonical("packing", "False"), "false");
  EXPECT_EQ(canonical("steps", "150_001"), "150001");
  EXPECT_EQ(canonical("steps", "+7"), "7");
  EXPECT_EQ(canonical("steps", "-1"), "-1");
  EXPECT_EQ(canonical("steps", "010"), "10");  // decimal, not octal
  EXPECT_EQ(canonical("learning_rate", "1e-5"), "1e-05");
  EXPECT_EQ(canonical("learning_rate", "1.e-05"), "1e-05");
  EXPECT_EQ(canonical("learning_rate", "3"), canonical("learning_rate", "3.0"));
  EXPECT_EQ(canonical("rope_max_timescale", "10_000"), canonical("rope_max_timescale", "1e4"));
  for (const char* word : {"None", "none", "null", "~", ""}) {
    EXPECT_EQ(canonical("attn_logits_soft_cap", word), "None");
    EXPECT_EQ(canonical("max_num_checkpoints_to_keep", word), "None");
    EXPECT_EQ(canonical("run_name", word), "");
  }
  EXPECT_EQ(canonical("context_parallel_strategy", "Ulysses"), "ulysses");
  EXPECT_EQ(canonical("mlp_activations", "[\"gelu\", 'linear']"), "[gelu,linear]");
  EXPECT_EQ(canonical("mlp_activations", "[silu,linear]"), "[silu,linear]");
  EXPECT_EQ(canonical("text_document_separator", " % "), " % ");  // blanks may be meant
}

TEST(Value, RefusesWhatOnlyLooksLikeANumber) {
  for (const char* word : {"", "1.5", "1e3", "1_", "_1", "1__0", "0x10", "1 2", "--1", "+-1", "one",
                           "nan", "True", "99999999999999999999", "0", "-2"}) {
    EXPECT_THROW(canonical("steps", word), UserError) << word;
  }
  for (const char* word : {"", "nan", "inf", "-inf", "1e999", "1e-5x", "0x1p3", "1,5", "-1"}) {
    EXPECT_THROW(canonical("learning_rate", word), UserError) << word;
  }
  for (const char* word : {"", "1", "0", "yes", "None", "tru"}) {
    EXPECT_THROW(canonical("packing", word), UserError) << word;
  }
  for (const char* word : {"", "silu", "[silu]", "[relu,linear]", "[silu,linear"}) {
    EXPECT_THROW(canonical("mlp_activations", word), UserError) << word;
  }
}

TEST(Spelling, CountsInsertionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("steps", "stesp"), 1);
  EXPECT_EQ(edit_distance("ring", "rang"), 1);
}

TEST(Spelling, NamesTheNearestOrNothing) {
  EXPECT_EQ(nearest_key("contxt_paralel_strategy"), "context_parallel_strategy");
  EXPECT_EQ(nearest_key("ici_context_ulyses_parallelism"), "ici_context_ulysses_parallelism");
  EXPECT_EQ(nearest_key("zzzzzzzzzz"), "");
  EXPECT_EQ(nearest_key(std::string(100000, 'a')), "");
}

TEST(Help, ListsTheKeysOfAWord) {
  const std::string table = describe_keys("ULYSSES");
  EXPECT_THAT(table, HasSubstr("ici_context_usp_ulysses_parallelism"));
  EXPECT_THAT(table, HasSubstr("[all_gather, ring, ulysses or usp]"));
  EXPECT_THAT(table, Not(HasSubstr("adam_b1")));
  const std::string all = describe_keys("");
  for (const Key& key : all_keys()) EXPECT_THAT(all, HasSubstr("  " + key.name + " "));
  EXPECT_EQ(describe_keys("stepz"),
            "No key has 'stepz' in its name or help. The nearest key is steps.\n");
}

}  // namespace
}  // namespace odyssey
