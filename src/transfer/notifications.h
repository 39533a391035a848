// Notifications: each comes once, in the order of its sender, whatever happens to links. The sender
// says one again until it is answered; the receiver numbers them and drops what it has had. Bounded
// at both ends. Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transfer/rail_messages.h"
#include "transfer/types.h"

namespace braid::transfer {

struct Notified {
  Incarnation from{};
  std::string name;
  std::vector<std::byte> payload;
};

/// To one peer.
class NotificationSender {
 public:
  static constexpr size_t kUnansweredMax = 1024;
  static constexpr uint64_t kAgainNs = 200'000'000;

  /// False: too many are not answered yet.
  bool add(std::string name, std::vector<std::byte> payload);
  /// What is to be said now: what is new, and what has had no answer for long.
  std::vector<Notification> due(uint64_t now_ns);
  void answered(const NotificationAnswer& answer);
  /// After a link was lost: all that is not answered is said again.
  void say_all_again();
  bool is_empty() const { return unanswered_.empty(); }
  size_t size() const { return unanswered_.size(); }
  uint64_t next_ns() const;

 private:
  struct Said {
    Notification notification;
    uint64_t at_ns = 0;  // 0: not yet
  };
  std::deque<Said> unanswered_;
  uint64_t sequence_ = 0;
};

/// From one peer.
class NotificationReceiver {
 public:
  static constexpr size_t kEarlyMax = 1024;

  /// What can be given out now, in order. `accepts`: there is room for it. The answer says whether
  /// it was taken, or had been before.
  std::vector<Notification> take(const Notification& notification, bool accepts,
                                 NotificationAnswer& answer);

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, Notification> early_;
};

}  // namespace braid::transfer
