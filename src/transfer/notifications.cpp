#include "transfer/notifications.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace braid::transfer {

bool NotificationSender::add(std::string name, std::vector<std::byte> payload) {
  if (unanswered_.size() >= kUnansweredMax) return false;
  unanswered_.push_back({{++sequence_, std::move(name), std::move(payload)}, 0});
  return true;
}

std::vector<Notification> NotificationSender::due(uint64_t now_ns) {
  std::vector<Notification> due;
  for (Said& said : unanswered_) {
    if (said.at_ns != 0 && now_ns < said.at_ns + kAgainNs) continue;
    said.at_ns = std::max<uint64_t>(now_ns, 1);
    due.push_back(said.notification);
  }
  return due;
}

void NotificationSender::answered(const NotificationAnswer& answer) {
  if (answer.cause != Cause::kNone) return;  // no room there now: it is said again
  std::erase_if(unanswered_,
                [&](const Said& said) { return said.notification.sequence == answer.sequence; });
}

void NotificationSender::say_all_again() {
  for (Said& said : unanswered_) said.at_ns = 0;
}

uint64_t NotificationSender::next_ns() const {
  uint64_t next_ns = std::numeric_limits<uint64_t>::max();
  for (const Said& said : unanswered_)
    next_ns = std::min(next_ns, said.at_ns == 0 ? 0 : said.at_ns + kAgainNs);
  return next_ns;
}

std::vector<Notification> NotificationReceiver::take(const Notification& notification, bool accepts,
                                                     NotificationAnswer& answer) {
  answer = {notification.sequence, Cause::kNone};
  const bool is_known = notification.sequence < next_ || early_.contains(notification.sequence);
  if (is_known) return {};
  const bool is_next = notification.sequence == next_;
  if (!accepts || (!is_next && early_.size() >= kEarlyMax)) {
    answer.cause = Cause::kTooMuch;
    return {};
  }
  early_[notification.sequence] = notification;
  std::vector<Notification> in_order;
  while (!early_.empty() && early_.begin()->first == next_) {
    in_order.push_back(std::move(early_.begin()->second));
    early_.erase(early_.begin());
    ++next_;
  }
  return in_order;
}

}  // namespace braid::transfer
