// Folders of this host whose files peers may read or write, and the files of them that are open.
// Nothing outside an exported folder is reached, by whatever path or link (openat2,
// RESOLVE_BENEATH). Not synchronised.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/description.h"
#include "transfer/directory/socket.h"
#include "transfer/types.h"

namespace braid::transfer {

/// Regular. Past the page cache where a job is aligned, if the file system can.
struct OpenFile {
  Descriptor cached;
  Descriptor direct;
  Rights rights = kNoRights;
};

class Exports {
 public:
  static constexpr size_t kFilesMax = 4096;

  /// The folder is open from now on: renaming it changes nothing.
  Status add(const std::string& name, const std::string& folder, Rights rights);
  /// `path`: an export's name, a slash, and the way within. One that may be written is made if it
  /// is not there. `file` is its number: the same for the same path and rights while the same file
  /// lies there. One that was replaced keeps its old number for those who have opened it.
  Cause open(const std::string& path, Rights wanted, uint64_t& file, uint64_t& size_bytes);
  const OpenFile* find(uint64_t file) const;
  std::vector<ExportDescription> describe() const;

 private:
  struct Folder {
    Descriptor descriptor;
    Rights rights = kNoRights;
  };

  std::map<std::string, Folder> folders_;
  std::map<uint64_t, OpenFile> files_;
  std::map<std::pair<std::string, Rights>, uint64_t> numbers_;
  uint64_t next_ = 1;
};

}  // namespace braid::transfer
