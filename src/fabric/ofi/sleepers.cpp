#include "fabric/ofi/sleepers.h"

#include <rdma/fi_eq.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

namespace braid::fabric::ofi {

Sleepers::~Sleepers() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Sleepers::add(const Station& station) {
  if (station.wait_descriptor < 0) return;
  if (descriptor_ < 0) descriptor_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(descriptor_, EPOLL_CTL_ADD, station.wait_descriptor, &event);
  queues_.push_back(&station.queue->fid);
}

void Sleepers::remove(const Station& station) {
  if (std::erase(queues_, &station.queue->fid) > 0)
    epoll_ctl(descriptor_, EPOLL_CTL_DEL, station.wait_descriptor, nullptr);
}

bool Sleepers::arm(const Provider& provider) {
  return descriptor_ >= 0 &&
         fi_trywait(provider.fabric.get(), queues_.data(), static_cast<int>(queues_.size())) == 0;
}

}  // namespace braid::fabric::ofi
