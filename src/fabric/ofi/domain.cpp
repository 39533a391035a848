#include "fabric/ofi/domain.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "fabric/ofi/incoming.h"
#include "fabric/ofi/library.h"
#include "fabric/ofi/offers.h"

namespace braid::fabric::ofi {
namespace {

constexpr size_t kEventsAtOnce = 64;
// What comes with a write, where the provider has room for more than an immediate: the immediate in
// the low 32 bits, or kNoImmediate; above that how many slices the write has beyond the first.
constexpr uint64_t kNoImmediate = uint64_t{1} << 32;
constexpr int kSlicesShift = 33;
constexpr size_t kSegmentsMax = 8;

/// Closes what libfabric has opened.
struct Close {
  template <typename Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close>;

uint64_t random_key(size_t size_bytes) {
  uint64_t key = 0;
  while (getrandom(&key, std::min(size_bytes, sizeof key), 0) < 0) {
  }
  return key;
}

class OfiDomain final : public Domain {
 public:
  static Result<std::unique_ptr<Domain>> open(const Quirks& quirks,
                                              const std::string& host_address) {
    const Result<const Library*> loaded = library();
    if (!loaded.ok()) return loaded.status();
    std::unique_ptr<OfiDomain> domain(new OfiDomain(*loaded.value(), quirks));
    if (Status failed = domain->prepare(host_address); !failed.ok()) return failed;
    return std::unique_ptr<Domain>(std::move(domain));
  }

  ~OfiDomain() override {
    for (const auto& [number, door] : doors_) drain(door.address);
    drain(address_);
  }

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return address_; }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override { return regions_.at(region).range; }
  void remove_region(uint32_t region) override { regions_.erase(region); }
  Result<uint32_t> connect(Bytes address) override;
  void disconnect(uint32_t peer) override;
  Result<uint32_t> open_door() override;
  Bytes door_address(uint32_t door) const override { return doors_.at(door).address; }
  void close_door(uint32_t door) override;
  bool post_write(const Write& write) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;
  size_t poll(std::span<Completion> completions) override;
  int wait_descriptor() const override { return wait_descriptor_; }
  bool arm() override;

 private:
  struct Region {
    Owned<fid_mr> memory;
    RemoteRange range;
  };
  /// What libfabric gives back with a completion. It has room of its own at the front.
  struct Operation {
    fi_context2 room;
    Event event;
    uint64_t context;
    uint32_t peer;  // of a write or a message
  };

  OfiDomain(const Library& fabric_library, const Quirks& quirks)
      : library_(fabric_library),
        quirks_(quirks),
        traits_{quirks.provider, quirks.removal_fences, quirks.closing_fences} {}

  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    fid_ep* endpoint = nullptr;  // from which it is written to
    Owned<fid_ep> own;           // the same, where the peer needs one of its own
    uint64_t under_way = 0;
    bool is_broken = false;  // see Quirks::keeps_broken_connections
  };

  struct Door {
    Owned<fid_ep> endpoint;
    std::vector<std::byte> address;
  };

  Status prepare(const std::string& host_address);
  Status check_that_closing_ends_access();
  Status open_queue();
  Result<Owned<fid_ep>> open_endpoint();
  Result<std::vector<std::byte>> name_of(fid_ep& endpoint) const;
  Status failure(const char* what, int64_t answer) const;
  void* descriptor_of(uint32_t region) const;
  bool is_ready(Peer& peer);
  Operation* begin(Event event, uint64_t context, uint32_t peer);
  bool posted(Operation* operation, int64_t answer);
  void end(const Operation* operation, bool ok);
  size_t read_queue(std::span<Completion> completions);
  Completion completed(const fi_cq_data_entry& entry);
  bool take_error(Completion& completion);
  void drain(Bytes name);

