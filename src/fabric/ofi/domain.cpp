#include "fabric/ofi/domain.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "fabric/ofi/parts.h"
#include "fabric/ofi/stand_ins.h"

namespace braid::fabric::ofi {
namespace {

constexpr size_t kEventsAtOnce = 64;
constexpr size_t kBatchedWritesMax = 64;

/// A peer takes a place for messages and one for its door, in each direction, and gives back those
/// of the outgoing direction alone.
Status no_place(const std::string& provider, size_t places) {
  return Status::error("this engine takes no further peer over " + provider +
                           ": libfabric's table of peers has room for " +
                           std::to_string(places / 4) + " at once, or " +
                           std::to_string(places / 2) + " that come one after the other",
                       "Close this engine and open another, or use tcp;ofi_rxm");
}

}  // namespace

OfiDomain::OfiDomain(Provider provider, Station station)
    : provider_(std::move(provider)),
      quirks_(provider_.quirks),
      traits_{quirks_.provider, quirks_.removal_fences, quirks_.closing_fences},
      calls_(quirks_.shares_locks && provider_.libfabric.has_robust_locks
                 ? std::make_unique<RobustCalls>()
                 : nullptr),
      station_(std::move(station)),
      knocks_(station_.name),
      sleepers_(quirks_),
      doors_(provider_, *station_.domain, calls_.get(), sleepers_, connections_) {
  sleepers_.add(station_);
  traits_.door_keys = provider_.chooses_keys();
  const fi_info& info = *provider_.info;
  const bool has_room = info.domain_attr->cq_data_size > sizeof(uint32_t);
  // If the target's CPU makes the progress, it must notice writes, to know when to go on polling.
  tells_landings_ = has_room && info.domain_attr->data_progress == FI_PROGRESS_MANUAL;
  traits_.answers_writes = quirks_.answers_writes;
  if (quirks_.lands_in_order) traits_.batched_writes_max = kBatchedWritesMax;
  if (has_room)
    traits_.segments_max =
        std::min({kSegmentsMax, info.tx_attr->iov_limit, info.tx_attr->rma_iov_limit});
}

Result<std::unique_ptr<Domain>> OfiDomain::open(const Quirks& quirks,
                                                const std::string& host_address, Admits admits) {
  Result<Provider> provider = Provider::open(quirks, host_address, admits);
  if (!provider.ok()) return provider.status();
  Result<Station> station = Station::open(provider.value(), nullptr);
  if (!station.ok()) return station.status();
  std::unique_ptr<OfiDomain> domain(new OfiDomain(  // owner: domain
      std::move(provider).value(), std::move(station).value()));
  BRAID_TRY(domain->look_at_region());
  BRAID_TRY(domain->check_that_closing_ends_access());
  return std::unique_ptr<Domain>(std::move(domain));
}

OfiDomain::~OfiDomain() {
  drain();
  // Endpoints are closed first, so that nothing reads or writes memory any more.
  if (calls_) calls_->forget_endpoints();
  peers_.clear();
  station_.endpoint.reset();
}

void OfiDomain::close(Owned<fid_ep>& endpoint) {
  if (calls_) calls_->forget_endpoints();
  endpoint.reset();
}

// ---- Regions and peers ----

Result<uint32_t> OfiDomain::add_region(MutableBytes memory, Access access) {
  return access == Access::kLocal ? add_local(memory) : add_for_all(memory, std::nullopt);
}

Result<uint32_t> OfiDomain::add_local(MutableBytes memory) {
  Region region;
  if ((provider_.memory_mode() & FI_MR_LOCAL) != 0) {
    BRAID_LET(made,
              register_memory(provider_, *station_.domain, memory, FI_SEND | FI_RECV | FI_WRITE));
    region.here = std::move(made);
  }
  regions_[next_region_] = std::move(region);
  return next_region_++;
}

Result<uint32_t> OfiDomain::add_for_all(MutableBytes memory, Key key) {
  BRAID_LET(made, register_memory(provider_, *station_.domain, memory, FI_REMOTE_WRITE, key));
  BRAID_TRY(doors_.share(next_region_, memory, made.range.key));
  regions_[next_region_] = {std::move(made), std::nullopt};
  return next_region_++;
}

Result<uint32_t> OfiDomain::add_for_door(uint32_t door, MutableBytes memory, Key key) {
  BRAID_LET(range, doors_.add_region(door, next_region_, memory, key));
  regions_[next_region_] = {{nullptr, range}, door};
  return next_region_++;
}

void OfiDomain::remove_region(uint32_t number) {
  const Region& region = regions_.at(number);
  if (region.door)
    doors_.remove_region(*region.door, number);
  else
    doors_.unshare(number);
  regions_.erase(number);
}

void* OfiDomain::descriptor_of(uint32_t region) const {
  const Region& found = regions_.at(region);
  return found.here.memory ? fi_mr_desc(found.here.memory.get()) : nullptr;
}

Result<uint32_t> OfiDomain::connect(Bytes address) {
  // The provider assumes that an address has the size of its own addresses.
  const bool is_text = provider_.info->addr_format == FI_ADDR_STR;
  if (is_text ? address.empty() || address.back() != std::byte{0}
              : address.size() != station_.name.size())
    return Status::error("this is no address of " + traits_.provider);
  if (quirks_.has_doorbells) BRAID_TRY(check_file(address, provider_.guard->admits()));
  if (quirks_.connects_by_tcp) BRAID_TRY(provider_.guard->check(address));
  if (quirks_.peers_max > 0 && peers_.count() + connects_ >= quirks_.peers_max)
    return no_place(traits_.provider, quirks_.peers_max);
  ++connects_;
  Peer peer;
  if (quirks_.connects_by_tcp) peer.guarded = Guarded::peer(address, provider_.guard);
  if (quirks_.needs_endpoint_for_each_peer) {
    Result<Owned<fid_ep>> own = station_.open_endpoint(provider_, false);
    if (!own.ok()) return own.status();
    peer.own = std::move(own).value();
    Result<std::vector<std::byte>> name = name_of(provider_, *peer.own);
    if (!name.ok()) return name.status();
    peer.own_name = std::move(name).value();
  }
  if (quirks_.has_doorbells) peer.doorbell = PeerDoorbell(address);
  peer.endpoint = peer.own ? peer.own.get() : station_.endpoint.get();
  StandIns stand_ins(region_);
  BRAID_LET(place, addresses_.add(provider_, station_, address));
  if (stand_ins.has_any()) {  // its file has gone since
    addresses_.remove(station_, place);
    BRAID_TRY(check_file(address, provider_.guard->admits()));
    return Status::error("shm: the peer's memory cannot be mapped");
  }
  peer.address = place;
  if (peer.own) sleepers_.add_endpoint(peer.own_name);
  if (quirks_.listens_at_address && !peer.own) peer.link = Link(address);
  return peers_.add(std::move(peer));
}

void OfiDomain::disconnect(uint32_t peer) {
  Peer& leaving = peers_.at(peer);
  if (leaving.own) sleepers_.remove_endpoint(leaving.own_name);
  drop_held(peer);
  close(leaving.own);
  addresses_.remove(station_, leaving.address);
  peers_.disconnect(peer);
}

/// If the peer has a connection of its own, this breaks the connection, and all postings over it
/// fail. That is done even if nothing is under way: libfabric would keep it for the next peer at
/// the same address, and TCP would first repeat the messages from before the network broke. If the
/// peer has an endpoint of its own, this closes the endpoint. A closed endpoint reports nothing
/// about its postings, so this is done only when nobody can read the sources any more.
void OfiDomain::abandon(uint32_t number, Absence absence) {
  Peer& peer = peers_.at(number);
  const bool may_go_on = absence == Absence::kSilent;
  if (peer.endpoint == nullptr) return;
  std::vector<File> ended = peers_.give_up_link(number, connections_);
  if (may_go_on && quirks_.refuses_second_connection)
    knocks_.given_up(peer.link.name(), std::move(ended));
  if (!quirks_.needs_endpoint_for_each_peer) return;
  if (may_go_on) return;
  sleepers_.remove_endpoint(peer.own_name);
  close(peer.own);
  peer.endpoint = nullptr;
  drop_held(number);
  postings_.abandon(number);
}

Result<uint32_t> OfiDomain::open_door() {
  if (calls_) calls_->carry_messages_only();
  return doors_.open();
}

/// Ends the incoming connections of the domain's own station, so that it may be closed: see Quirks.
void OfiDomain::drain() {
  constexpr int kLooksMax = 100'000;
  if (!quirks_.drains_before_close) return;
  std::vector<Connection> connections = connections_.shut_down_at(station_.name);
  for (int look = 0; look < kLooksMax && !connections.empty(); ++look) {
    std::array<Completion, kEventsAtOnce> dropped;
    read_queue(dropped);
    std::erase_if(connections, [](const Connection& connection) { return !connection.is_open(); });
  }
}

/// Finds where libfabric has mapped the endpoint's region, which peers write to.
Status OfiDomain::look_at_region() {
  if (!quirks_.shares_locks) return {};
  const Library& libfabric = provider_.libfabric;
  if (!libfabric.has_robust_locks && !libfabric.has_stand_ins) return {};
  BRAID_LET(region, read_region(station_.name));
  region_ = region.base;
  return libfabric.has_stand_ins ? prepare_stand_in(region) : Status();
}

/// libfabric's registration cache keeps a region registered after it was closed. The cache is on if
/// two registrations of the same memory have the same key.
Status OfiDomain::check_that_closing_ends_access() {
  static std::array<std::byte, 4096> memory;
  if (provider_.chooses_keys()) return {};
  std::array<uint32_t, 2> regions;
  for (uint32_t& region : regions) {
    const Result<uint32_t> added = add_region(memory, Access::kRemoteWrite);
    if (!added.ok()) return added.status();
    region = added.value();
  }
  const bool is_cached = remote_range(regions[0]).key == remote_range(regions[1]).key;
  for (const uint32_t region : regions) remove_region(region);
  if (!is_cached) return {};
  return Status::error(traits_.provider +
                           ": libfabric's registration cache leaves memory open to peers after its "
                           "region was closed",
                       "Start the program with FI_MR_CACHE_MAX_COUNT=0");
}

// ---- Completions ----

/// A poll is expensive on some providers. So the own queue or the doors are polled less often if
/// they were quiet lately, while the others have traffic. All are polled when nothing comes.
size_t OfiDomain::poll(std::span<Completion> completions) {
  if (quirks_.has_doorbells) {
    polled_ns_ = monotonic_ns();
    peers_.ring_again(polled_ns_);
  }
  if (!knocks_.is_empty())
    knocks_.look(monotonic_ns(),
                 [this](const auto& address) { return peers_.has_link_to(address); });
  if (!held_.empty()) post_held();
  size_t count = postings_.hand_out(completions);
  const auto poll_doors = [&] {
    from_doors_ = doors_.poll(completions.subspan(count), from_queue_ > 0);
    count += from_doors_;
  };
  doors_first_ = !doors_first_;  // either may fill the room for ever
  if (doors_first_) poll_doors();
  if (!queue_pace_.waits(from_doors_ > 0)) {
    from_queue_ = read_queue(completions.subspan(count));
    queue_pace_.looked(from_queue_);
    count += from_queue_;
  }
  if (!doors_first_) poll_doors();
  return count + postings_.hand_out(completions.subspan(count));
}

size_t OfiDomain::read_queue(std::span<Completion> completions) {
  std::array<fi_cq_data_entry, kEventsAtOnce> entries;
  const size_t room = std::min(completions.size(), entries.size());
  if (room == 0) return 0;
  connections_.forget();
  if (calls_) calls_->resume();
  StandIns stand_ins(region_);
  const auto read = [&] { return fi_cq_read(station_.queue.get(), entries.data(), room); };
  const std::optional<int64_t> answer =
      calls_ ? calls_->run(RobustCalls::Purpose::kProgress, read) : read();
  stand_ins.free_places(*station_.addresses);
  if (answer == -FI_EAVAIL) {
    const std::optional<Completion> failed = take_error();
    if (failed) completions[0] = *failed;
    return failed ? 1 : 0;
  }
  if (answer == -FI_EAGAIN) postings_.free_abandoned();
  size_t count = 0;
  for (int64_t i = 0; i < answer.value_or(0); ++i)
    if (const auto come = completed(entries[static_cast<size_t>(i)])) completions[count++] = *come;
  return count;
}

std::optional<Completion> OfiDomain::completed(const fi_cq_data_entry& entry) {
  if (const auto arrival = arrival_of(entry)) return arrival;
  auto& posting = *static_cast<Posting*>(entry.op_context);
  const bool is_answer = posting.event == Event::kPosted && !posting.awaits_batch;
  if (is_answer && posting.stage != Posting::Stage::kAbandoned)
    peers_.at(posting.peer).doorbell.answered(polled_ns_);
  return postings_.given_back(posting, true, entry.len);
}

/// None: the error is not of a posting of ours, or nothing is to be told.
std::optional<Completion> OfiDomain::take_error() {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(station_.queue.get(), &error, 0) < 1 || error.op_context == nullptr)
    return std::nullopt;
  return postings_.given_back(*static_cast<Posting*>(error.op_context), false, 0);
}

Result<std::unique_ptr<Domain>> open_domain(const Quirks& quirks, const std::string& host_address,
                                            Admits admits) {
  return OfiDomain::open(quirks, host_address, admits);
}

}  // namespace braid::fabric::ofi
