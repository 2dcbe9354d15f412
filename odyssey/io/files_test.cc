// SPDX-License-Identifier: Apache-2.0
// Mapped files and files written aside.
#include <cstring>
#include <filesystem>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "odyssey/base/error.h"
#include "odyssey/io/atomic_file.h"
#include "odyssey/io/mapped_file.h"
#include "odyssey/io/test_folder.h"

namespace odyssey {
namespace {

using ::testing::HasSubstr;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The text of the UserError that the call throws.
template <class Call>
std::string complaint(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const TestFolder folder;
  MappedFile file(folder.write("a", std::string("one\0two", 7)));
  EXPECT_EQ(text_of(file), std::string("one\0two", 7));
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.size(), 7);
  moved = MappedFile(folder.write("b", "longer than before"));
  EXPECT_EQ(text_of(moved), "longer than before");
}

TEST(MappedFile, MayBeEmpty) {
  const TestFolder folder;
  const MappedFile file(folder.write("empty", ""));
  EXPECT_EQ(file.size(), 0);
  EXPECT_TRUE(file.bytes().empty());
}

TEST(MappedFile, RefusalsNameThePath) {
  const TestFolder folder;
  EXPECT_THAT(complaint([&] { MappedFile(folder.path("none")); }), HasSubstr(folder.path("none")));
  EXPECT_THAT(complaint([&] { MappedFile(folder.path()); }), HasSubstr("a folder"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(complaint([&] { MappedFile(folder.path("pipe")); }), HasSubstr("pipe"));
  if (::geteuid() != 0) {  // root reads everything
    ::chmod(folder.write("locked", "x").c_str(), 0);
    EXPECT_THAT(complaint([&] { MappedFile(folder.path("locked")); }), HasSubstr("locked"));
  }
}

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const TestFolder folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(text_of(MappedFile(path)), "old");
  }
  EXPECT_EQ(text_of(MappedFile(path)), "old");  // given up
  AtomicFile file(path);
  file.write("new");
  file.write(" text");
  file.commit();
  EXPECT_EQ(text_of(MappedFile(path)), "new text");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_THROW(file.commit(), std::logic_error);
}

TEST(AtomicFile, TwoWritersAndAnOldRemnantDoNotMeet) {
  const TestFolder folder;
  folder.write("a.tmp0", "left by a killed run");
  AtomicFile first(folder.path("a")), second(folder.path("a"));
  first.write("first");
  second.write("second");
  first.commit();
  EXPECT_EQ(text_of(MappedFile(folder.path("a"))), "first");
  second.commit();
  EXPECT_EQ(text_of(MappedFile(folder.path("a"))), "second");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "a.tmp0"}));
}

TEST(AtomicFile, RefusesWhatTheUserCanMend) {
  const TestFolder folder;
  EXPECT_THAT(complaint([&] { AtomicFile(folder.path("none/a")); }),
              HasSubstr(folder.path("none")));
  EXPECT_THAT(complaint([&] { AtomicFile{folder.path()}; }), HasSubstr(folder.path()));
  EXPECT_THAT(complaint([&] { AtomicFile(""); }), HasSubstr("name"));
  EXPECT_THAT(complaint([&] { AtomicFile("/dev/null"); }), HasSubstr("/dev/null"));
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TestFolder folder;
  const std::string path = folder.write("a", "old");
  const FileSizeLimit limit(1 << 16);
  {
    AtomicFile file(path);
    EXPECT_THROW(file.write(std::string(1 << 20, 'x')), RunError);
  }
  EXPECT_EQ(text_of(MappedFile(path)), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace odyssey
