#include "fabric/completions.h"

#include <utility>

namespace braid::fabric {

void Completions::ticket_ended(uint64_t ticket, uint64_t state) {
  if (!tickets_.empty()) end_ticket(ticket, state, false);
}

void Completions::ticket_is_gone(uint64_t ticket) {
  if (!tickets_.empty()) end_ticket(ticket, 0, true);
}

void Completions::end_ticket(uint64_t ticket, uint64_t state, bool is_cancelled) {
  const auto [first, last] = tickets_.equal_range(ticket);
  for (auto each = first; each != last; ++each)
    add({About::kTicket, each->second, ticket, state, is_cancelled});
  tickets_.erase(first, last);
}

void Completions::counted(uint32_t immediate, uint64_t count) {
  auto each = counts_.lower_bound({immediate, 0, 0});
  while (each != counts_.end() && std::get<0>(*each) == immediate && std::get<1>(*each) <= count) {
    add({About::kCount, std::get<2>(*each), immediate, count, false});
    each = counts_.erase(each);
  }
}

void Completions::immediate_is_gone(uint32_t immediate) {
  auto each = counts_.lower_bound({immediate, 0, 0});
  while (each != counts_.end() && std::get<0>(*each) == immediate) {
    add({About::kCount, std::get<2>(*each), immediate, 0, true});
    each = counts_.erase(each);
  }
}

void Completions::peer_changed(uint64_t peer, uint64_t state) {
  if (peers_) add({About::kPeer, *peers_, peer, state, false});
}

void Completions::message_arrived() {
  if (messages_) add({About::kMessage, *messages_, 0, 0, false});
}

void Completions::replace(std::optional<uint64_t>& request, About about, uint64_t by) {
  if (request) add({about, *request, 0, 0, true});
  request = by;
}

void Completions::cancel_all() {
  for (const auto& [ticket, request] : tickets_) add({About::kTicket, request, ticket, 0, true});
  for (const auto& [immediate, count, request] : counts_)
    add({About::kCount, request, immediate, 0, true});
  if (peers_) add({About::kPeer, *peers_, 0, 0, true});
  if (messages_) add({About::kMessage, *messages_, 0, 0, true});
  tickets_.clear();
  counts_.clear();
  peers_.reset();
  messages_.reset();
}

std::optional<Happening> Completions::next() {
  if (events_.empty()) return std::nullopt;
  const Happening first = events_.front();
  events_.pop_front();
  return first;
}

}  // namespace braid::fabric
