// SPDX-License-Identifier: Apache-2.0
#include "odyssey/io/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "odyssey/base/bf16.h"
#include "odyssey/base/error.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_text(uint64_t length, const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}
std::string file_text(const std::string& header, int64_t data_bytes = 0) {
  return file_text(header.size(), header, std::string(static_cast<size_t>(data_bytes), '\1'));
}
std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

// Expects a UserError that names the file and holds `text`.
void expect_refused(const std::string& content, const std::string& text) {
  const TestFolder folder;
  const std::string path = folder.write("bad.safetensors", content);
  try {
    const SafetensorsFile file(path);
    ADD_FAILURE() << "loaded, expected a refusal with " << text;
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(SafetensorsFile, RefusesBrokenLengths) {
  const std::string good = "{" + entry("a", "U8", "[4]", "[0,4]") + "}";
  expect_refused("", "0 bytes");
  expect_refused("1234567", "7 bytes");
  expect_refused(file_text(0, good, "1234"), "JSON");
  expect_refused(file_text(good.size() + 8 + 4 - 7, good, "1234"), "header length");
  expect_refused(file_text(uint64_t{1} << 63, good, "1234"), "9223372036854775808");
  expect_refused(file_text(~uint64_t{0}, good, "1234"), "18446744073709551615");
  expect_refused(file_text(good.size() / 2, good.substr(0, good.size() / 2), ""), "valid JSON");
  expect_refused(file_text(good.size() / 2, good, "1234"), "valid JSON");
}

TEST(SafetensorsFile, RefusesOffsetsThatDoNotFit) {
  const auto one = [](const std::string& offsets) {
    return file_text("{" + entry("weight", "F32", "[32,8]", offsets) + "}", 1024);
  };
  for (const char* offsets : {"[-4,4]", "[64,0]", "[0,65536]", "[0,1025]", "[1,1025]", "[0,1020]",
                              "[0,9223372036854775807]", "[9223372036854775807,0]"}) {
    expect_refused(one(offsets), "\"weight\"");
  }
  expect_refused(
      file_text(
          "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[3,7]") + "}", 7),
      "overlap");
  expect_refused(
      file_text(
          "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[5,9]") + "}", 9),
      "gap");
  expect_refused(file_text("{" + entry("a", "U8", "[4]", "[4,8]") + "}", 8), "gap");
  expect_refused(file_text("{" + entry("a", "U8", "[4]", "[0,4]") + "," +
                               entry("empty", "U8", "[0]", "[2,2]") + "}",
                           4),
                 "overlap");
  expect_refused(file_text("{" + entry("a", "U8", "[4]", "[0,4]") + "}", 9), "9");
  expect_refused(file_text("{}", 1), "data");
}

TEST(SafetensorsFile, RefusesTypesShapesAndNames) {
  expect_refused(file_text("{" + entry("a", "F99", "[1]", "[0,4]") + "}", 4), "F99");
  expect_refused(file_text("{" + entry("a", "", "[1]", "[0,4]") + "}", 4), "\"a\"");
  expect_refused(file_text("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}"),
                 "[4294967296, 4294967296]");
  expect_refused(file_text("{" + entry("a", "F64", "[2305843009213693952]", "[0,0]") + "}"),
                 "2^63");
  expect_refused(file_text("{" + entry("a", "F32", "[-1]", "[0,4]") + "}", 4), "-1");
  expect_refused(file_text("{" + entry("twice", "U8", "[1]", "[0,1]") + "," +
                               entry("twice", "U8", "[1]", "[1,2]") + "}",
                           2),
                 "\"twice\"");
}

TEST(SafetensorsFile, EveryCutOfAGoodFileIsRefused) {
  const TestFolder folder;
  const std::string good = file_text(
      "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "I32", "[1]", "[4,8]") + "}", 8);
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string path = folder.write("cut", good.substr(0, size));
    EXPECT_THROW(SafetensorsFile{path}, UserError) << size;
  }
  EXPECT_NO_THROW(SafetensorsFile{folder.write("cut", good)});
}

