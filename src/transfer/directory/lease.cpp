#include "transfer/directory/lease.h"

#include <chrono>
#include <utility>

#include "base/try.h"
#include "fabric/thread.h"

namespace braid::transfer {

Result<std::unique_ptr<Lease>> Lease::take(
    std::unique_ptr<Store> store, const std::string& name, const std::string& value,
    const std::function<bool(const std::string&)>& is_alive) {
  constexpr int kAttempts = 3;  // another engine may take the name in between
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BRAID_LET(before, store->get(name));
    if (!before.empty() && before != value && is_alive(before)) break;
    BRAID_LET(is_ours, store->put(name, before, value));
    if (is_ours)
      return std::unique_ptr<Lease>(new Lease(std::move(store), name, value));  // owner: the caller
  }
  return Status::error("another engine of the cluster has the name '" + name + "'",
                       "Choose another name. The name of a host that is down is free after " +
                           std::to_string(kLeaseMs / 1000) + " s");
}

Lease::Lease(std::unique_ptr<Store> store, std::string name, std::string value)
    : store_(std::move(store)), name_(std::move(name)), value_(std::move(value)) {
  thread_ = fabric::start_thread([this] { work(); });
}

void Lease::give_back_by(uint64_t end_ns) {
  store_->end_by(end_ns);
  end();
}

Lease::~Lease() {
  end();
  thread_.join();
}

void Lease::end() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
}

void Lease::work() {
  std::unique_lock lock(mutex_);
  const auto is_ending = [this] { return is_ending_; };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(kLeaseMs / 3), is_ending)) {
    lock.unlock();
    renew();
    lock.lock();
  }
  lock.unlock();
  (void)store_->remove(name_, value_);
}

void Lease::renew() {
  const Result<bool> renewed = store_->put(name_, value_, value_);
  if (renewed.ok() && !renewed.value()) (void)store_->put(name_, "", value_);  // it had run out
}

}  // namespace braid::transfer
