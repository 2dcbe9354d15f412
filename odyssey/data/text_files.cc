// SPDX-License-Identifier: Apache-2.0
#include "odyssey/data/text_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

namespace fs = std::filesystem;

// Linux grants a process 65,530 mappings; thread ranks share them.
constexpr size_t kMostMapped = 256;

using Skip = std::function<void(const std::string& reason)>;

// Plain files below a folder, in no order. Follows links, but enters each folder once.
void list_files(const fs::path& folder, std::set<fs::path>& entered,
                std::vector<std::string>& files, const Skip& skip) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    throw user_error(folder.string(), "a readable folder", error.message(),
                     "Check its permissions.");
  }
  // Links may lead to the same folder twice: which name wins must not depend on the disk.
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    const fs::file_status status = fs::status(entry, error);
    if (entry.filename().native().starts_with('.')) {
      skip("hidden");
    } else if (!fs::exists(status)) {
      skip("broken links");
    } else if (fs::is_directory(status)) {
      const fs::path canonical = fs::canonical(entry, error);
      if (error || !entered.insert(canonical).second) {
        skip("repeated");
      } else {
        list_files(entry, entered, files, skip);
      }
    } else if (fs::is_regular_file(status)) {
      files.push_back(entry.native());
    } else {
      skip("special");
    }
  }
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// 1234567 as 1,234,567.
std::string grouped(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace

TextFiles::TextFiles(const std::string& path, const std::string& separator) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (path.empty() || !fs::exists(status)) {
    throw user_error("text_path", "a file or a folder",
                     path.empty() ? "nothing" : fmt::format("{}: {}", path, error.message()),
                     "Give the path of the text to train on.");
  }
  if (separator.find('\n') != std::string::npos) {
    throw user_error("text_document_separator", "the text of one line", "a line end in it",
                     "Leave the line end out.");
  }
  std::vector<std::string> paths;
  if (fs::is_directory(status)) {
    std::set<fs::path> entered{fs::canonical(path, error)};
    list_files(path, entered, paths, [&](const std::string& reason) { skip(reason); });
    std::sort(paths.begin(), paths.end());
  } else {
    paths.push_back(path);
  }
  std::set<fs::path> taken;
  for (const std::string& file : paths) {
    if (taken.insert(fs::canonical(file, error)).second) {
      scan(file, separator);
    } else {
      skip("repeated");
    }
  }
  if (std::none_of(lengths_.begin(), lengths_.end(), [](int64_t n) { return n >= 2; })) {
    throw user_error(fmt::format("text_path {}", path), "at least one document of 2 bytes",
                     describe(), "Give a file or folder that holds text.");
  }
}

void TextFiles::scan(const std::string& path, const std::string& separator) {
  const MappedFile file(path);
  const std::string_view text = text_of(file);
  if (text.find('\0') != std::string_view::npos) return skip("binary");
  files_.push_back({path, file.size()});
  const size_t before = lengths_.size();
  size_t begin = 0;
  for (size_t line = 0; !separator.empty() && line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    std::string_view content = text.substr(line, end - line);
    if (content.size() == separator.size() + 1 && content.ends_with('\r')) {
      content.remove_suffix(1);
    }
    const size_t next = std::min(end + 1, text.size());
    if (content == separator) {
      add_document(static_cast<int64_t>(begin), static_cast<int64_t>(line));
      begin = next;
    }
    line = next;
  }
  add_document(static_cast<int64_t>(begin), static_cast<int64_t>(text.size()));
  if (lengths_.size() == before) {
    files_.pop_back();
    skip("empty");
  }
}

void TextFiles::add_document(int64_t begin, int64_t end) {
  if (begin == end) return;
  places_.push_back({static_cast<int64_t>(files_.size()) - 1, begin});
  lengths_.push_back(end - begin);
}

std::span<const std::byte> TextFiles::bytes(int64_t document) {
  const Place place = places_[document];
  const File& file = files_[place.file];
  auto found = mapped_.find(place.file);
  if (found == mapped_.end()) {
    if (mapped_.size() >= kMostMapped) mapped_.clear();
    found = mapped_.emplace(place.file, MappedFile(file.path)).first;
  }
  if (found->second.size() != file.size) {
    throw RunError(fmt::format("{} changed during the run: it had {} bytes, now {}", file.path,
                               file.size, found->second.size()));
  }
  return found->second.bytes().subspan(static_cast<size_t>(place.begin),
                                       static_cast<size_t>(lengths_[document]));
}

std::string TextFiles::describe() const {
  const int64_t bytes = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
  std::string text =
      fmt::format("{} files, {} documents, {} bytes", grouped(static_cast<int64_t>(files_.size())),
                  grouped(static_cast<int64_t>(lengths_.size())), grouped(bytes));
  const char* joint = "; skipped ";
  for (const auto& [reason, count] : skipped_) {
    text += fmt::format("{}{} {}", joint, grouped(count), reason);
    joint = ", ";
  }
  return text;
}

}  // namespace odyssey
