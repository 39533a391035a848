// Folders of this host whose files peers may read or write, and their open files. No path or link
// leads out of an exported folder (openat2, RESOLVE_BENEATH). A process may have few descriptors:
// among files that nobody uses, only the most recently used stay open, and a closed file is opened
// again when it is used. Threads open and close them (file_opener.h), so that a file system that
// does not answer holds up nobody else. Not synchronised; nothing blocks but `add` and the
// destructor.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/description.h"
#include "transfer/directory/socket.h"
#include "transfer/file_opener.h"
#include "transfer/types.h"

namespace braid::transfer {

/// A regular file. Aligned jobs bypass the page cache if the file system can (`direct`). The file
/// is closed once nobody holds it any more.
struct OpenFile {
  Descriptor cached;
  Descriptor direct;
  uint64_t folder = 0;    ///< its number in Exports
  bool is_local = false;  ///< its file system needs no server, and refuses at once what would wait
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
  /// Questions of one peer that wait for files to be opened. Beyond, they fail as kTooMuch.
  static constexpr size_t kWaitingMax = 1 << 16;

  /// `open_max`: how many unused files stay open. `files_max`: how many files are known.
  explicit Exports(size_t open_max = usual_open_max(), size_t files_max = kFilesMax)
      : open_max_(open_max), files_max_(files_max) {}
  /// Calls nobody. Files that are still being opened or closed then: see file_opener.h.
  ~Exports();

  /// Opens a folder that is to be exported. It blocks as long as the file system does.
  static Result<Descriptor> open_folder(const std::string& folder);
  /// Exports a folder. It stays open from now on, so renaming it changes nothing.
  Status add(const std::string& name, Descriptor folder, Rights rights);
  /// Opens it, too.
  Status add(const std::string& name, const std::string& folder, Rights rights);

  /// What became of a question. In `step`, or at once if nothing has to be opened.
  using Opened = std::function<void(Cause cause, uint64_t file, uint64_t size_bytes)>;
  using Usable = std::function<void(Cause cause, const OpenFilePointer& opened)>;

  /// `path`: an export's name, a slash, and the path within it. A missing file is made if writing
  /// is wanted. `file` is its number: the same for the same path and rights as long as the same
  /// file lies there. kTooMuch: this process may open no more descriptors. `peer`: who asks.
  void open(const Incarnation& peer, const std::string& path, Rights wanted, Opened then);
  /// Checks the right and returns the open file, which stays open while the caller holds `opened`.
  /// Null without a cause: it is closed, and `reopen` opens it. A file that was replaced or removed
  /// can still be used until it is closed; then kNoFile.
  Cause find(uint64_t file, Rights right, OpenFilePointer& opened);
  /// The number of the folder that a file lies in. 0: nobody knows the file.
  uint64_t folder_of(uint64_t file) const;
  /// The folder's name; empty: there is none of this number.
  std::string name_of(uint64_t folder) const;
  void reopen(const Incarnation& peer, uint64_t file, Usable then);
  /// Both.
  void use(const Incarnation& peer, uint64_t file, Rights right, Usable then);
  std::vector<ExportDescription> describe() const;

  /// Answers questions. True: some were answered.
  bool step() { return opener_.step(); }
  int descriptor() const { return opener_.descriptor(); }  ///< as FileOpener's
  bool arm() { return opener_.arm(); }
  /// Files that are being opened or closed.
  size_t under_way() const { return opener_.under_way(); }

 private:
  struct Folder {
    std::shared_ptr<const Descriptor> descriptor;  // a thread may be opening a file there
    Rights rights = kNoRights;
    uint64_t number = 0;
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
    uint64_t folder = 0;
    std::shared_ptr<OpenFile> open;     // null: it is closed
    std::list<uint64_t>::iterator use;  // in open_ or closed_
  };

  /// Unused files that were closed to free their descriptors, since the start.
  struct Closings {
    uint64_t begun = 0, ended = 0;
  };
  /// A path that is looked up in a thread.
  struct LookUp {
    Incarnation peer{};
    std::shared_ptr<const Descriptor> folder;
    std::string within;
    Rights wanted = kNoRights;
    bool makes = false;
    Cause cause = Cause::kNone;
    Found found;
    std::function<void(Cause cause, Found& found)> then;
    Closings before;  // when it began
    void run();
  };

  static Cause open_at(int folder, const std::string& within, Rights wanted, bool makes,
                       Found& found);
  const Folder* folder_of(const std::string& path, std::string& within) const;
  void look_up(const Incarnation& peer, const std::string& path, Rights wanted, bool makes,
               std::function<void(Cause, Found&)> then);
  void start(const std::shared_ptr<LookUp>& look_up);
  void looked_up(const std::shared_ptr<LookUp>& look_up);
  void make_room();
  void made_room();
  void leave(const Incarnation& peer);
  void opened(const std::string& path, Rights wanted, Found& found, const Opened& then);
  Cause reopened(uint64_t number, Cause cause, Found& found, OpenFilePointer& opened);
  void keep_open(uint64_t number, File& file, OpenFile&& opened);
  std::vector<OpenFile> take_idle(size_t open_max);
  void close(OpenFile&& file, std::function<void()> then = nullptr);
  void forget_oldest();

  FileOpener opener_;
  std::map<Incarnation, size_t> waiting_;              // questions, by peer
  std::map<uint64_t, std::vector<Usable>> reopening_;  // who waits, by file
  Closings closings_;
  std::vector<std::shared_ptr<LookUp>> waiting_for_descriptors_;  // until a closing has ended
  size_t open_max_;
  size_t files_max_;
  std::map<std::string, Folder> folders_;
  std::map<uint64_t, File> files_;
  std::map<std::pair<std::string, Rights>, uint64_t> numbers_;
  std::list<uint64_t> open_, closed_;  // numbers of files, the latest first
  uint64_t next_ = 1;
};

}  // namespace braid::transfer
