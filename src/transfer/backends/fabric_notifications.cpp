// FabricBackend: notifications to peers and to this engine itself, and received ones.
#include <utility>

#include "transfer/backends/fabric.h"

namespace braid::transfer {

bool FabricBackend::notify(const Incarnation& who, std::string name,
                           std::vector<std::byte> payload) {
  if (who == self_) {
    to_self_.push_back({self_, std::move(name), std::move(payload)});
    deliver_own();
  } else if (!peers_[who].sender.add(std::move(name), std::move(payload))) {
    return false;
  } else {
    unanswered_.insert(who);
  }
  ++statistics_.notifications_sent;
  return true;
}

size_t FabricBackend::unanswered(const Incarnation& who) const {
  if (who == self_) return to_self_.size();
  const auto peer = peers_.find(who);
  return peer == peers_.end() || peer->second.is_lost ? 0 : peer->second.sender.size();
}

void FabricBackend::deliver_own() {
  while (!to_self_.empty() && notified_.size() < notification_room_) {
    notified_.push_back(std::move(to_self_.front()));
    to_self_.pop_front();
    ++statistics_.notifications_received;
  }
}

void FabricBackend::handle_notification(LinkOfRail link, const Notification& notification) {
  const Incarnation who = who_.at(link);
  NotificationAnswer answer;
  const bool has_room = notified_.size() < notification_room_;
  for (Notification& each : peers_[who].receiver.take(notification, has_room, answer)) {
    notified_.push_back({who, std::move(each.name), std::move(each.payload)});
    ++statistics_.notifications_received;
  }
  rails_[link.rail]->send(link.link, answer);
}

void FabricBackend::notification_answered(const Incarnation& who,
                                          const NotificationAnswer& answer) {
  NotificationSender& sender = peers_.at(who).sender;
  sender.answered(answer);
  if (sender.is_empty()) unanswered_.erase(who);
}

void FabricBackend::send_notifications() {
  for (const Incarnation& who : unanswered_) {
    Peer& peer = peers_.at(who);
    if (peer.up.empty()) continue;
    const LinkOfRail over = peer.up.front();
    for (const Notification& notification : peer.sender.due(now_ns_))
      rails_[over.rail]->send(over.link, notification);
  }
}

}  // namespace braid::transfer
