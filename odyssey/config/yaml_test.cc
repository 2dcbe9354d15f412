// SPDX-License-Identifier: Apache-2.0
#include "odyssey/config/yaml.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

// A folder of its own for each test; the process works inside it, so that messages hold short
// paths.
class Yaml : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    folder_ = std::filesystem::temp_directory_path() / ("yaml_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_ / "sub");
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string message(const std::string& path) {
    try {
      read_yaml(path);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  std::filesystem::path before_, folder_;
};

TEST_F(Yaml, KeepsOrderTextAndLines) {
  write("a.yml",
        "# comment\nsteps: 150_001\n\nrun_name: 'None'  # why\nempty:\ntilde: ~\nlist: "
        "[\"silu\", linear]\npercent: \"%\"\n");
  const std::vector<YamlFile> files = read_yaml("a.yml");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, "a.yml");
  const std::vector<YamlEntry>& entries = files[0].entries;
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].key, "steps");
  EXPECT_EQ(entries[0].text, "150_001");
  EXPECT_EQ(entries[0].line, 2);
  EXPECT_EQ(entries[1].text, "None");
  EXPECT_EQ(entries[1].line, 4);
  EXPECT_EQ(entries[2].text, "");
  EXPECT_EQ(entries[3].text, "");
  EXPECT_EQ(entries[4].text, "[silu,linear]");
  EXPECT_EQ(entries[5].text, "%");
}

TEST_F(Yaml, TakesAnEmptyFile) {
  write("a.yml", "");
  write("b.yml", "# only a comment\n");
  EXPECT_TRUE(read_yaml("a.yml")[0].entries.empty());
  EXPECT_TRUE(read_yaml("b.yml")[0].entries.empty());
}

TEST_F(Yaml, PutsTheBaseFirst) {
  write("base.yml", "steps: 1\n");
  write("sub/middle.yml", "base_config: ../base.yml\nsteps: 2\n");
  write("sub/top.yml", "base_config: middle.yml\nsteps: 3\n");
  const std::vector<YamlFile> files = read_yaml("sub/top.yml");
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].path, "sub/../base.yml");
  EXPECT_EQ(files[0].entries[0].text, "1");
  EXPECT_EQ(files[2].entries[0].text, "3");
  EXPECT_EQ(files[2].entries.size(), 1u);  // base_config is no key of a run
}

TEST_F(Yaml, RefusesABaseThatLeadsBack) {
  write("a.yml", "base_config: b.yml\n");
  write("b.yml", "base_config: a.yml\n");
  EXPECT_EQ(
      message("a.yml"),
      "b.yml: expected a base_config that does not lead back, got a.yml, which builds on this "
      "file. Take one base_config out.");
}

TEST_F(Yaml, RefusesDuplicatesWithBothLines) {
  write("a.yml", "steps: 1\npacking: true\nsteps: 1\n");
  EXPECT_EQ(
      message("a.yml"),
      "a.yml:3: steps: expected each key once, got it again (first in line 1). Take one of the "
      "two out.");
}

TEST_F(Yaml, RefusesNestedValues) {
  const std::string tail =
      " expected one value, got nested values. Configurations are flat: 'key: value'.";
  write("a.yml", "x: 1\nsteps:\n  inner: 1\n");
  EXPECT_EQ(message("a.yml"), "a.yml:2: steps:" + tail);
  write("b.yml", "mesh_axes: [[data, 1], 2]\n");
  EXPECT_EQ(message("b.yml"), "b.yml:1: mesh_axes:" + tail);
  write("c.yml", "{a: 1}: 2\n");
  EXPECT_EQ(message("c.yml"),
            "c.yml:1: expected a key, got nested values. Configurations are flat: 'key: value'.");
}

TEST_F(Yaml, RefusesWhatIsNoListOfKeys) {
  write("a.yml", "- steps\n- 2\n");
  EXPECT_EQ(message("a.yml"),
            "a.yml:1: expected 'key: value' lines, got a list. Write one 'key: value' a line.");
  write("b.yml", "steps=3\n");
  EXPECT_EQ(message("b.yml"),
            "b.yml:1: expected 'key: value' lines, got a single value. Write one 'key: value' a "
            "line.");
  write("c.yml", "steps: 1\n---\nsteps: 2\n");
  EXPECT_EQ(message("c.yml"),
            "c.yml: expected one yml document, got 2. Take out the lines of '---'.");
}

TEST_F(Yaml, NamesTheLineOfASyntaxError) {
  write("a.yml", "steps: 1\nrun_name: \"open\nsteps: 5\n");
  EXPECT_EQ(
      message("a.yml"),
      "a.yml:2: run_name: expected a quote that ends in its own line, got an open quote. Close it "
      "with \".");
  write("b.yml", "steps: 1\nrun: a: b\n");
  EXPECT_EQ(message("b.yml").substr(0, 19), "b.yml:2: expected y");
  write("c.yml", std::string("\x00\xff\xfe\x01garbage: [", 14));
  EXPECT_NE(message("c.yml"), "no error");
}

TEST_F(Yaml, RefusesMissingFilesAndFolders) {
  EXPECT_EQ(message("none.yml"),
            "none.yml: expected a yml file, got no such file. Check the path.");
  EXPECT_EQ(message("sub"), "sub: expected a yml file, got a folder. Check the path.");
  write("a.yml", "base_config: gone.yml\n");
  EXPECT_EQ(message("a.yml"), "gone.yml: expected a yml file, got no such file. Check the path.");
}

}  // namespace
}  // namespace odyssey
