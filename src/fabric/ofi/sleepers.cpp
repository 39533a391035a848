#include "fabric/ofi/sleepers.h"

#include <rdma/fi_eq.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace braid::fabric::ofi {
namespace {

constexpr long kAnswerNs = 400'000;  // the pause between polls for events without a ring

}  // namespace

Sleepers::Sleepers(const Quirks& quirks) : has_doorbell_(quirks.has_doorbells) {
  if (has_doorbell_) remove_left_files();
}

Sleepers::~Sleepers() {
  if (timer_ >= 0) close(timer_);
  if (descriptor_ >= 0) close(descriptor_);
}

void Sleepers::watch(int descriptor) {
  if (descriptor_ < 0) descriptor_ = epoll_create1(EPOLL_CLOEXEC);
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
  if (std::erase(queues_, &station.queue->fid) > 0)
    epoll_ctl(descriptor_, EPOLL_CTL_DEL, station.wait_descriptor, nullptr);
}

void Sleepers::add_endpoint(Bytes name) {
  if (!has_doorbell_) return;
  has_told_all_ = doorbell_.add(name) && has_told_all_;
  if (descriptor_ >= 0 || doorbell_.descriptor() < 0) return;
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_ < 0) return;
  watch(doorbell_.descriptor());
  watch(timer_);
}

void Sleepers::remove_endpoint(Bytes name) {
  if (has_doorbell_) doorbell_.remove(name);
}

bool Sleepers::arm(const Provider& provider, bool is_answer_awaited) {
  if (descriptor_ < 0) return false;
  if (!has_doorbell_)
    return fi_trywait(provider.fabric.get(), queues_.data(), static_cast<int>(queues_.size())) == 0;
  itimerspec limit{};
  if (is_answer_awaited || !has_told_all_) limit.it_value.tv_nsec = kAnswerNs;
  timerfd_settime(timer_, 0, &limit, nullptr);  // forgets, if it has expired
  return !doorbell_.drain();
}

}  // namespace braid::fabric::ofi