  const Library& library_;
  const Quirks& quirks_;
  Traits traits_;
  Info info_;
  bool tells_landings_ = false;  // writes without an immediate come with kNoImmediate
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> queue_;
  int wait_descriptor_ = -1;
  std::unordered_map<uint32_t, Region> regions_;
  std::deque<Operation> operations_;
  Owned<fid_ep> endpoint_;   // endpoints are closed first: nothing reads or writes memory then
  std::vector<Peer> peers_;  // by number
  std::vector<uint32_t> free_peers_;
  size_t connects_ = 0;  // ever
  std::unordered_map<uint32_t, Door> doors_;
  uint32_t next_door_ = 0;
  std::vector<std::byte> address_;
  uint32_t next_region_ = 0;
  std::vector<Operation*> free_;
  std::deque<Completion> waiting_;  // that no poll has handed out yet
};

Status OfiDomain::failure(const char* what, int64_t answer) const {
  return Status::error(traits_.provider + ": " + what + ": " + library_.describe(answer));
}

Status OfiDomain::prepare(const std::string& host_address) {
  Result<Info> offer = find_offer(quirks_, host_address);
  if (!offer.ok()) return offer.status();
  info_ = std::move(offer).value();

  fid_fabric* fabric = nullptr;
  int answer = library_.fabric(info_->fabric_attr, &fabric, nullptr);
  if (answer != 0) return failure("fi_fabric", answer);
  fabric_.reset(fabric);
  // Where the target's CPU makes the progress, it must know when to go on looking.
  tells_landings_ = info_->domain_attr->data_progress == FI_PROGRESS_MANUAL &&
                    info_->domain_attr->cq_data_size > sizeof(uint32_t);

  if (info_->domain_attr->cq_data_size > sizeof(uint32_t))
    traits_.segments_max =
        std::min({kSegmentsMax, info_->tx_attr->iov_limit, info_->tx_attr->rma_iov_limit});

  fid_domain* domain = nullptr;
  answer = fi_domain(fabric, info_.get(), &domain, nullptr);
  if (answer != 0) return failure("fi_domain", answer);
  domain_.reset(domain);
  if (Status cached = check_that_closing_ends_access(); !cached.ok()) return cached;

  fi_av_attr address_attributes{};
  address_attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  answer = fi_av_open(domain, &address_attributes, &addresses, nullptr);
  if (answer != 0) return failure("fi_av_open", answer);
  addresses_.reset(addresses);

  if (Status failed = open_queue(); !failed.ok()) return failed;
  Result<Owned<fid_ep>> endpoint = open_endpoint();
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = std::move(endpoint).value();

  Result<std::vector<std::byte>> name = name_of(*endpoint_);
  if (!name.ok()) return name.status();
  address_ = std::move(name).value();
  return {};
}

/// libfabric's registration cache keeps a region registered after it was closed. It is on if the
/// same memory has the same key twice.
Status OfiDomain::check_that_closing_ends_access() {
  static std::array<std::byte, 4096> memory;
  if ((info_->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0) return {};
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

Status OfiDomain::open_queue() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = quirks_.has_wait_descriptor ? FI_WAIT_FD : FI_WAIT_NONE;
  attributes.size = info_->tx_attr->size + info_->rx_attr->size;
  fid_cq* queue = nullptr;
  int answer = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  if (answer != 0) return failure("fi_cq_open", answer);
  queue_.reset(queue);
  if (attributes.wait_obj != FI_WAIT_FD) return {};
  answer = fi_control(&queue->fid, FI_GETWAIT, &wait_descriptor_);
  return answer == 0 ? Status() : failure("FI_GETWAIT", answer);
}

Result<std::vector<std::byte>> OfiDomain::name_of(fid_ep& endpoint) const {
  size_t size_bytes = kAddressBytesMax;
  std::vector<std::byte> name(size_bytes);
  const int answer = fi_getname(&endpoint.fid, name.data(), &size_bytes);
  if (answer != 0) return failure("fi_getname", answer);
  name.resize(size_bytes);
  return name;
}

Result<Owned<fid_ep>> OfiDomain::open_endpoint() {
  fid_ep* opened = nullptr;
  int answer = fi_endpoint(domain_.get(), info_.get(), &opened, nullptr);
  if (answer != 0) return failure("fi_endpoint", answer);
  Owned<fid_ep> endpoint(opened);
  answer = fi_ep_bind(opened, &addresses_->fid, 0);
  if (answer == 0) answer = fi_ep_bind(opened, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (answer == 0) answer = fi_enable(opened);
  if (answer != 0) return failure("fi_enable", answer);
  return endpoint;
}

// ---- Regions and peers ----

Result<uint32_t> OfiDomain::add_region(MutableBytes memory, Access access) {
  Region region;
  const uint32_t mode = static_cast<uint32_t>(info_->domain_attr->mr_mode);
  const bool needs_none = access == Access::kLocal && (mode & FI_MR_LOCAL) == 0;
  const uint64_t rights =
      access == Access::kLocal ? FI_SEND | FI_RECV | FI_WRITE : uint64_t{FI_REMOTE_WRITE};
  for (int answer = -FI_ENOKEY; !needs_none && answer != 0;) {
    const uint64_t wanted =
        (mode & FI_MR_PROV_KEY) != 0 ? 0 : random_key(info_->domain_attr->mr_key_size);
    fid_mr* registered = nullptr;
    answer = fi_mr_reg(domain_.get(), memory.data(), memory.size(), rights, 0, wanted, 0,
                       &registered, nullptr);
    if (answer == -FI_ENOKEY && (mode & FI_MR_PROV_KEY) == 0) continue;  // taken: another number
    if (answer != 0) return failure("memory cannot be registered", answer);
    region.memory.reset(registered);
    region.range.key = fi_mr_key(registered);
    if ((mode & FI_MR_VIRT_ADDR) != 0)
      region.range.base = reinterpret_cast<uint64_t>(memory.data());
  }
  regions_[next_region_] = std::move(region);
  return next_region_++;
}

void* OfiDomain::descriptor_of(uint32_t region) const {
  const Region& found = regions_.at(region);
  return found.memory ? fi_mr_desc(found.memory.get()) : nullptr;
}

Result<uint32_t> OfiDomain::connect(Bytes address) {
  // The provider reads as many bytes as its own addresses have.
  const bool is_text = info_->addr_format == FI_ADDR_STR;
  if (is_text ? address.empty() || address.back() != std::byte{0}
              : address.size() != address_.size())
    return Status::error("this is no address of " + traits_.provider);
  const size_t live = peers_.size() - free_peers_.size();
  if (quirks_.peers_max > 0 && live + connects_ >= quirks_.peers_max)
    return Status::error(traits_.provider + " has no room for further peers: " +
                             std::to_string(connects_) + " connections have been made",
                         "Open another engine, or use tcp;ofi_rxm");
  ++connects_;
  Peer peer;
  if (quirks_.needs_endpoint_for_each_peer) {
    Result<Owned<fid_ep>> own = open_endpoint();
    if (!own.ok()) return own.status();
    peer.own = std::move(own).value();
  }
  peer.endpoint = peer.own ? peer.own.get() : endpoint_.get();
  const int count = fi_av_insert(addresses_.get(), address.data(), 1, &peer.address, 0, nullptr);
  if (count != 1) return failure("the peer's address is refused", count < 0 ? count : -FI_EINVAL);
  if (free_peers_.empty()) {
    peers_.push_back(std::move(peer));
    return static_cast<uint32_t>(peers_.size() - 1);
  }
  const uint32_t number = free_peers_.back();
  free_peers_.pop_back();
  peers_[number] = std::move(peer);
  return number;
}

void OfiDomain::disconnect(uint32_t peer) {
  Peer& leaving = peers_.at(peer);
  leaving.own.reset();
  leaving.endpoint = nullptr;
  fi_av_remove(addresses_.get(), &leaving.address, 1, 0);
  free_peers_.push_back(peer);
}

Result<uint32_t> OfiDomain::open_door() {
  Result<Owned<fid_ep>> endpoint = open_endpoint();
  if (!endpoint.ok()) return endpoint.status();
  Result<std::vector<std::byte>> name = name_of(*endpoint.value());
  if (!name.ok()) return name.status();
  doors_[next_door_] = {std::move(endpoint).value(), std::move(name).value()};
  return next_door_++;
}

void OfiDomain::close_door(uint32_t door) {
  drain(doors_.at(door).address);
  doors_.erase(door);
}

/// Ends what comes in at an endpoint, so that it may be closed: see Quirks.
void OfiDomain::drain(Bytes name) {
  constexpr int kLooksMax = 100'000;
  if (!quirks_.drains_before_close) return;
  std::vector<Incoming> connections = incoming_at(name);
  for (const Incoming& connection : connections) shut_down(connection);
  for (int look = 0; look < kLooksMax && !connections.empty(); ++look) {
    std::array<Completion, kEventsAtOnce> completions;
    const size_t count = read_queue(completions);
    waiting_.insert(waiting_.end(), completions.begin(), completions.begin() + count);
    std::erase_if(connections, [](const Incoming& connection) { return !connection.is_open(); });
  }
}

// ---- Postings ----

/// False: what went over a connection that has broken has not all come back.
bool OfiDomain::is_ready(Peer& peer) {
  if (!peer.is_broken) return true;
  if (peer.under_way > 0) return false;
  Result<Owned<fid_ep>> own = open_endpoint();
  if (!own.ok()) return false;
  peer.own = std::move(own).value();
  peer.endpoint = peer.own.get();
  peer.is_broken = false;
  return true;
}

OfiDomain::Operation* OfiDomain::begin(Event event, uint64_t context, uint32_t peer) {
  if (free_.empty()) free_.push_back(&operations_.emplace_back());
  Operation* operation = free_.back();
  free_.pop_back();
  operation->event = event;
  operation->context = context;
  operation->peer = peer;
  if (event == Event::kPosted) ++peers_[peer].under_way;
  return operation;
}

void OfiDomain::end(const Operation* operation, bool ok) {
  if (operation->event == Event::kPosted) {
    Peer& peer = peers_[operation->peer];
    --peer.under_way;
    peer.is_broken = peer.is_broken || (!ok && quirks_.keeps_broken_connections);
  }
  free_.push_back(const_cast<Operation*>(operation));
}

bool OfiDomain::posted(Operation* operation, int64_t answer) {
  if (answer == 0) return true;
  end(operation, true);
  if (answer == -FI_EAGAIN) return false;
  waiting_.push_back({operation->event, false, 0, 0, operation->context});
  return true;
}

bool OfiDomain::post_write(const Write& write) {
  if (!is_ready(peers_.at(write.peer))) return false;
  std::array<iovec, kSegmentsMax> sources;
  std::array<void*, kSegmentsMax> descriptors;
  std::array<fi_rma_iov, kSegmentsMax> targets;
  size_t count = 0;
  void* descriptor = descriptor_of(write.region);
  const auto add = [&](Bytes source, uint64_t target_address) {
    sources[count] = {const_cast<std::byte*>(source.data()), source.size()};
    descriptors[count] = descriptor;
    targets[count++] = {target_address, source.size(), write.target_key};
  };
  add(write.source, write.target_address);
  for (const Segment& segment : write.further) add(segment.source, segment.target_address);
  Operation* operation = begin(Event::kPosted, write.context, write.peer);
  fi_msg_rma message{};
  message.msg_iov = sources.data();
  message.desc = descriptors.data();
  message.iov_count = count;
  message.addr = peers_.at(write.peer).address;
  message.rma_iov = targets.data();
  message.rma_iov_count = count;
  message.context = operation;
  message.data = (write.immediate ? *write.immediate : kNoImmediate) | uint64_t{write.slices - 1}
                                                                           << kSlicesShift;
  const uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE |
                         (write.immediate || tells_landings_ ? uint64_t{FI_REMOTE_CQ_DATA} : 0);
  return posted(operation, fi_writemsg(peers_.at(write.peer).endpoint, &message, flags));
}

bool OfiDomain::post_send(uint32_t peer, uint32_t region, Bytes bytes, uint64_t context) {
  if (!is_ready(peers_.at(peer))) return false;
  iovec source{const_cast<std::byte*>(bytes.data()), bytes.size()};
  void* descriptor = descriptor_of(region);
  Operation* operation = begin(Event::kPosted, context, peer);
  fi_msg message{};
  message.msg_iov = &source;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peers_.at(peer).address;
  message.context = operation;
  return posted(operation, fi_sendmsg(peers_.at(peer).endpoint, &message,
                                      FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

bool OfiDomain::post_receive(uint32_t region, MutableBytes buffer, uint64_t context) {
  Operation* operation = begin(Event::kReceived, context, 0);
  return posted(operation, fi_recv(endpoint_.get(), buffer.data(), buffer.size(),
                                   descriptor_of(region), FI_ADDR_UNSPEC, operation));
}

// ---- Completions ----

size_t OfiDomain::poll(std::span<Completion> completions) {
  size_t count = 0;
  for (; count < completions.size() && !waiting_.empty(); waiting_.pop_front())
    completions[count++] = waiting_.front();
  return count + read_queue(completions.subspan(count));
}

bool OfiDomain::arm() {
  fid* queue = &queue_->fid;
  return wait_descriptor_ >= 0 && waiting_.empty() && fi_trywait(fabric_.get(), &queue, 1) == 0;
}

size_t OfiDomain::read_queue(std::span<Completion> completions) {
  std::array<fi_cq_data_entry, kEventsAtOnce> entries;
  const size_t room = std::min(completions.size(), entries.size());
  if (room == 0) return 0;
  const int64_t answer = fi_cq_read(queue_.get(), entries.data(), room);
  if (answer == -FI_EAVAIL) return take_error(completions[0]) ? 1 : 0;
  for (int64_t i = 0; i < answer; ++i) completions[i] = completed(entries[i]);
  return answer > 0 ? static_cast<size_t>(answer) : 0;
}

Completion OfiDomain::completed(const fi_cq_data_entry& entry) {
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.data & kNoImmediate) != 0)
    return {Event::kLanded};
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
    return {Event::kImmediate,
            true,
            static_cast<uint32_t>(entry.data),
            0,
            0,
            static_cast<uint32_t>(entry.data >> kSlicesShift) + 1};
  const auto* operation = static_cast<const Operation*>(entry.op_context);
  end(operation, true);
  return {operation->event, true, 0, entry.len, operation->context};
}

/// False: an error of something that was not ours.
bool OfiDomain::take_error(Completion& completion) {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(queue_.get(), &error, 0) < 1 || error.op_context == nullptr) return false;
  const auto* operation = static_cast<const Operation*>(error.op_context);
  end(operation, false);
  completion = {operation->event, false, 0, 0, operation->context};
  return true;
}

}  // namespace

Result<std::unique_ptr<Domain>> open_domain(const Quirks& quirks, const std::string& host_address) {
  return OfiDomain::open(quirks, host_address);
}

}  // namespace braid::fabric::ofi