TEST(SafetensorsFile, EveryChangedByteIsRefusedOrHarmless) {
  const TestFolder folder;
  const std::string good =
      file_text("{\"__metadata__\":{\"k\":\"v\"}," + entry("a", "F32", "[2,1]", "[0,8]") + "}", 8);
  for (size_t i = 0; i < good.size() - 8; ++i) {
    for (char byte : std::string("\0\1\"-09[]{},e\xff", 14)) {
      std::string text = good;
      text[i] = byte;
      const std::string path = folder.write("changed", text);
      try {
        const SafetensorsFile file(path);
        for (const StoredTensor& tensor : file.tensors()) {
          EXPECT_LE(tensor.bytes.size(), 8u);
        }
      } catch (const UserError&) {
      }  // any other error fails the test
    }
  }
}

TEST(SafetensorsFile, LoadsPaddingMetadataEmptyAndReorderedTensors) {
  const TestFolder folder;
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("late", "I32", "[1]", "[4,8]") + "," +
                             entry("none", "F32", "[3,0]", "[4,4]") + "," +
                             entry("early", "I32", "[]", "[0,4]") + "}      ";
  const int32_t numbers[] = {7, -9};
  const SafetensorsFile file(folder.write(
      "good", file_text(header.size(), header,
                        std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers)))));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "late");
  EXPECT_THAT(file.read_int32("early"), ElementsAre(7));
  EXPECT_THAT(file.read_int32("late"), ElementsAre(-9));
  EXPECT_TRUE(file.read_floats("none").empty());
  EXPECT_EQ(file.tensor("none").count(), 0);
  EXPECT_TRUE(file.contains("late"));
  EXPECT_FALSE(file.contains("other"));
  EXPECT_THROW(file.tensor("other"), UserError);
  EXPECT_NO_THROW(SafetensorsFile{folder.write("nothing", file_text("{}"))});
}

TEST(SafetensorsFile, LoadsAHeaderOf126Megabytes) {
  const TestFolder folder;
  const std::string header = "{\"__metadata__\":{\"k\":\"" + std::string(126'000'000, 'x') +
                             "\"}," + entry("a", "U8", "[2]", "[0,2]") + "}";
  const SafetensorsFile file(folder.write("long", file_text(header, 2)));
  EXPECT_EQ(file.metadata().at("k").size(), 126'000'000u);
  EXPECT_EQ(file.tensors().size(), 1u);
}

TEST(WriteSafetensors, ComesBackAsItWas) {
  const TestFolder folder;
  const uint8_t bytes[] = {1, 2, 3};
  const double doubles[] = {0.5, -1e-3};
  const float floats[] = {1.5f, std::numeric_limits<float>::infinity(), -0.0f};
  const bf16 halves[] = {bf16(2.5f)};
  const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00};
  const int64_t longs[] = {-5, int64_t{1} << 30};
  write_safetensors(
      folder.path("f"),
      std::vector<TensorToWrite>{{"bytes \"quoted\" \xc3\xbc", StoredType::kU8, {3}, bytes},
                                 {"doubles", StoredType::kF64, {2}, doubles},
                                 {"floats", StoredType::kF32, {3, 1}, floats},
                                 {"bf16", StoredType::kBf16, {}, halves},
                                 {"half", StoredType::kF16, {5}, half},
                                 {"empty", StoredType::kF32, {0, 4}, nullptr},
                                 {"longs", StoredType::kI64, {1, 2}, longs}},
      {{"step", "12"}, {"a", "b\n"}});
  const SafetensorsFile file(folder.path("f"));
  EXPECT_EQ(file.tensors()[0].name, "bytes \"quoted\" \xc3\xbc");
  EXPECT_EQ(file.metadata().at("a"), "b\n");
  EXPECT_EQ(file.metadata().at("step"), "12");
  EXPECT_THAT(file.read_floats("doubles"), ElementsAre(0.5f, -1e-3f));
  EXPECT_THAT(file.read_floats("floats"), ElementsAre(floats[0], floats[1], floats[2]));
  EXPECT_THAT(file.read_floats("bf16"), ElementsAre(2.5f));
  EXPECT_THAT(file.read_floats("half"),
              ElementsAre(1.0f, -2.0f, 0x1p-24f, 65504.0f, std::numeric_limits<float>::infinity()));
  EXPECT_THAT(file.read_int32("longs"), ElementsAre(-5, 1 << 30));
  EXPECT_THAT(file.tensor("floats").shape, ElementsAre(3, 1));
  EXPECT_TRUE(file.tensor("bf16").shape.empty());
  EXPECT_EQ(std::memcmp(file.tensors()[0].bytes.data(), bytes, 3), 0);
  std::vector<float> part(2);
  file.read_floats("floats", 1, part);
  EXPECT_THAT(part, ElementsAre(floats[1], floats[2]));
  EXPECT_THROW(file.read_floats("floats", 2, part), std::logic_error);
  for (const StoredTensor& tensor : file.tensors()) {  // the mapping begins on a page
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % bytes_of(tensor.type), 0u);
  }
}

