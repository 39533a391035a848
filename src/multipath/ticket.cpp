#include "multipath/ticket.h"

#include <algorithm>

namespace braid::multipath {

static_assert(sizeof(cuda::TicketCounters) <= TicketPool::kStride &&
              sizeof(cuda::TicketReport) <= TicketPool::kStride);

bool Ticket::have_kernels_left() const {
  // Acquire: the counts beside the generation were written before it.
  return std::atomic_ref<uint32_t>(report->generation).load(std::memory_order_acquire) ==
         generation;
}

void Ticket::do_without_kernels() {
  std::atomic_ref<uint32_t>(report->generation).store(generation, std::memory_order_release);
}

bool Ticket::have_channels_landed() const {
  return std::all_of(channels.begin(), channels.begin() + channel_count, [](const ChannelUse& use) {
    return Channel::has_reached(use.channel->landed, use.landed);
  });
}

TicketPool::TicketPool(CUdeviceptr counters, void* words) : tickets_(kTickets) {
  auto* reports = static_cast<char*>(words);
  char* starts = reports + kBytes;
  free_.reserve(kTickets);
  in_use_.reserve(kTickets);
  for (size_t i = 0; i < kTickets; ++i) {
    tickets_[i].counters = counters + i * kStride;
    tickets_[i].report = reinterpret_cast<cuda::TicketReport*>(reports + i * kStride);
    tickets_[i].start = reinterpret_cast<uint32_t*>(starts + i * kStride);
    free_.push_back(&tickets_[i]);
  }
}

Ticket* TicketPool::take(const StreamKey& user) {
  int users = 0;
  for (size_t i = 0; i < in_use_.size();) {
    Ticket* ticket = in_use_[i];
    if (ticket->is_free()) {
      free_.push_back(ticket);
      in_use_[i] = in_use_.back();
      in_use_.pop_back();
      continue;
    }
    if (ticket->user == user) ++users;
    ++i;
  }
  if (free_.empty() || users >= kMostOfOneStream || in_use_.size() >= kMostOfAll) return nullptr;
  Ticket* ticket = free_.back();
  free_.pop_back();
  in_use_.push_back(ticket);
  ticket->is_taken = true;
  ticket->user = user;
  ticket->begun_ns = 0;
  ticket->channel_count = 0;
  return ticket;
}

bool TicketPool::all_free() const {
  return std::none_of(in_use_.begin(), in_use_.end(),
                      [](const Ticket* ticket) { return ticket->is_in_use(); });
}

}  // namespace braid::multipath
