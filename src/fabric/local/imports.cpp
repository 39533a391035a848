// LocalDomain: the writer's side, for memory that owners share.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fabric/gpu/process_driver.h"
#include "fabric/local/limits.h"
#include "fabric/local/parts.h"

namespace braid::fabric::local {
namespace {

/// A context that is there already, on any GPU; else none.
int find_active_gpu(const cuda::Driver& driver) {
  int count = 0;
  driver.cuDeviceGetCount(&count);
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    unsigned flags = 0;
    int is_active = 0;
    if (driver.cuDeviceGet(&device, gpu) == CUDA_SUCCESS &&
        driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
        is_active != 0)
      return gpu;
  }
  return -1;
}

}  // namespace

// ---- Writes ----

void LocalDomain::write_to_shared(uint64_t id) {
  Posting& posting = *postings_.find(id);
  Import& import = import_of(posting);
  posting.import = &import;
  if (import.is_refused)
    refuse(peers_.at(posting.peer), id);
  else if (import.is_removed)
    end_posting(id, false);
  else if (!import.is_open() || !import.waiting.empty())
    import.waiting.push_back(id);
  else
    start_copy(id);
}

/// Asks the owner for memory that is new.
LocalDomain::Import& LocalDomain::import_of(const Posting& posting) {
  if (route_ && route_->is_of(posting.write)) return *route_->import;
  const uint64_t key = posting.write.target_key;
  Peer& peer = peers_.at(posting.peer);
  const auto [found, is_new] = peer.imports.try_emplace(key);
  if (is_new) {
    peer.sayings->say(kAsk, Numbered{key, 1});
    looks_eagerly_ = true;
  }
  return found->second;
}

/// The lane of the source's GPU. For host memory: the lane that used the target last, or one of a
/// GPU where the process has a context, or else of the target's GPU.
std::shared_ptr<gpu::Lane> LocalDomain::lane_for(const Posting& posting) const {
  const Region& source = regions_.at(posting.write.region);
  if (source.lane != nullptr) return source.lane;
  if (posting.import->lane != nullptr) return posting.import->lane;
  const cuda::Driver& driver = *gpu::process_driver();
  const int active = find_active_gpu(driver);
  return gpu::lane_of(driver, nullptr, active >= 0 ? active : posting.import->gpu);
}

/// Starts the copy, or waits until the memory is mapped for the lane that copies.
void LocalDomain::start_copy(uint64_t id) {
  Posting& posting = *postings_.find(id);
  const Write& write = posting.write;
  Import& import = *posting.import;
  if (!route_ || !route_->is_of(write)) {
    switch (find_route(posting)) {
      case Mapping::State::kComing: return import.waiting.push_back(id);
      case Mapping::State::kRefused: return end_posting(id, false);
      case Mapping::State::kReady: break;
    }
  }
  for (size_t i = 0; i < posting.segment_count(); ++i) {
    const fabric::Segment segment = posting.segment_at(i);
    const uint64_t offset = offset_of(segment.target_address), all = import.offer.size_bytes;
    if (offset > all || segment.source.size() > all - offset) return end_posting(id, false);
  }
  if (route_->slot->load() != write.target_key) return end_posting(id, false);
  if (route_->batch == nullptr) {
    ++import.copies;
    return peers_.at(posting.peer).page_writes.push_back(id);
  }
  posting.copies = posting.segment_count();
  import.copies += posting.copies;
  copies_ += posting.copies;
  for (size_t i = 0; i < posting.segment_count(); ++i) {
    const fabric::Segment segment = posting.segment_at(i);
    route_->batch->push_back({route_->address + offset_of(segment.target_address),
                              reinterpret_cast<CUdeviceptr>(segment.source.data()),
                              segment.source.size(), id, ended_, route_->may_be_kernels,
                              route_->number});
  }
}

