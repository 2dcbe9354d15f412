// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/json.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

#include "odyssey/base/error.h"
#include "odyssey/base/random.h"

namespace odyssey {
namespace {

TEST(JsonLine, KeepsTheOrderAndEscapes) {
  JsonLine line;
  line.add("step", 3)
      .add("loss", 2.5)
      .add("a \"key\"", "line\nend \x01 \\")
      .add("tokens", int64_t{1} << 60);
  EXPECT_EQ(line.text(),
            "{\"step\": 3, \"loss\": 2.5, \"a \\\"key\\\"\": \"line\\nend \\u0001 \\\\\", "
            "\"tokens\": 1152921504606846976}");
  EXPECT_EQ(JsonLine().text(), "{}");
}

TEST(JsonLine, WritesWhatJsonHasNoWordForAsStrings) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  JsonLine line;
  line.add("a", std::nan("")).add("b", kInfinity).add("c", -kInfinity);
  EXPECT_EQ(line.text(), "{\"a\": \"NaN\", \"b\": \"Infinity\", \"c\": \"-Infinity\"}");
}

TEST(JsonLine, DoublesReadBackAsTheSameBits) {
  const Random random(1, 2);
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto words = random.words(i);
    const double value = std::bit_cast<double>((uint64_t{words[0]} << 32) | words[1]);
    if (!std::isfinite(value)) continue;
    const std::string text = JsonLine().add("x", value).text();
    EXPECT_EQ(std::strtod(text.c_str() + 6, nullptr), value) << text;
  }
  EXPECT_EQ(JsonLine().add("x", 0.1).text(), "{\"x\": 0.1}");
  EXPECT_EQ(JsonLine().add("x", -0.0).text(), "{\"x\": -0.0}");
  EXPECT_EQ(JsonLine().add("x", 100.0).text(), "{\"x\": 100.0}");
  EXPECT_EQ(JsonLine().add("x", 1e300).text(), "{\"x\": 1e+300}");
  EXPECT_EQ(JsonLine().add("x", 5e-324).text(), "{\"x\": 5e-324}");
}

TEST(JsonLine, NoKeyTwice) {
  JsonLine line;
  line.add("a", 1);
  EXPECT_THROW(line.add("a", 2), std::logic_error);
}

TEST(QuoteJson, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(quote_json("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
  EXPECT_EQ(quote_json("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(SafetensorsHeader, ReadsEveryPart) {
  const auto header = parse_safetensors_header(
      "f",
      R"({"__metadata__":{"format":"pt"}, "w":{"shape":[2,3],"data_offsets":[0,24],"dtype":"F32"},
               "scalar":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}  )");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "w");
  EXPECT_EQ(header.tensors[0].type, "F32");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[1].begin, 24);
  EXPECT_EQ(header.tensors[1].end, 32);
  EXPECT_TRUE(header.tensors[1].shape.empty());
}

TEST(SafetensorsHeader, RefusesOddForms) {
  const std::string odd[] = {
      "",
      " {}",
      "[]",
      "{",
      "{} x",
      std::string("{}\0{", 4),
      R"({"a":1})",
      R"({"a":[]})",
      R"({"a":{}})",
      R"({"a":{"dtype":"F32","shape":[1]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})",
      R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[null],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9223372036854775808]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}})",
      R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":{}}})",
      R"({"__metadata__":{"a":1}})",
      R"({"__metadata__":{"a":"1","a":"2"}})",
      R"({"__metadata__":{},"__metadata__":{}})",
      "{\"\xff\":{}}",
  };
  for (const std::string& text : odd) {
    EXPECT_THROW(parse_safetensors_header("f", text), UserError) << text;
  }
  // Nesting deeper than any stack.
  EXPECT_THROW(parse_safetensors_header("f", "{\"a\":" + std::string(1 << 20, '[')), UserError);
}

TEST(JsonLine, HoldsObjectsAndLists) {
  JsonLine inner, line;
  inner.add("a", 1);
  line.add_flag("yes", true).add_flag("no", false).add("one", inner);
  line.add("many", std::vector<JsonLine>{inner, JsonLine()});
  line.add("texts", std::vector<std::string>{"x", "\"y"}).add("none", std::vector<JsonLine>());
  EXPECT_EQ(line.text(),
            "{\"yes\": true, \"no\": false, \"one\": {\"a\": 1}, \"many\": [{\"a\": 1}, {}], "
            "\"texts\": [\"x\", \"\\\"y\"], \"none\": []}");
}

}  // namespace
}  // namespace odyssey
