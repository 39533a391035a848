#include "fabric/host/processes.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/process_file.h"
#include "host/process_stat.h"

namespace braid::fabric {
namespace {

/// The 32 hexadecimal digits of a text such as "c7ffe1a0-...".
std::array<uint64_t, 2> boot_id() {
  std::array<uint64_t, 2> id{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  int digits = 0;
  for (char letter = 0; file.get(letter) && digits < 32;) {
    const bool is_number = letter >= '0' && letter <= '9';
    if (!is_number && (letter < 'a' || letter > 'f')) continue;
    const auto digit = static_cast<uint64_t>(is_number ? letter - '0' : letter - 'a' + 10);
    uint64_t& half = id[static_cast<size_t>(digits++) / 16];
    half = half << 4 | digit;
  }
  return id;
}

/// In clock ticks after the boot; 0: there is no such process, or it is hidden.
uint64_t started(uint32_t process) {
  uint64_t ticks = 0;
  stat_fields(process, 22) >> ticks;
  return ticks;
}

class HostProcesses final : public Processes {
 public:
  HostProcesses() : events_(epoll_create1(EPOLL_CLOEXEC)), tells_(events_.is_open()) {
    struct stat about {};
    self_.boot = boot_id();
    if (stat("/proc/self/ns/pid", &about) == 0) self_.pid_namespace = about.st_ino;
    self_.process = static_cast<uint32_t>(getpid());
    self_.started = started(self_.process);
  }

  Origin self() const override { return self_; }

  void watch(uint64_t peer, const Origin& origin) override {
    const bool is_here = origin.boot == self_.boot && origin.pid_namespace == self_.pid_namespace;
    const bool is_named = origin.process != 0 && origin.pid_namespace != 0 && origin.started != 0;
    if (!is_here || !is_named) return;
    File file = process_file(static_cast<pid_t>(origin.process));
    if (!file.is_open()) {
      if (errno == ESRCH) ended_.push_back(peer);
      return;  // not allowed, or an older kernel
    }
    // Read only once the pidfd is open: another process may have the number by now.
    const uint64_t its_start = started(origin.process);
    if (its_start == origin.started) return add(peer, std::move(file));
    const bool is_hidden = its_start == 0 && !has_ended(file);  // hidepid: it is another user's
    if (!is_hidden) ended_.push_back(peer);
  }

  void forget(uint64_t peer) override {
    std::erase(ended_, peer);
    const auto found = watched_.find(peer);
    if (found == watched_.end()) return;
    // A child process may keep the file open, which would then go on waking.
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, found->second.get(), nullptr);
    watched_.erase(found);
  }

  std::optional<uint64_t> next_ended() override {
    if (ended_.empty()) look();
    if (ended_.empty()) return std::nullopt;
    const uint64_t peer = ended_.back();
    forget(peer);
    return peer;
  }

  /// Of a peer that had ended when it was to be watched, nothing tells.
  int descriptor() const override { return tells_ && ended_.empty() ? events_.get() : -1; }

 private:
  void add(uint64_t peer, File file) {
    forget(peer);
    epoll_event event{};
    event.events = EPOLLIN;
    tells_ = epoll_ctl(events_.get(), EPOLL_CTL_ADD, file.get(), &event) == 0 && tells_;
    watched_[peer] = std::move(file);
  }
  void look() {
    std::vector<pollfd> files;
    for (const auto& [peer, file] : watched_) files.push_back({file.get(), POLLIN, 0});
    if (files.empty() || poll(files.data(), files.size(), 0) <= 0) return;
    size_t index = 0;
    for (const auto& [peer, file] : watched_)
      if (files[index++].revents != 0) ended_.push_back(peer);
  }

  const File events_;  // an epoll
  bool tells_;         // it watches all of them
  Origin self_;
  std::map<uint64_t, File> watched_;
  std::vector<uint64_t> ended_;
};

}  // namespace

std::shared_ptr<Processes> host_processes() { return std::make_shared<HostProcesses>(); }

}  // namespace braid::fabric
