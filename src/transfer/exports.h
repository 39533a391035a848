// Folders of this host whose files peers may read or write, and their open files. No path or link
// leads out of an exported folder (openat2, RESOLVE_BENEATH). A process may have few descriptors:
// among files that nobody uses, only the most recently used stay open, and a closed file is opened
// again when it is used. Not synchronised.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/description.h"
#include "transfer/directory/socket.h"
#include "transfer/types.h"

namespace braid::transfer {

/// A regular file. Aligned jobs bypass the page cache if the file system can (`direct`). The file
/// is closed once nobody holds it any more.
struct OpenFile {
  Descriptor cached;
  Descriptor direct;
};
using OpenFilePointer = std::shared_ptr<const OpenFile>;

class Exports {
 public:
  /// Beyond this number, the closed files that have been unused longest are forgotten.
  static constexpr size_t kFilesMax = 1 << 16;
  static constexpr size_t kOpenMax = 1024;
  /// A quarter of the descriptors that this process may open, at two a file, but at most kOpenMax
  /// files.
  static size_t usual_open_max();

  /// `open_max`: how many unused files stay open. `files_max`: how many files are known.
  explicit Exports(size_t open_max = usual_open_max(), size_t files_max = kFilesMax)
      : open_max_(open_max), files_max_(files_max) {}

  /// Exports a folder. It stays open from now on, so renaming it changes nothing.
  Status add(const std::string& name, const std::string& folder, Rights rights);
  /// `path`: an export's name, a slash, and the path within it. A missing file is made if writing
  /// is wanted. `file` is its number: the same for the same path and rights as long as the same
  /// file lies there. kTooMuch: this process may open no more descriptors.
  Cause open(const std::string& path, Rights wanted, uint64_t& file, uint64_t& size_bytes);
  /// Checks the right and returns the open file, which stays open while the caller holds `opened`.
  /// A file that was replaced or removed can still be used until it is closed; then kNoFile.
  Cause use(uint64_t file, Rights right, OpenFilePointer& opened);
  std::vector<ExportDescription> describe() const;

 private:
  struct Folder {
    Descriptor descriptor;
    Rights rights = kNoRights;
  };
  /// The identity of a file. Inode numbers are reused once nobody has the file open; together with
  /// the time of its birth they are unique.
  struct Identity {
    uint64_t device = 0, inode = 0;
    int64_t born_s = 0;  // both 0: the file system does not say
    uint32_t born_ns = 0;
    bool operator==(const Identity&) const = default;
    bool is_lasting() const { return born_s != 0 || born_ns != 0; }
  };
  struct Found {
    OpenFile file;
    Identity identity;
    uint64_t size_bytes = 0;
  };
  struct File {
    std::string path;
    Rights rights = kNoRights;
    Identity identity;
    OpenFilePointer open;               // null: it is closed
    std::list<uint64_t>::iterator use;  // in open_ or closed_
  };

  const Folder* folder_of(const std::string& path, std::string& within) const;
  Cause look_up(const std::string& path, Rights wanted, bool makes, Found& found);
  static Cause look_up(const Folder& folder, const std::string& within, Rights wanted, bool makes,
                       Found& found);
  void keep_open(uint64_t number, File& file, OpenFile&& opened);
  bool close_idle(size_t open_max);
  void forget_oldest();

  size_t open_max_;
  size_t files_max_;
  std::map<std::string, Folder> folders_;
  std::map<uint64_t, File> files_;
  std::map<std::pair<std::string, Rights>, uint64_t> numbers_;
  std::list<uint64_t> open_, closed_;  // numbers of files, the latest first
  uint64_t next_ = 1;
};

}  // namespace braid::transfer