TEST(WriteSafetensors, NumbersThatDoNotFitAreRefused) {
  const TestFolder folder;
  const int64_t longs[] = {1, int64_t{1} << 31};
  const double doubles[] = {0, 0, 1e39};
  write_safetensors(folder.path("f"),
                    std::vector<TensorToWrite>{{"longs", StoredType::kI64, {2}, longs},
                                               {"doubles", StoredType::kF64, {3}, doubles}});
  const SafetensorsFile file(folder.path("f"));
  for (const std::string name : {"longs", "doubles"}) {
    try {
      name == "longs" ? void(file.read_int32(name)) : void(file.read_floats(name));
      ADD_FAILURE() << name;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), HasSubstr(name == "longs" ? "index 1" : "index 2"));
    }
  }
  EXPECT_THROW(file.read_floats("longs"), UserError);
  EXPECT_THROW(file.read_int32("doubles"), UserError);
}

TEST(WriteSafetensors, AnErrorLeavesTheOldFileAndNothingElse) {
  const TestFolder folder;
  const std::vector<float> small{1, 2}, large(1 << 18, 3.0f);
  const auto write = [&](const std::vector<float>& data, const std::string& name) {
    write_safetensors(
        folder.path(name),
        std::vector<TensorToWrite>{
            {"x", StoredType::kF32, {static_cast<int64_t>(data.size())}, data.data()}});
  };
  write(small, "f");
  {
    const FileSizeLimit limit(1 << 16);
    EXPECT_THROW(write(large, "f"), RunError);
  }
  EXPECT_THAT(SafetensorsFile(folder.path("f")).read_floats("x"), ElementsAre(1, 2));
  EXPECT_THAT(folder.names(), ElementsAre("f"));
  EXPECT_THROW(write(small, "missing/f"), UserError);
  write(large, "f");
  EXPECT_EQ(SafetensorsFile(folder.path("f")).read_floats("x"), large);
}

TEST(WriteSafetensors, RefusesFaultsOfTheCaller) {
  const TestFolder folder;
  const float x = 1;
  const auto write = [&](const std::vector<TensorToWrite>& tensors) {
    write_safetensors(folder.path("f"), tensors);
  };
  EXPECT_THROW(write({{"a", StoredType::kF32, {1}, &x}, {"a", StoredType::kF32, {1}, &x}}),
               std::logic_error);
  EXPECT_THROW(write({{"__metadata__", StoredType::kF32, {1}, &x}}), std::logic_error);
  EXPECT_THROW(write({{"a", StoredType::kF32, {-1}, &x}}), std::logic_error);
  EXPECT_THROW(write({{"a", StoredType::kF32, {1}, nullptr}}), std::logic_error);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace odyssey
