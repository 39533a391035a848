// A folder whose file system does not answer reads until a test lets it: FUSE, served by a thread
// of the test. It is mounted in mounts of this process's own, so nothing is left when that ends.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transfer/pattern.h"

namespace braid::transfer::test {

/// Every name in it is one file: `kBytes` of the pattern of `kSeed`. Threads that begin later, and
/// processes, see it.
class HungFolder {
 public:
  static constexpr size_t kBytes = 16 << 20;
  static constexpr uint64_t kSeed = 77;

  explicit HungFolder(const std::filesystem::path& path) : path_(path) {
    std::filesystem::create_directories(path);
    device_ = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options =
        "fd=" + std::to_string(device_) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    is_mounted_ = device_ >= 0 && unshare(CLONE_NEWNS) == 0 &&
                  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  mount("hung", path.c_str(), "fuse.hung", 0, options.c_str()) == 0;
    if (!is_mounted_) return;
    watch();
    server_ = std::thread([this] { serve(); });
  }
  /// What waits still ends with an error.
  ~HungFolder() {
    if (is_mounted_) umount2(path_.c_str(), MNT_FORCE);
    if (watcher_ > 0) kill(watcher_, SIGKILL);
    if (watcher_ > 0) waitpid(watcher_, nullptr, 0);
    if (is_mounted_) umount2(path_.c_str(), MNT_DETACH);
    if (server_.joinable()) server_.join();
    if (device_ >= 0) close(device_);
  }
  HungFolder(const HungFolder&) = delete;
  HungFolder& operator=(const HungFolder&) = delete;

  /// False: this process may not mount.
  bool is_mounted() const { return is_mounted_; }
  /// Reads that have no answer.
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  void answer() {
    const std::lock_guard lock(mutex_);
    is_answering_ = true;
    for (const Read& read : held_) answer(read);
    held_.clear();
  }

 private:
  static constexpr unsigned kLimitS = 100;
  static constexpr uint64_t kFile = FUSE_ROOT_ID + 1;
  struct Read {
    uint64_t number;
    uint64_t position;
    size_t size_bytes;
  };

  /// Threads that wait for an answer cannot be killed, and then neither can this process: a child
  /// ends all that waits, should the test not end.
  void watch() {
    watcher_ = fork();
    if (watcher_ != 0) return;
    close(device_);
    sleep(kLimitS);
    umount2(path_.c_str(), MNT_FORCE);
    _exit(0);
  }

  void serve() {
    std::vector<char> request(FUSE_MIN_READ_BUFFER + (1 << 20));
    for (;;) {
      const ssize_t size = read(device_, request.data(), request.size());
      if (size < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT) return;
      if (size > 0) handle(request.data());
    }
  }

  void handle(const char* request) {
    fuse_in_header header{};
    std::memcpy(&header, request, sizeof header);
    const char* body = request + sizeof header;
    switch (header.opcode) {
      case FUSE_INIT: return begin(header, body);
      case FUSE_LOOKUP: return reply(header.unique, entry());
      case FUSE_GETATTR: return reply(header.unique, attributes(header.nodeid));
      case FUSE_OPEN:
      case FUSE_OPENDIR: return reply(header.unique, fuse_open_out{});
      case FUSE_READ: return take_read(header, body);
      case FUSE_FLUSH:
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR: return reply(header.unique, std::string_view());
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT: return;
      default: return refuse(header.unique);
    }
  }

  void begin(const fuse_in_header& header, const char* body) {
    fuse_init_in asked{};
    std::memcpy(&asked, body, sizeof asked);
    fuse_init_out answer{};
    answer.major = FUSE_KERNEL_VERSION;
    answer.minor = std::min<uint32_t>(asked.minor, 31);
    answer.max_write = 1 << 20;
    answer.max_background = 1000;
    reply(header.unique, answer);
  }

  static fuse_attr attributes_of(uint64_t node) {
    fuse_attr about{};
    about.ino = node;
    about.mode = node == kFile ? S_IFREG | 0644 : S_IFDIR | 0755;
    about.nlink = 1;
    about.size = node == kFile ? kBytes : 0;
    about.blksize = 4096;
    return about;
  }
  static fuse_attr_out attributes(uint64_t node) {
    fuse_attr_out answer{};
    answer.attr = attributes_of(node);
    return answer;
  }
  static fuse_entry_out entry() {
    fuse_entry_out answer{};
    answer.nodeid = kFile;
    answer.attr = attributes_of(kFile);
    return answer;
  }

  void take_read(const fuse_in_header& header, const char* body) {
    fuse_read_in asked{};
    std::memcpy(&asked, body, sizeof asked);
    const uint64_t end = std::min<uint64_t>(kBytes, asked.offset + asked.size);
    const Read read{header.unique, asked.offset, end - std::min<uint64_t>(end, asked.offset)};
    const std::lock_guard lock(mutex_);
    is_answering_ ? answer(read) : held_.push_back(read);
  }
  void answer(const Read& read) {
    std::vector<std::byte> bytes(read.size_bytes);
    fill(bytes, kSeed, read.position);
    reply(read.number, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  template <typename Answer>
  void reply(uint64_t number, const Answer& answer) {
    reply(number, std::string_view(reinterpret_cast<const char*>(&answer), sizeof answer));
  }
  void reply(uint64_t number, std::string_view body, int error = 0) {
    fuse_out_header header{static_cast<uint32_t>(sizeof header + body.size()), error, number};
    std::string whole(reinterpret_cast<const char*>(&header), sizeof header);
    whole += body;
    (void)!write(device_, whole.data(), whole.size());
  }
  void refuse(uint64_t number) { reply(number, std::string_view(), -ENOSYS); }

  const std::filesystem::path path_;
  int device_ = -1;
  bool is_mounted_ = false;
  pid_t watcher_ = -1;
  std::thread server_;
  mutable std::mutex mutex_;  // of what follows
  bool is_answering_ = false;
  std::vector<Read> held_;
};

}  // namespace braid::transfer::test
