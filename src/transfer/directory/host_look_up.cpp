#include "transfer/directory/host_look_up.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "fabric/thread.h"

namespace braid::transfer {
/// The thread's and the waiting caller's.
struct HostLookUp::UnderWay {
  std::mutex mutex;
  std::condition_variable has_come;
  std::optional<Result<AddressList>> answer;
};

HostLookUp::HostLookUp(HostAndPort at, Resolver resolver)
    : at_(std::move(at)), resolver_(std::move(resolver)) {}

Result<AddressList> HostLookUp::find(WaitEnd end) {
  if (is_number(at_.host)) return look_up_host(at_.host, at_.port, AddressUse::kConnect);
  if (under_way_ == nullptr && !begin())
    return Status::error("there is no thread to look up the host '" + at_.host + "'");
  std::unique_lock lock(under_way_->mutex);
  while (!under_way_->answer) {
    const int look_ms = end.look_ms(monotonic_ns());
    if (look_ms == 0)
      return Status::error("the host '" + at_.host + "' cannot be looked up within the time limit");
    under_way_->has_come.wait_for(lock, std::chrono::milliseconds(look_ms));
  }
  Result<AddressList> answer = *std::move(under_way_->answer);
  lock.unlock();
  under_way_ = nullptr;
  return answer;
}

/// False: the system allows no further thread now.
bool HostLookUp::begin() {
  const auto begun = std::make_shared<UnderWay>();
  try {
    fabric::start_thread([begun, at = at_, resolver = resolver_] {
      Result<AddressList> answer = resolver(at.host, at.port, AddressUse::kConnect);
      const std::lock_guard lock(begun->mutex);
      begun->answer = std::move(answer);
      begun->has_come.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  under_way_ = begun;
  return true;
}

}  // namespace braid::transfer
