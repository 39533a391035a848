#include "fabric/endpoints.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "fabric/policy/way_health.h"
#include "fabric/slot_map.h"
#include "host/file.h"

namespace braid::fabric {
namespace {

uint64_t size_of(const Write& write) {
  uint64_t size_bytes = write.source.size();
  for (const Segment& segment : write.further) size_bytes += segment.source.size();
  return size_bytes;
}

using Numbers = std::vector<uint32_t>;  // of one thing at the further endpoints, in their order

class JoinedDomain final : public Domain {
 public:
  JoinedDomain(std::vector<std::unique_ptr<Domain>> endpoints, const EndpointOptions& options);

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return first().address(); }

  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override { return first().remote_range(region); }
  void remove_region(uint32_t region) override;
  Drain drain(uint32_t region) const override;

  Result<uint32_t> connect(Bytes address) override { return first().connect(address); }
  Result<uint32_t> connect_all(Bytes address, std::span<const Bytes> further) override;
  size_t ways(uint32_t peer) const override;
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override;

  Result<uint32_t> open_door() override;
  Result<uint32_t> open_narrow_door() override { return first().open_door(); }
  Bytes door_address(uint32_t door) const override { return first().door_address(door); }
  std::vector<Bytes> further_door_addresses(uint32_t door) const override;
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override;
  void close_door(uint32_t door) override;
  Drain drain_door(uint32_t door) const override;

  uint64_t gathered_bytes_max(const RemoteRange& target) const override {
    return first().gathered_bytes_max(target);
  }
  bool post_write(const Write& write) override;
  size_t post_writes(std::span<const Write> writes) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;

  size_t poll(std::span<Completion> completions) override;
  bool has_copied() const override;
  Rejections rejections() const override {
    Rejections all;
    for (const Endpoint& endpoint : endpoints_) all += endpoint.domain->rejections();
    return all;
  }
  int wait_descriptor() const override { return events_.get(); }
  bool arm() override;
  uint64_t look_within_ns() const override;

 private:
  /// To a peer over one further endpoint.
  struct Way {
    uint32_t peer = 0;  // the endpoint's number of it
    WayHealth health = {};
  };
  /// A peer that is reached over several endpoints.
  struct Peer {
    uint64_t connection = 0;  // never used twice: numbers of peers are
    std::vector<Way> further;
  };
  struct Posting {
    uint64_t context = 0;     // the caller's
    uint64_t size_bytes = 0;  // of a write
    size_t endpoint = 0;
    // Of a large write to a peer with several ways:
    uint32_t peer = 0;
    uint64_t connection = 0;
  };
  using Ending = std::unordered_map<uint32_t, Numbers>;
  struct Choices {
    std::array<size_t, kEndpointsMax> at{};
    size_t count = 0;
  };
  struct Endpoint {
    std::unique_ptr<Domain> domain;
    uint64_t under_way_bytes = 0;  // of writes
  };

  Domain& first() { return *endpoints_.front().domain; }
  const Domain& first() const { return *endpoints_.front().domain; }
  /// The number of the further endpoint at this place in lists of them.
  static size_t endpoint_at(size_t place) { return place + 1; }
  Domain& further(size_t place) { return *endpoints_[endpoint_at(place)].domain; }
  const Domain& further(size_t place) const { return *endpoints_[endpoint_at(place)].domain; }

  void watch_all();
  template <typename AddAt>
  Status add_twins(uint32_t region, size_t count, const AddAt& add_at);
  void remove_twins(const Numbers& twins);
  Choices choices(Peer& peer) const;
  bool post_large(Posting posting, const Write& write, Peer& peer);
  void note_end(const Posting& posting, bool ok);
  bool post_at(const Posting& posting, Write write);
  template <typename Post>
  bool post_message(uint64_t context, const Post& post);
  void give_back_context(Completion& completion);
  template <typename DrainAt>
  Drain drain_all(uint32_t number, const Ending& ending, const DrainAt& drain) const;
  void forget_ended();

