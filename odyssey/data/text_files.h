// SPDX-License-Identifier: Apache-2.0
// TextFiles: the documents of a file or of a folder of files. Files are mapped when they are read,
// never copied, and only a few at a time, so a folder may be larger than the memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "odyssey/io/mapped_file.h"

namespace odyssey {

class TextFiles {
 public:
  // A folder is searched in depth. Its files are taken in order of their paths, compared byte by
  // byte. Left out and counted: hidden files and folders (named .something), files that hold a NUL
  // byte (binary), empty ones, links that lead nowhere, pipes and devices, and what is the same
  // file as one taken before, under another name. A file is one document. With a separator, each
  // line of exactly that text (ended by \n, \r\n or the file's end) ends a document and belongs to
  // none. Empty documents are dropped. Throws UserError when `path` is no file and no folder, or
  // when no document of 2 bytes is left: there would be nothing to predict.
  TextFiles(const std::string& path, const std::string& separator);

  const std::vector<int64_t>& lengths() const { return lengths_; }  // of the documents, in bytes
  // The bytes of a document, valid until the next call. Throws RunError when its file has changed.
  std::span<const std::byte> bytes(int64_t document);
  // "43 files, 15,211 documents, 2,446,010 bytes; skipped 43 binary"
  std::string describe() const;

 private:
  struct Place {
    int64_t file, begin;
  };
  struct File {
    std::string path;
    int64_t size;
  };
  void scan(const std::string& path, const std::string& separator);
  void add_document(int64_t begin, int64_t end);
  void skip(const std::string& reason) { ++skipped_[reason]; }

  std::vector<File> files_;
  std::vector<Place> places_;     // per document
  std::vector<int64_t> lengths_;  // per document
  std::map<std::string, int64_t> skipped_;
  std::map<int64_t, MappedFile> mapped_;  // by index of the file
};

}  // namespace odyssey