/// Finds the route, and remembers it: the next posting is likely to take the same one.
Mapping::State LocalDomain::find_route(const Posting& posting) {
  Import& import = *posting.import;
  Route route;
  route.number = next_route_++;
  route.peer = posting.peer;
  route.region = posting.write.region;
  route.key = posting.write.target_key;
  route.import = &import;
  route.slot = &peers_.at(posting.peer).segment->shared().board[import.offer.slot % kSlots];
  const std::shared_ptr<gpu::Lane>& source = regions_.at(posting.write.region).lane;
  if (import.mapping == nullptr) {
    route.address = reinterpret_cast<CUdeviceptr>(import.first);
    if (source != nullptr) route.batch = &batches_[{source.get(), gpu::CopyKind::kToHost}];
  } else {
    const std::shared_ptr<gpu::Lane> lane = lane_for(posting);
    if (lane == nullptr) return Mapping::State::kRefused;  // for want of a thread
    lane_ends_.add(*lane);
    import.lanes.insert(lane);
    import.lane = lane;
    const Mapping::State state = import.mapping->prepare(*lane);
    if (state != Mapping::State::kReady) return state;
    const gpu::CopyKind kind =
        source == nullptr ? gpu::CopyKind::kToGpu : gpu::CopyKind::kBetweenGpus;
    route.address = import.mapping->address_for(*lane);
    route.may_be_kernels = source != nullptr && import.offer.kind != Offer::kSameProcess;
    route.batch = &batches_[{lane.get(), kind}];
  }
  route_ = route;
  return Mapping::State::kReady;
}

void LocalDomain::copied(uint64_t tag, bool ok) {
  const uint64_t id = tag & ~kBouncing;
  Posting& posting = *postings_.find(id);
  Peer& peer = peers_.at(posting.peer);
  if ((tag & kBouncing) != 0) {
    peer.state = ok ? Peer::Bounce::kFull : Peer::Bounce::kFree;
    if (ok && peer.is_reachable()) return write_to_host(peer);
    std::erase(peer.host_writes, id);
    peer.state = Peer::Bounce::kFree;
    return end_posting(id, false);
  }
  --posting.import->copies;
  posting.ok = posting.ok && ok;
  if (--posting.copies == 0) end_write(peer, id, posting.ok);
}

/// Of a write whose bytes this process has copied.
void LocalDomain::end_write(Peer& peer, uint64_t id, bool ok) {
  const Write& write = postings_.find(id)->write;
  const bool is_heard = ok && peer.socket;
  if (is_heard && write.immediate) peer.landed[*write.immediate] += write.slices;
  end_posting(id, is_heard);
}

/// Copies on, for a short while.
void LocalDomain::copy_pages(Peer& peer) {
  for (uint64_t left_bytes = kPageBytesAtOnce; left_bytes > 0 && !peer.page_writes.empty();) {
    const uint64_t id = peer.page_writes.front();
    Posting& posting = *postings_.find(id);
    const bool ok = copy_part(peer, posting, left_bytes);
    if (ok && !posting.is_put()) continue;
    peer.page_writes.pop_front();
    --posting.import->copies;
    end_write(peer, id, ok);
  }
}

/// False: the memory must not be written any more.
bool LocalDomain::copy_part(const Peer& peer, Posting& posting, uint64_t& left_bytes) {
  const Import& import = *posting.import;
  const auto& slot = peer.segment->shared().board[import.offer.slot % kSlots];
  while (left_bytes > 0 && !posting.is_put()) {
    if (import.is_removed || slot.load() != posting.write.target_key) return false;
    const fabric::Segment segment = posting.segment_at(posting.segment);
    const Bytes rest = segment.source.subspan(posting.next);
    const Bytes part = rest.first(std::min(rest.size(), left_bytes));
    std::memcpy(import.first + offset_of(segment.target_address) + posting.next, part.data(),
                part.size());
    posting.put(part.size());
    has_copied_ = true;
    left_bytes -= part.size();
  }
  return true;
}

// ---- Imports ----

