// FabricBackend: links that are asked for, in the order in which they are due, and of all peers
// together no more than the limit allows.
#include <algorithm>
#include <utility>

#include "transfer/backends/fabric.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kDialNs = 2'000'000'000;
/// After each dial that failed in a row, the next pause is twice as long.
constexpr uint64_t kDialPauseNs = 10'000'000;
constexpr uint64_t kDialPauseMaxNs = 1'000'000'000;

}  // namespace

/// A way that has a link is dialled once that link has ended.
void FabricBackend::want_dial(uint32_t id, Way& way, uint64_t when_ns) {
  if (way.link != 0 || now_ns_ > way.dial_until_ns || way.is_of_other_version ||
      peers_.at(way.peer).is_lost)
    return;
  if (takes_open_link(id, way)) return;
  dialling_.set_if_earlier(id, std::max({now_ns_, when_ns, way.dial_ns}));
}

void FabricBackend::dial_due() {
  while (const std::optional<uint32_t> id = dialling_.first(now_ns_ + 1)) {
    Way& way = ways_.at(*id);
    const bool is_dialled = now_ns_ <= way.dial_until_ns && !takes_open_link(*id, way);
    if (is_dialled && !dials_.take(now_ns_)) return;
    dialling_.erase(*id);
    if (is_dialled) dial(*id, way);
  }
}

/// The peer may have dialled.
bool FabricBackend::takes_open_link(uint32_t id, Way& way) {
  const std::optional<uint64_t> open = rails_[way.rail]->link_to(way.engine);
  if (open) take_link(id, way, *open);
  return open.has_value();
}

/// The previous connection to the same peer may still be ending: then it fails, and is tried again.
void FabricBackend::dial(uint32_t id, Way& way) {
  const uint64_t pause_ns = kDialPauseNs << std::min(way.dials++, 7u);
  way.dial_ns = now_ns_ + kDialPauseNs;
  way.dial_again_ns = now_ns_ + std::min(pause_ns, kDialPauseMaxNs);
  const Result<uint64_t> link = rails_[way.rail]->dial(way.peer, way.address, now_ns_ + kDialNs);
  if (!link.ok()) {
    end_probes(way);
    if (cause_of(link.status()) == Cause::kOtherVersion) return other_version(id, way);
    return want_dial(id, way, way.dial_again_ns);
  }
  ++statistics_.dials;
  take_link(id, way, link.value());
}

/// The process at the other end speaks the same versions for as long as it lives.
void FabricBackend::other_version(uint32_t id, Way& way) {
  if (std::exchange(way.is_of_other_version, true)) return;
  events_.push_back(WayOfOtherVersion{id});
}

void FabricBackend::take_link(uint32_t id, Way& way, uint64_t link) {
  way.link = link;
  way_of_link_[{way.rail, link}] = id;
  if (rails_[way.rail]->is_up(link)) link_up(way.rail, {link, way.peer, way.engine, false});
}

}  // namespace braid::transfer