  std::vector<Endpoint> endpoints_;
  Traits traits_;
  const EndpointOptions options_;
  // Things are known by the first endpoint's numbers.
  std::unordered_map<uint32_t, Numbers> twins_;  // of regions
  std::unordered_map<uint32_t, Numbers> doors_;  // that are open at several endpoints
  Ending removed_;                               // regions that may still be written
  Ending closing_doors_;
  std::unordered_map<uint32_t, Peer> peers_;  // those with several ways
  uint64_t connections_ = 0;                  // ever
  SlotMap<Posting> postings_;
  std::vector<Write> batch_;  // of one call
  size_t polled_first_ = 0;   // in turns: each may fill the room for ever
  File events_;  // readable once one of the endpoints is; not open: one has no descriptor
};

JoinedDomain::JoinedDomain(std::vector<std::unique_ptr<Domain>> endpoints,
                           const EndpointOptions& options)
    : options_(options) {
  for (std::unique_ptr<Domain>& endpoint : endpoints) endpoints_.push_back({std::move(endpoint)});
  traits_ = first().traits();
  traits_.endpoints = endpoints_.size();
  traits_.postings_max *= endpoints_.size();
  watch_all();
}

void JoinedDomain::watch_all() {
  File events(epoll_create1(EPOLL_CLOEXEC));
  for (const Endpoint& endpoint : endpoints_) {
    epoll_event event{};
    event.events = EPOLLIN;
    const int descriptor = endpoint.domain->wait_descriptor();
    if (descriptor < 0 || epoll_ctl(events.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return;
  }
  events_ = std::move(events);
}

// ---- Regions ----

Result<uint32_t> JoinedDomain::add_region(MutableBytes memory, Access access) {
  BRAID_LET(region, first().add_region(memory, access));
  BRAID_TRY(add_twins(region, endpoints_.size() - 1, [&](size_t place) {
    if (access == Access::kLocal) return further(place).add_region(memory, access);
    return further(place).add_twin_region(std::nullopt, memory, first().remote_range(region));
  }));
  return region;
}

Result<uint32_t> JoinedDomain::add_door_region(uint32_t door, MutableBytes memory) {
  BRAID_LET(region, first().add_door_region(door, memory));
  const auto opened = doors_.find(door);
  if (opened == doors_.end()) return region;  // it is open at the first endpoint alone
  BRAID_TRY(add_twins(region, opened->second.size(), [&](size_t place) {
    const uint32_t there = opened->second[place];
    return further(place).add_twin_region(there, memory, first().remote_range(region));
  }));
  return region;
}

/// Removes the region if one of its twins cannot be added.
template <typename AddAt>
Status JoinedDomain::add_twins(uint32_t region, size_t count, const AddAt& add_at) {
  Numbers twins;
  for (size_t place = 0; place < count; ++place) {
    const Result<uint32_t> twin = add_at(place);
    if (!twin.ok()) {
      remove_twins(twins);
      first().remove_region(region);
      return twin.status();
    }
    twins.push_back(twin.value());
  }
  twins_[region] = std::move(twins);
  return {};
}

void JoinedDomain::remove_twins(const Numbers& twins) {
  for (size_t place = 0; place < twins.size(); ++place) further(place).remove_region(twins[place]);
}

void JoinedDomain::remove_region(uint32_t region) {
  auto twins = twins_.extract(region);
  if (!twins.empty()) {
    const bool drains = removal_fences(region);
    remove_twins(twins.mapped());
    if (drains) removed_.insert(std::move(twins));
    forget_ended();
  }
  first().remove_region(region);
}

/// What is over at every endpoint.
template <typename DrainAt>
Drain JoinedDomain::drain_all(uint32_t number, const Ending& ending, const DrainAt& drain) const {
  Drain all = drain(first(), number);
  const auto found = ending.find(number);
  if (found == ending.end()) return all;
  for (size_t place = 0; place < found->second.size(); ++place)
    all = std::max(all, drain(further(place), found->second[place]));
  return all;
}

Drain JoinedDomain::drain(uint32_t region) const {
  return drain_all(region, removed_,
                   [](const Domain& at, uint32_t number) { return at.drain(number); });
}

// ---- Peers and doors ----

Result<uint32_t> JoinedDomain::connect_all(Bytes address, std::span<const Bytes> further) {
  BRAID_LET(peer, first().connect(address));
  if (further.empty() || peers_.size() >= options_.doors_max) return peer;
  Peer connected{++connections_, {}};
  const size_t count = std::min(further.size(), endpoints_.size() - 1);
  for (size_t place = 0; place < count; ++place) {
    const Result<uint32_t> there = this->further(place).connect(further[place]);
    if (!there.ok()) break;  // fewer ways suffice
    connected.further.push_back({there.value()});
  }
  if (!connected.further.empty()) peers_[peer] = std::move(connected);
  return peer;
}

size_t JoinedDomain::ways(uint32_t peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? 1 : 1 + found->second.further.size();
}

void JoinedDomain::disconnect(uint32_t peer) {
  first().disconnect(peer);
  const auto gone = peers_.extract(peer);
  if (gone.empty()) return;
  for (size_t place = 0; place < gone.mapped().further.size(); ++place)
    further(place).disconnect(gone.mapped().further[place].peer);
}

void JoinedDomain::abandon(uint32_t peer, Absence absence) {
  first().abandon(peer, absence);
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  for (size_t place = 0; place < found->second.further.size(); ++place)
    further(place).abandon(found->second.further[place].peer, absence);
}

Result<uint32_t> JoinedDomain::open_door() {
  forget_ended();
  BRAID_LET(door, first().open_door());
  if (doors_.size() + closing_doors_.size() >= options_.doors_max) return door;
  Numbers opened;
  for (size_t place = 0; endpoint_at(place) < endpoints_.size(); ++place) {
    const Result<uint32_t> there = further(place).open_door();
    if (!there.ok()) break;  // fewer ways suffice
    opened.push_back(there.value());
  }
  if (!opened.empty()) doors_[door] = std::move(opened);
  return door;
}

std::vector<Bytes> JoinedDomain::further_door_addresses(uint32_t door) const {
  std::vector<Bytes> addresses;
  const auto found = doors_.find(door);
  if (found == doors_.end()) return addresses;
  for (size_t place = 0; place < found->second.size(); ++place)
    addresses.push_back(further(place).door_address(found->second[place]));
  return addresses;
}

void JoinedDomain::close_door(uint32_t door) {
  first().close_door(door);
  auto opened = doors_.extract(door);
  if (opened.empty()) return;
  for (size_t place = 0; place < opened.mapped().size(); ++place)
    further(place).close_door(opened.mapped()[place]);
  closing_doors_.insert(std::move(opened));
}

Drain JoinedDomain::drain_door(uint32_t door) const {
  return drain_all(door, closing_doors_,
                   [](const Domain& at, uint32_t number) { return at.drain_door(number); });
}

/// Forgets what has ended at the further endpoints.
void JoinedDomain::forget_ended() {
  std::erase_if(removed_, [this](const auto& each) { return drain(each.first) == Drain::kOver; });
  std::erase_if(closing_doors_,
                [this](const auto& each) { return drain_door(each.first) == Drain::kOver; });
}

// ---- Postings ----

/// The endpoints that a large write to this peer may take, the one with the least to carry first.
/// Of those with as much, the first endpoint is the last choice: the engine's thread copies its
/// bytes, and takes no messages meanwhile.
JoinedDomain::Choices JoinedDomain::choices(Peer& peer) const {
  Choices all;
  for (size_t place = 0; place < peer.further.size(); ++place)
    if (!peer.further[place].health.rests()) all.at[all.count++] = endpoint_at(place);
  all.at[all.count++] = 0;
  std::stable_sort(all.at.begin(), all.at.begin() + all.count, [this](size_t a, size_t b) {
    return endpoints_[a].under_way_bytes < endpoints_[b].under_way_bytes;
  });
  return all;
}

bool JoinedDomain::post_write(const Write& write) {
  const Posting posting{write.context, size_of(write)};
  const auto peer = peers_.find(write.peer);
  if (peer == peers_.end() || posting.size_bytes <= options_.small_write_bytes)
    return post_at(posting, write);
  return post_large(posting, write, peer->second);
}

bool JoinedDomain::post_large(Posting posting, const Write& write, Peer& peer) {
  posting.peer = write.peer;
  posting.connection = peer.connection;
  const Choices all = choices(peer);
  return std::any_of(all.at.begin(), all.at.begin() + all.count, [&](size_t endpoint) {
    posting.endpoint = endpoint;
    if (endpoint == 0) return post_at(posting, write);
    Way& way = peer.further[endpoint - 1];
    Write there = write;
    there.peer = way.peer;
    there.region = twins_.at(write.region)[endpoint - 1];
    if (!post_at(posting, there)) return false;
    way.health.posted();
    return true;
  });
}

/// False: the endpoint's queue is full.
bool JoinedDomain::post_at(const Posting& posting, Write write) {
  write.context = postings_.add(Posting(posting));
  Endpoint& endpoint = endpoints_[posting.endpoint];
  if (!endpoint.domain->post_write(write)) {
    postings_.erase(write.context);
    return false;
  }
  endpoint.under_way_bytes += posting.size_bytes;
  return true;
}

/// Several are small.
size_t JoinedDomain::post_writes(std::span<const Write> writes) {
  if (writes.size() == 1) return post_write(writes.front()) ? 1 : 0;
  batch_.assign(writes.begin(), writes.end());
  for (Write& write : batch_) write.context = postings_.add({write.context, size_of(write)});
  const size_t taken = first().post_writes(batch_);
  for (size_t i = 0; i < batch_.size(); ++i) {
    if (i < taken)
      endpoints_.front().under_way_bytes += size_of(batch_[i]);
    else
      postings_.erase(batch_[i].context);
  }
  return taken;
}

template <typename Post>
bool JoinedDomain::post_message(uint64_t context, const Post& post) {
  const uint64_t own = postings_.add({context});
  const bool is_posted = post(own);
  if (!is_posted) postings_.erase(own);
  return is_posted;
}

bool JoinedDomain::post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) {
  return post_message(context,
                      [&](uint64_t own) { return first().post_send(peer, region, message, own); });
}

bool JoinedDomain::post_receive(uint32_t region, MutableBytes buffer, uint64_t context) {
  return post_message(context,
                      [&](uint64_t own) { return first().post_receive(region, buffer, own); });
}

// ---- Completions ----

size_t JoinedDomain::poll(std::span<Completion> completions) {
  size_t count = 0;
  polled_first_ = (polled_first_ + 1) % endpoints_.size();
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    const size_t endpoint = (polled_first_ + i) % endpoints_.size();
    const auto room = completions.subspan(count);
    if (room.empty()) break;
    const size_t come = endpoints_[endpoint].domain->poll(room);
    for (Completion& completion : room.first(come)) give_back_context(completion);
    count += come;
  }
  return count;
}

void JoinedDomain::give_back_context(Completion& completion) {
  if (completion.event != Event::kPosted && completion.event != Event::kReceived) return;
  const Posting posting = *postings_.find(completion.context);
  postings_.erase(completion.context);
  completion.context = posting.context;
  endpoints_[posting.endpoint].under_way_bytes -= posting.size_bytes;
  if (posting.connection != 0) note_end(posting, completion.ok);
}

/// The peer may be gone, and another one have its number.
void JoinedDomain::note_end(const Posting& posting, bool ok) {
  const auto peer = peers_.find(posting.peer);
  if (peer == peers_.end() || peer->second.connection != posting.connection) return;
  for (size_t place = 0; place < peer->second.further.size(); ++place) {
    WayHealth& health = peer->second.further[place].health;
    if (posting.endpoint == endpoint_at(place))
      health.ended(ok);
    else if (ok)
      health.other_ended();
  }
}

bool JoinedDomain::has_copied() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return endpoint.domain->has_copied(); });
}

bool JoinedDomain::arm() {
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return endpoint.domain->arm(); });
}

uint64_t JoinedDomain::look_within_ns() const {
  uint64_t within_ns = kNever;
  for (const Endpoint& endpoint : endpoints_)
    within_ns = std::min(within_ns, endpoint.domain->look_within_ns());
  return within_ns;
}

}  // namespace

std::unique_ptr<Domain> join_endpoints(std::vector<std::unique_ptr<Domain>> endpoints,
                                       const EndpointOptions& options) {
  return std::make_unique<JoinedDomain>(std::move(endpoints), options);
}

}  // namespace braid::fabric
