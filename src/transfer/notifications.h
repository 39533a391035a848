// Notifications: each comes once, in the order of its sender, whatever happens to links. The sender
// repeats a notification until it is answered; the receiver drops those that it has already had, by
// their numbers. Bounded at both ends. Not synchronised.
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

/// The notifications to one peer.
class NotificationSender {
 public:
  static constexpr size_t kUnansweredMax = 1024;
  static constexpr uint64_t kAgainNs = 200'000'000;

  /// False: too many are not answered yet.
  bool add(std::string name, std::vector<std::byte> payload);
  /// The notifications to send now: new ones, and those that have had no answer for kAgainNs.
  std::vector<Notification> due(uint64_t now_ns);
  void answered(const NotificationAnswer& answer);
  /// Repeats all unanswered notifications, since a link may have lost them.
  void say_all_again();
  bool is_empty() const { return unanswered_.empty(); }
  size_t size() const { return unanswered_.size(); }
  bool has_sent() const { return sequence_ > 0; }
  uint64_t next_ns() const;

 private:
  struct Said {
    Notification notification;
    uint64_t at_ns = 0;  // 0: not yet
  };
  std::deque<Said> unanswered_;
  uint64_t sequence_ = 0;
};

/// The notifications from one peer.
class NotificationReceiver {
 public:
  static constexpr size_t kEarlyMax = 1024;

  /// Takes a notification, and returns those that can be given out now, in order. `accepts`: there
  /// is room for it. The answer says whether it was taken, now or before.
  std::vector<Notification> take(const Notification& notification, bool accepts,
                                 NotificationAnswer& answer);
  bool has_received() const { return next_ > 1 || !early_.empty(); }

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, Notification> early_;
};

}  // namespace braid::transfer