void LocalDomain::offered(Peer& peer, Packet packet) {
  const std::optional<Offer> offer = front_of<Offer>(packet.bytes);
  if (!offer) return;
  const auto found = peer.imports.find(offer->key);
  if (found == peer.imports.end()) return;
  Import& import = found->second;
  if (!import.is_awaited()) return;
  import.offer = *offer;
  if (is_sound(*offer, peer) && open(import, std::move(packet.file))) return;
  import.is_refused = true;
  for (const uint64_t posting : std::exchange(import.waiting, {})) refuse(peer, posting);
  if (!import.is_held()) stop_writing(import);
}

/// False: this process cannot map it.
bool LocalDomain::open(Import& import, File file) {
  const Offer& offer = import.offer;
  if (offer.kind == Offer::kPages) {
    const uint64_t inside = offer.offset_bytes % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    auto pages =
        map_shared_pages(file, offer.offset_bytes - inside, inside + offer.size_bytes, true);
    if (!pages.ok()) return false;
    import.pages = std::move(pages).value();
    import.first = static_cast<std::byte*>(import.pages.memory()) + inside;
    return true;
  }
  const cuda::Driver* driver = gpu::process_driver();
  if (driver == nullptr) return false;
  import.gpu = find_gpu(*driver, offer.gpu);
  import.mapping = std::make_shared<Mapping>(*driver, offer, std::move(file));
  return true;
}

/// A write into memory that cannot be mapped. The owner can land bytes in host memory itself.
void LocalDomain::refuse(Peer& peer, uint64_t id) {
  Posting& posting = *postings_.find(id);
  if ((posting.write.target_address & kGpuBase) != 0 || !peer.is_reachable())
    return end_posting(id, false);
  posting.import = nullptr;
  peer.host_writes.push_back(id);
}

/// Whether the region lies within the shared memory, and the offer names an address only if it
/// comes from this process.
bool LocalDomain::is_sound(const Offer& offer, const Peer& peer) {
  switch (offer.kind) {
    case Offer::kMapping:
    case Offer::kPages:
      return offer.offset_bytes <= offer.shared_bytes &&
             offer.size_bytes <= offer.shared_bytes - offer.offset_bytes;
    case Offer::kIpc: return true;
    case Offer::kSameProcess: return peer.socket->process() == getpid();
    default: return false;
  }
}

void LocalDomain::stop_writing(Import& import) {
  import.is_removed = true;
  route_.reset();
  for (const uint64_t posting : std::exchange(import.waiting, {})) end_posting(posting, false);
}

void LocalDomain::start_waiting(Peer& peer) {
  for (auto& [key, import] : peer.imports) {
    if (peer.is_leaving) stop_writing(import);
    if (import.is_open())
      for (const uint64_t posting : std::exchange(import.waiting, {})) start_copy(posting);
  }
}

/// Lets go of memory that must not be written any more. An offer that was asked for may still be on
/// its way. A leaving domain does not wait for it: the owner handles the records in order, so it
/// learns that the memory was let go.
void LocalDomain::let_go_of_removed(Peer& peer) {
  for (auto found = peer.imports.begin(); found != peer.imports.end();) {
    Import& import = found->second;
    const bool is_to_come = import.is_awaited() && peer.is_reachable();
    if (!import.is_removed || import.copies > 0 || is_to_come || !import.let_go()) {
      ++found;
      continue;
    }
    if (import.is_held() && peer.socket) peer.sayings->say(kLetGo, Numbered{found->first, 1});
    const auto lanes = std::move(import.lanes);
    found = peer.imports.erase(found);
    for (const auto& lane : lanes) release(lane);
  }
}

/// False: a lane is still unmapping it.
bool LocalDomain::Import::let_go() {
  pages = {};
  return mapping == nullptr || mapping->let_go();
}

/// Of a peer that nothing is said to any more.
void LocalDomain::close_imports(Peer& peer) {
  start_waiting(peer);
  copy_pages(peer);
  let_go_of_removed(peer);
}

}  // namespace braid::fabric::local
