#include "fabric/ofi/sleepers.h"

#include <rdma/fi_eq.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace braid::fabric::ofi {
namespace {

constexpr long kAnswerNs = 400'000;     // the pause between polls for events without a ring
constexpr long kClosingNs = 1'000'000;  // between polls of stations that are being closed

}  // namespace

Sleepers::Sleepers(const Quirks& quirks) : has_doorbell_(quirks.has_doorbells) {
  if (has_doorbell_) remove_left_files();
}

Sleepers::~Sleepers() {
  if (timer_ >= 0) ::close(timer_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Sleepers::watch(int descriptor) {
  if (descriptor_ < 0 && !is_blind_) descriptor_ = epoll_create1(EPOLL_CLOEXEC);
  is_blind_ = descriptor_ < 0;
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(descriptor_, EPOLL_CTL_ADD, descriptor, &event);
}

void Sleepers::add(const Station& station) {
  if (has_doorbell_) return add_endpoint(station.name);
  if (station.wait_descriptor < 0) return;
  watch(station.wait_descriptor);
  queues_.push_back(&station.queue->fid);
}

void Sleepers::remove(const Station& station) {
  remove_endpoint(station.name);
  if (std::erase(closing_, &station.queue->fid) == 0) forget(station);
}

bool Sleepers::forget(const Station& station) {
  if (std::erase(queues_, &station.queue->fid) == 0) return false;
  epoll_ctl(descriptor_, EPOLL_CTL_DEL, station.wait_descriptor, nullptr);
  return true;
}

/// Without a timer it stays what it was.
void Sleepers::close(const Station& station) {
  if (!has_doorbell_ && has_timer() && forget(station)) closing_.push_back(&station.queue->fid);
}

bool Sleepers::has_timer() {
  if (timer_ >= 0) return true;
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_ >= 0) watch(timer_);
  return timer_ >= 0;
}

/// The timer forgets that it has expired. 0: it does not run.
void Sleepers::set_timer(long ns) {
  if (ns == 0 && !is_timed_) return;
  itimerspec limit{};
  limit.it_value.tv_nsec = ns;
  timerfd_settime(timer_, 0, &limit, nullptr);
  is_timed_ = ns != 0;
}

void Sleepers::add_endpoint(Bytes name) {
  if (!has_doorbell_) return;
  has_told_all_ = doorbell_.add(name) && has_told_all_;
  if (descriptor_ >= 0 || doorbell_.descriptor() < 0) return;
  if (has_timer()) watch(doorbell_.descriptor());
}

void Sleepers::remove_endpoint(Bytes name) {
  if (has_doorbell_) doorbell_.remove(name);
}

bool Sleepers::arm(const Provider& provider, bool is_answer_awaited) {
  if (descriptor_ < 0) return false;
  if (has_doorbell_) {
    set_timer(is_answer_awaited || !has_told_all_ ? kAnswerNs : 0);
    return !doorbell_.drain();
  }
  set_timer(closing_.empty() ? 0 : kClosingNs);
  return fi_trywait(provider.fabric.get(), queues_.data(), static_cast<int>(queues_.size())) == 0;
}

}  // namespace braid::fabric::ofi
