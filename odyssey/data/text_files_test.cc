// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/text_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "odyssey/base/error.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::string> documents_of(TextFiles& files) {
  std::vector<std::string> documents;
  for (size_t d = 0; d < files.lengths().size(); ++d) {
    const auto bytes = files.bytes(static_cast<int64_t>(d));
    documents.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return documents;
}
std::vector<std::string> documents_of(const std::string& path, const std::string& separator = "") {
  TextFiles files(path, separator);
  return documents_of(files);
}

TEST(TextFiles, TakesAFolderInOrderOfThePaths) {
  const TestFolder folder;
  folder.write("b.txt", "bb");
  folder.write("a/z.txt", "az");
  folder.write("a/deep/er.txt", "deep");
  folder.write("a.txt", "aa");  // before a/, since '.' < '/'
  EXPECT_THAT(documents_of(folder.path()), ElementsAre("aa", "deep", "az", "bb"));
}

TEST(TextFiles, SkipsAndCountsWhatIsNoText) {
  const TestFolder folder;
  folder.write("binary", std::string("ab\0cd", 5));
  folder.write("binary2", std::string("\0", 1));
  folder.write("empty", "");
  folder.write(".hidden", "hidden");
  folder.write(".git/config", "hidden");
  folder.write("real", std::string(1500, 'x'));
  folder.write("sub/other", "other");
  fs::create_symlink("real", folder.path("same"));
  fs::create_symlink("..", folder.path("sub/up"));
  fs::create_symlink("nowhere", folder.path("dangling"));
  fs::create_symlink("itself", folder.path("itself"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  TextFiles files(folder.path(), "");
  EXPECT_THAT(documents_of(files), ElementsAre(std::string(1500, 'x'), "other"));
  EXPECT_EQ(
      files.describe(),
      "2 files, 2 documents, 1,505 bytes; skipped 2 binary, 2 broken links, 1 empty, 2 hidden, "
      "2 repeated, 1 special");
}

TEST(TextFiles, FollowsLinksOutOfTheFolderOnce) {
  const TestFolder folder, other;
  other.write("x", "from x");
  fs::create_symlink(other.path(), folder.path("one"));
  fs::create_symlink(other.path(), folder.path("two"));
  fs::create_symlink(other.path("x"), folder.path("y"));
  TextFiles files(folder.path(), "");
  EXPECT_THAT(documents_of(files), ElementsAre("from x"));
  EXPECT_THAT(files.describe(), HasSubstr("2 repeated"));
}

TEST(TextFiles, TakesASingleFileWhateverItsName) {
  const TestFolder folder;
  EXPECT_THAT(documents_of(folder.write(".notes", "some text\n")), ElementsAre("some text\n"));
}

TEST(TextFiles, ASeparatorLineEndsADocumentAndBelongsToNone) {
  const TestFolder folder;
  const auto split = [&](const std::string& text) {
    return documents_of(folder.write("f", text), "===");
  };
  EXPECT_THAT(split("one\n===\ntwo\n"), ElementsAre("one\n", "two\n"));
  EXPECT_THAT(split("one\r\n===\r\ntwo"), ElementsAre("one\r\n", "two"));
  EXPECT_THAT(split("===\none\n===\n===\ntwo\n==="), ElementsAre("one\n", "two\n"));
  EXPECT_THAT(split("one\n===\r"), ElementsAre("one\n"));
  EXPECT_THAT(split("one ===\n ===\n=== \n====\n==\n"),
              ElementsAre("one ===\n ===\n=== \n====\n==\n"));
  EXPECT_THAT(split("\n===\n\n\n"), ElementsAre("\n", "\n\n"));
  EXPECT_THAT(documents_of(folder.write("f", "one\n===\ntwo\n")), ElementsAre("one\n===\ntwo\n"));
}

TEST(TextFiles, CountsFilesWithoutADocumentAsEmpty) {
  const TestFolder folder;
  folder.write("a", "===\n===\n");
  folder.write("b", "text");
  TextFiles files(folder.path(), "===");
  EXPECT_EQ(files.describe(), "1 files, 1 documents, 4 bytes; skipped 1 empty");
  EXPECT_THAT(documents_of(files), ElementsAre("text"));
}

TEST(TextFiles, ReadsMoreFilesThanAreMappedAtOnce) {
  const TestFolder folder;
  for (int i = 0; i < 700; ++i) {
    folder.write(fmt::format("{:03}", i), fmt::format("text {}", i));
  }
  TextFiles files(folder.path(), "");
  for (int round = 0; round < 2; ++round) {
    const auto documents = documents_of(files);
    ASSERT_EQ(documents.size(), 700u);
    for (int i = 0; i < 700; ++i) EXPECT_EQ(documents[i], fmt::format("text {}", i));
  }
}

TEST(TextFiles, RefusesPathsWithoutText) {
  const TestFolder folder;
  const auto complaint = [](const std::string& path, const std::string& separator) -> std::string {
    try {
      TextFiles(path, separator);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no UserError";
  };
  EXPECT_THAT(complaint("", ""), HasSubstr("text_path"));
  EXPECT_THAT(complaint(folder.path("none"), ""), HasSubstr(folder.path("none")));
  EXPECT_THAT(complaint("/dev/null", ""), HasSubstr("/dev/null"));
  EXPECT_THAT(complaint(folder.path(), ""), HasSubstr("0 files"));
  folder.write("binary", std::string(10, '\0'));
  EXPECT_THAT(complaint(folder.path(), ""), HasSubstr("skipped 1 binary"));
  folder.write("byte", "x");
  EXPECT_THAT(complaint(folder.path(), ""), HasSubstr("at least one document of 2 bytes"));
  EXPECT_THAT(complaint(folder.path(), "a\nb"), HasSubstr("text_document_separator"));
}

TEST(TextFiles, AFileThatChangedIsNoticed) {
  const TestFolder folder;
  const std::string path = folder.write("f", "before");
  TextFiles files(path, "");
  folder.write("f", "after all");
  EXPECT_THROW(files.bytes(0), RunError);
}

}  // namespace
}  // namespace odyssey
