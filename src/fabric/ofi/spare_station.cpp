#include "fabric/ofi/spare_station.h"

#include <system_error>
#include <utility>

#include "fabric/thread.h"

namespace braid::fabric::ofi {

SpareStation::~SpareStation() {
  if (thread_.joinable()) thread_.join();
}

Result<Station> SpareStation::take() {
  if (thread_.joinable() && !is_ready_) return Station::open(provider_, nullptr);
  if (thread_.joinable()) thread_.join();
  std::optional<Station> taken = std::exchange(spare_, std::nullopt);
  begin();
  if (taken) return std::move(*taken);
  return Station::open(provider_, nullptr);
}

// Without a thread there is no spare station, and each is opened when it is needed.
void SpareStation::begin() try {
  is_ready_ = false;
  thread_ = start_thread([this] {
    if (Result<Station> opened = Station::open(provider_, nullptr); opened.ok())
      spare_ = std::move(opened).value();
    is_ready_ = true;
  });
} catch (const std::system_error&) {
}

}  // namespace braid::fabric::ofi
