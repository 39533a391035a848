#include "fabric/ofi/link.h"

#include <map>
#include <mutex>
#include <utility>

namespace braid::fabric::ofi {
namespace {

struct Users {
  size_t live = 0;
  size_t given_up = 0;
};

/// The links of all domains of this process. The mutex is held while connections are broken, so
/// that a later link makes a new connection.
struct Directory {
  std::mutex mutex;
  std::map<std::vector<std::byte>, Users> users;  // by address
};

/// Never destroyed: domains may end later than static objects.
Directory& directory() {
  static auto& directory = *new Directory;  // owner: the process
  return directory;
}

std::vector<File> break_if_unused(const std::vector<std::byte>& name, const Users& users,
                                  Connections& connections) {
  std::vector<File> broken;
  if (users.live > 0 || users.given_up == 0) return broken;
  for (const Connection& connection : connections.outgoing_to(name)) {
    File held = hold(connection);
    shut_down(connection);
    if (held.is_open()) broken.push_back(std::move(held));
  }
  return broken;
}

}  // namespace

Link::Link(Bytes name) : name_(name.begin(), name.end()) {
  const std::lock_guard lock(directory().mutex);
  ++directory().users[name_].live;
}

Link& Link::operator=(Link&& other) noexcept {
  if (this == &other) return *this;
  leave();
  name_ = std::exchange(other.name_, {});
  is_given_up_ = other.is_given_up_;
  return *this;
}

std::vector<File> Link::give_up(Connections& connections) {
  if (name_.empty()) return {};
  const std::lock_guard lock(directory().mutex);
  Users& users = directory().users[name_];
  if (!is_given_up_) --users.live, ++users.given_up;
  is_given_up_ = true;
  if (users.given_up == 1) return break_if_unused(name_, users, connections);
  Connections now;  // another domain, on another thread, may have connected since the list was made
  return break_if_unused(name_, users, now);
}

void Link::leave() {
  if (name_.empty()) return;
  const std::lock_guard lock(directory().mutex);
  Users& users = directory().users[name_];
  --(is_given_up_ ? users.given_up : users.live);
  if (Connections now; !is_given_up_) (void)break_if_unused(name_, users, now);
  if (users.live + users.given_up == 0) directory().users.erase(name_);
  name_.clear();
}

}  // namespace braid::fabric::ofi
