// Start here: one-sided transfers between processes and hosts, for C++ programs that link
// libbraid_fabric.
//
//   braid::Fabric::Options options;
//   options.provider = "tcp;ofi_rxm";
//   auto opened = braid::Fabric::open(options);
//   if (!opened.ok()) return complain(opened.status().message());
//   braid::Fabric fabric = std::move(opened).value();
//
// A Fabric writes into memory that other engines have granted to it, over all its rails at once.
// Only counts of immediates give order. fabric_abi.h describes, once for both, the life of a write,
// what its end means, ownership, threads, blocking, and trust.
//
// This is a header over that C interface, so that no C++ type crosses the library's border. Each
// kind of number is a type of its own, so that a region cannot be passed as a peer. Errors: Status
// and Result. Sizes are bytes. C++17 and newer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "braid/c_calls.h"
#include "braid/fabric_abi.h"
#include "braid/status.h"

namespace braid {

/// How long to wait at most, or how long something may take.
using Limit = std::chrono::microseconds;

class Fabric : detail::CCalls<braid_fabric_last_error> {
 public:
  using ByteList = std::vector<std::byte>;

  enum class Peer : uint64_t {};
  enum class Region : uint64_t {};
  enum class Grant : uint64_t {};
  enum class Target : uint64_t {};
  enum class Ticket : uint64_t {};
  enum class Group : uint64_t {};
  using Immediate = uint32_t;

  enum class TicketState {
    kPending = BRAID_FABRIC_PENDING,
    kDone = BRAID_FABRIC_DONE,
    kFailed = BRAID_FABRIC_FAILED,
    kQuarantined = BRAID_FABRIC_QUARANTINED
  };
  enum class Fence {
    kGranted = BRAID_FABRIC_GRANTED,
    kRevoking = BRAID_FABRIC_REVOKING,
    kFenced = BRAID_FABRIC_FENCED,
    kQuarantined = BRAID_FABRIC_MEMORY_QUARANTINED
  };

  struct Options {
    std::string provider = {};                ///< empty: the first one found
    std::vector<std::string> addresses = {};  ///< one for each rail; none: by `nics`
    std::string nics = {};               ///< "eth0,eth1" or "^docker0": see braid_fabric_options
    bool is_pinned = true;               ///< to the NUMA node of the rails
    std::string secret_file = {};        ///< empty: the file that BRAID_FABRIC_SECRET_FILE names
    bool allow_unauthenticated = false;  ///< lets rails without a secret reach other hosts
    bool gpu_memory = false;             ///< as braid_fabric_options says
  };
  struct Allocated {
    void* memory = nullptr;
    Region region{};
  };
  struct Granted {
    Grant grant;
    ByteList descriptor;  ///< for the peer
  };
  struct Range {
    uint64_t source_offset_bytes = 0;
    uint64_t target_offset_bytes = 0;
    uint64_t size_bytes = 0;
  };
  struct Pages {
    std::vector<uint32_t> indices;
    uint64_t stride_bytes = 0;
    uint64_t offset_bytes = 0;
  };
  /// Which rails a write may use: {0, 2} is the first two, {3, 1} the fourth alone, {} all.
  /// braid_fabric_rails says what happens when none of them works.
  using Rails = braid_fabric_rails;
  /// A member of a group. With no target it takes part in barriers alone; with no immediates, in
  /// none.
  struct Member {
    Peer peer;
    Target target = Target{};
    Immediate immediate_there = 0;  ///< acquired by the peer
    Immediate immediate_here = 0;   ///< acquired by this engine
  };
  /// The part of a scatter that goes to one member.
  struct Part {
    Range range;
    std::optional<Immediate> immediate;
  };
  struct Message {
    Peer from;
    ByteList bytes;
  };
  enum class PeerChange {
    kConnected = BRAID_FABRIC_PEER_CONNECTED,
    kLost = BRAID_FABRIC_PEER_LOST
  };
  using Event = braid_fabric_event;

  /// Opens its rails. An error says which one does not work, and what is missing.
  static Result<Fabric> open(const Options& options) {
    std::vector<const char*> addresses;
    for (const std::string& address : options.addresses) addresses.push_back(address.c_str());
    const braid_fabric_options all{
        sizeof(braid_fabric_options),
        options.provider.empty() ? nullptr : options.provider.c_str(),
        addresses.data(),
        addresses.size(),
        options.nics.empty() ? nullptr : options.nics.c_str(),
        options.is_pinned ? 0 : 1,
        options.secret_file.empty() ? nullptr : options.secret_file.c_str(),
        options.allow_unauthenticated ? 1 : 0,
        options.gpu_memory ? 1 : 0};
    braid_fabric* fabric = nullptr;
    if (const Status failed = status_of(braid_fabric_open(&all, &fabric)); !failed.ok())
      return failed;
    return Fabric(fabric);
  }

  /// The address that other engines connect to.
  Result<ByteList> address() {
    size_t needed_bytes = 0;
    if (const Status failed = status_of(braid_fabric_address(get(), nullptr, 0, &needed_bytes));
        !failed.ok())
      return failed;
    ByteList bytes(needed_bytes);
    return result_of(braid_fabric_address(get(), bytes.data(), bytes.size(), nullptr), bytes);
  }
  /// To the engine with this address. Blocks until it has answered, or the limit; an error names
  /// what of the address is wrong. Section 3.2.
  Result<Peer> connect(const ByteList& address, Limit limit) {
    return numbered<Peer>([&](uint64_t* peer) {
      return braid_fabric_connect(get(), address.data(), address.size(), us(limit), peer);
    });
  }
  /// The next engine that has connected; nullopt if none has by the limit.
  Result<std::optional<Peer>> accept(Limit limit) {
    uint64_t peer = 0;
    if (const Status failed = status_of(braid_fabric_accept(get(), us(limit), &peer)); !failed.ok())
      return failed;
    return peer == 0 ? std::nullopt : std::optional<Peer>(Peer{peer});
  }
  struct Lost {
    Peer peer;
    braid_fabric_loss why;
  };
  /// The next peer that was lost; nullopt if none was by the limit. Disconnect it.
  Result<std::optional<Lost>> wait_lost(Limit limit) {
    uint64_t peer = 0;
    int why = 0;
    if (const Status failed = status_of(braid_fabric_wait_lost(get(), us(limit), &peer, &why));
        !failed.ok())
      return failed;
    if (peer == 0) return std::optional<Lost>();
    return std::optional<Lost>(Lost{Peer{peer}, static_cast<braid_fabric_loss>(why)});
  }
  /// Says goodbye, posts nothing more to the peer, and takes back what was granted to it. Its
  /// number and those of its targets are gone.
  Status disconnect(Peer peer) { return status_of(braid_fabric_disconnect(get(), number(peer))); }

  /// `memory`, on the host or on a GPU, is the caller's, who keeps it until the region is removed.
  Result<Region> add_region(void* memory, size_t size_bytes) {
    return numbered<Region>([&](uint64_t* region) {
      return braid_fabric_add_region(get(), memory, size_bytes, region);
    });
  }
  /// Memory of the engine, zeroed. Peers of a "local" engine map it. remove_region frees it.
  Result<Allocated> allocate_memory(size_t size_bytes) {
    void* memory = nullptr;
    uint64_t region = 0;
    if (const Status failed =
            status_of(braid_fabric_allocate_memory(get(), size_bytes, &memory, &region));
        !failed.ok())
      return failed;
    return Allocated{memory, Region{region}};
  }
  /// An error while a part is granted and not fenced, or a write still reads it.
  Status remove_region(Region region) {
    return status_of(braid_fabric_remove_region(get(), number(region)));
  }
  /// Lets this peer alone write `size_bytes` of the region, from `offset_bytes` on. The descriptor
  /// is for the peer: bytes, in a message or by any other way.
  Result<Granted> grant(Region region, Peer peer, uint64_t offset_bytes, uint64_t size_bytes) {
    uint64_t grant = 0;
    ByteList descriptor(512);
    size_t descriptor_bytes = 0;
    if (const Status failed = status_of(
            braid_fabric_grant(get(), number(region), number(peer), offset_bytes, size_bytes,
                               &grant, descriptor.data(), descriptor.size(), &descriptor_bytes));
        !failed.ok())
      return failed;
    descriptor.resize(descriptor_bytes);
    return Granted{Grant{grant}, std::move(descriptor)};
  }
  /// Waits for the peer's answer.
  Result<Fence> revoke(Grant grant, Limit limit) {
    int fence = 0;
    if (const Status failed =
            status_of(braid_fabric_revoke(get(), number(grant), us(limit), &fence));
        !failed.ok())
      return failed;
    return static_cast<Fence>(fence);
  }
  /// Without waiting.
  Result<Fence> fence_of(Grant grant) {
    int fence = 0;
    if (const Status failed = status_of(braid_fabric_fence_of(get(), number(grant), &fence));
        !failed.ok())
      return failed;
    return static_cast<Fence>(fence);
  }
  /// Of a fenced grant, whose number is gone then.
  Status forget(Grant grant) { return status_of(braid_fabric_forget_grant(get(), number(grant))); }

  /// Memory that a peer has granted to this engine. An error if the descriptor was altered, is for
  /// another engine or connection, was revoked, or is open already.
  Result<Target> open_target(const ByteList& descriptor) {
    return numbered<Target>([&](uint64_t* target) {
      return braid_fabric_open_target(get(), descriptor.data(), descriptor.size(), target);
    });
  }
  /// One run of bytes. At the limit the ticket ends. The immediate arrives immediates_of_write
  /// times. Section 3.3, submit_single_write.
  Result<Ticket> write(Region region, Target target, const Range& range,
                       std::optional<Immediate> immediate, Limit limit, Rails rails = {}) {
    return numbered<Ticket>([&](uint64_t* ticket) {
      return braid_fabric_write(get(), number(region), range.source_offset_bytes, number(target),
                                range.target_offset_bytes, range.size_bytes,
                                immediate ? &*immediate : nullptr, &rails, us(limit), ticket);
    });
  }
  /// Page i of `source` goes to page i of `destination`: each lies at offset + index * stride, in
  /// bytes. The immediate arrives immediates_of_pages times. Section 3.3, submit_paged_writes.
  Result<Ticket> write_pages(Region region, const Pages& source, Target target,
                             const Pages& destination, uint64_t page_bytes,
                             std::optional<Immediate> immediate, Limit limit, Rails rails = {}) {
    if (source.indices.size() != destination.indices.size())
      return Status::error("the lists of pages differ in length");
    const braid_fabric_pages from{source.indices.data(), source.stride_bytes, source.offset_bytes};
    const braid_fabric_pages to{destination.indices.data(), destination.stride_bytes,
                                destination.offset_bytes};
    return numbered<Ticket>([&](uint64_t* ticket) {
      return braid_fabric_write_pages(get(), number(region), &from, number(target), &to, page_bytes,
                                      source.indices.size(), immediate ? &*immediate : nullptr,
                                      &rails, us(limit), ticket);
    });
  }
  /// Sends one immediate, and no bytes.
  Result<Ticket> notify(Peer peer, Immediate immediate, Limit limit) {
    return numbered<Ticket>([&](uint64_t* ticket) {
      return braid_fabric_notify(get(), number(peer), immediate, us(limit), ticket);
    });
  }
  /// A group for scatters and barriers, which have one ticket for all members.
  Result<Group> add_group(const std::vector<Member>& members) {
    std::vector<braid_fabric_member> all;
    for (const Member& each : members)
      all.push_back(
          {number(each.peer), number(each.target), each.immediate_there, each.immediate_here});
    return numbered<Group>([&](uint64_t* group) {
      return braid_fabric_add_group(get(), all.data(), all.size(), group);
    });
  }
  /// An error while a barrier of its is under way. Scatters go on.
  Status remove_group(Group group) {
    return status_of(braid_fabric_remove_group(get(), number(group)));
  }
  /// Writes part i to the target of member i.
  Result<Ticket> scatter(Region region, Group group, const std::vector<Part>& parts, Limit limit,
                         Rails rails = {}) {
    std::vector<braid_fabric_part> all;
    for (const Part& each : parts)
      all.push_back({each.range.source_offset_bytes, each.range.target_offset_bytes,
                     each.range.size_bytes, each.immediate ? &*each.immediate : nullptr});
    return numbered<Ticket>([&](uint64_t* ticket) {
      return braid_fabric_scatter(get(), number(region), number(group), all.data(), all.size(),
                                  &rails, us(limit), ticket);
    });
  }
  /// Done once every member has called it. It orders no writes: wait for their tickets first.
  Result<Ticket> barrier(Group group, Limit limit) {
    return numbered<Ticket>([&](uint64_t* ticket) {
      return braid_fabric_barrier(get(), number(group), us(limit), ticket);
    });
  }
  /// The peers for which a ticket of a group is not done yet, or for which it failed if it has
  /// ended.
  Result<std::vector<Peer>> missing(Ticket ticket) {
    size_t count = 0;
    if (const Status failed =
            status_of(braid_fabric_missing(get(), number(ticket), nullptr, 0, &count));
        !failed.ok())
      return failed;
    std::vector<uint64_t> numbers(count);
    if (const Status failed = status_of(
            braid_fabric_missing(get(), number(ticket), numbers.data(), numbers.size(), &count));
        !failed.ok())
      return failed;
    numbers.resize(std::min(count, numbers.size()));
    std::vector<Peer> peers;
    for (const uint64_t each : numbers) peers.push_back(Peer{each});
    return peers;
  }
  /// Until it is not pending any more, or the limit: then it is still kPending.
  Result<TicketState> wait(Ticket ticket, Limit limit) {
    int state = 0;
    if (const Status failed =
            status_of(braid_fabric_wait_ticket(get(), number(ticket), us(limit), &state));
        !failed.ok())
      return failed;
    return static_cast<TicketState>(state);
  }
  /// Posts no more of the ticket. Its source is free once it has ended: see
  /// braid_fabric_cancel_ticket.
  Status cancel(Ticket ticket) {
    return status_of(braid_fabric_cancel_ticket(get(), number(ticket)));
  }
  /// Nobody asks for it any more. What is under way goes on.
  void forget(Ticket ticket) { braid_fabric_forget_ticket(get(), number(ticket)); }

  /// A number that nobody else counts, until it is released.
  Result<Immediate> acquire_immediate() {
    Immediate immediate = 0;
    return result_of(braid_fabric_acquire_immediate(get(), &immediate), immediate);
  }
  /// The number of arrivals, once it is `count`, or at the limit.
  Result<uint64_t> wait_count(Immediate immediate, uint64_t count, Limit limit) {
    uint64_t arrived = 0;
    return result_of(braid_fabric_wait_count(get(), immediate, count, us(limit), &arrived),
                     arrived);
  }
  /// Ends its use. `missing` more may come late, and count for nobody: its slot rests until then.
  Status release(Immediate immediate, uint64_t missing = 0) {
    return status_of(braid_fabric_release_immediate(get(), immediate, missing));
  }
  /// Says that the missing arrivals of a released immediate will never come: its writer is fenced
  /// or gone.
  Status forgive(Immediate immediate) {
    return status_of(braid_fabric_forgive_immediate(get(), immediate));
  }
  /// How often the immediate of such a write arrives. Both sides compute it.
  static uint64_t immediates_of_write(uint64_t size_bytes) {
    return braid_fabric_immediates_of_write(size_bytes);
  }
  static uint64_t immediates_of_pages(uint64_t page_bytes, uint64_t page_count) {
    return braid_fabric_immediates_of_pages(page_bytes, page_count);
  }

  /// At most BRAID_FABRIC_MESSAGE_BYTES, which are copied. An error, and nothing sent, if the peer
  /// has no buffer for it now. Messages come in any order. Section 3.3, submit_send.
  Status send(Peer peer, const ByteList& message) {
    return status_of(braid_fabric_send(get(), number(peer), message.data(), message.size()));
  }
  /// The next message of any peer; none by the limit: nullopt.
  Result<std::optional<Message>> receive(Limit limit) {
    ByteList bytes(BRAID_FABRIC_MESSAGE_BYTES);
    size_t size_bytes = 0;
    uint64_t from = 0;
    if (const Status failed =
            status_of(braid_fabric_receive(get(), us(limit), bytes.data(), &size_bytes, &from));
        !failed.ok())
      return failed;
    if (from == 0) return std::optional<Message>();
    bytes.resize(size_bytes);
    return std::optional<Message>(Message{Peer{from}, std::move(bytes)});
  }

  // Events. Callbacks run one after the other on a thread of the engine. A callback may call
  // everything here, and may destroy the Fabric, but may not throw. A callback whose event cannot
  // come any more is destroyed without a call. Without a callback an Event is queued for
  // take_events.

  /// Event when the ticket has ended; if it is quarantined, when it has failed.
  Status on_end(Ticket ticket, std::function<void(TicketState)> callback = nullptr) {
    const auto ask_it = [&](braid_fabric_callback call, void* user) {
      return braid_fabric_on_ticket(get(), number(ticket), call, user);
    };
    return ask(ask_it, callback != nullptr,
               [callback](const Event& event) { callback(static_cast<TicketState>(event.value)); });
  }
  /// Event when the immediate has arrived `count` times; the callback gets the number of arrivals.
  Status on_count(Immediate immediate, uint64_t count,
                  std::function<void(uint64_t)> callback = nullptr) {
    const auto ask_it = [&](braid_fabric_callback call, void* user) {
      return braid_fabric_on_count(get(), immediate, count, call, user);
    };
    return ask(ask_it, callback != nullptr,
               [callback](const Event& event) { callback(event.value); });
  }
  /// Would let a CUDA stream wait for a count. Refused where a CPU polls for immediates, as on
  /// every wire of this version: ask for a callback, and enqueue the work there.
  Status stream_wait_count(Immediate immediate, uint64_t count, void* stream) {
    return status_of(braid_fabric_stream_wait_count(get(), immediate, count, stream));
  }
  /// Events when peers connect or are lost, until this is called again.
  Status on_peers(std::function<void(Peer, PeerChange)> callback = nullptr) {
    const auto ask_it = [&](braid_fabric_callback call, void* user) {
      return braid_fabric_on_peers(get(), call, user);
    };
    return ask(ask_it, callback != nullptr, [callback](const Event& event) {
      callback(Peer{event.id}, static_cast<PeerChange>(event.value));
    });
  }
  /// Events when messages come, until this is called again. Receive until no message is left.
  Status on_messages(std::function<void()> callback = nullptr) {
    const auto ask_it = [&](braid_fabric_callback call, void* user) {
      return braid_fabric_on_messages(get(), call, user);
    };
    return ask(ask_it, callback != nullptr, [callback](const Event&) { callback(); });
  }
  /// Readable while events are queued. The Fabric owns it.
  Result<int> event_descriptor() {
    int descriptor = -1;
    return result_of(braid_fabric_event_descriptor(get(), &descriptor), descriptor);
  }
  /// Takes at most `count_max` events, oldest first.
  Result<std::vector<Event>> take_events(size_t count_max = 64) {
    std::vector<Event> events(count_max);
    size_t count = 0;
    if (const Status failed =
            status_of(braid_fabric_take_events(get(), events.data(), count_max, &count));
        !failed.ok())
      return failed;
    events.resize(count);
    return events;
  }

  // Rails and statistics.

  enum class RailState {
    kUp = BRAID_FABRIC_RAIL_UP,
    kSuspect = BRAID_FABRIC_RAIL_SUSPECT,
    kDown = BRAID_FABRIC_RAIL_DOWN,
    kRetired = BRAID_FABRIC_RAIL_RETIRED
  };
  struct Route {
    Peer peer;
    size_t rail;
    RailState state;
    uint64_t writes;
    uint64_t bytes;
    uint64_t failures;
    uint64_t under_way_bytes;
    uint64_t bytes_per_s;
  };
  enum class Form {
    kText = BRAID_FABRIC_TEXT,
    kJson = BRAID_FABRIC_JSON,
    kPrometheus = BRAID_FABRIC_PROMETHEUS
  };
  using EngineStatistics = braid_fabric_statistics;

  /// Takes a rail out of use, as before a NIC is serviced: an error for the last. Peers hear of it.
  Status retire_rail(size_t rail) { return status_of(braid_fabric_retire_rail(get(), rail)); }
  /// Back into use, once a probe has succeeded.
  Status restore_rail(size_t rail) { return status_of(braid_fabric_restore_rail(get(), rail)); }
  /// What the engine has counted since it was opened.
  Result<EngineStatistics> statistics() {
    EngineStatistics statistics{};
    statistics.struct_bytes = sizeof statistics;
    return result_of(braid_fabric_get_statistics(get(), &statistics), statistics);
  }
  /// A row for each peer and rail.
  Result<std::vector<Route>> routes() {
    std::vector<braid_fabric_route> rows;
    size_t count = 0;
    do {
      rows.resize(count);
      if (const Status failed =
              status_of(braid_fabric_get_routes(get(), rows.data(), rows.size(), &count));
          !failed.ok())
        return failed;
    } while (count > rows.size());
    rows.resize(count);
    std::vector<Route> routes;
    for (const braid_fabric_route& row : rows)
      routes.push_back({Peer{row.peer}, row.rail, static_cast<RailState>(row.state), row.writes,
                        row.bytes, row.failures, row.under_way_bytes, row.bytes_per_s});
    return routes;
  }
  /// All of it as text, as a line of JSON, or in Prometheus's format (docs/fabric.md).
  Result<std::string> report(Form form) {
    return text([&](char* buffer, size_t size_bytes, size_t* needed_bytes) {
      return braid_fabric_report(get(), static_cast<int>(form), buffer, size_bytes, needed_bytes);
    });
  }

  /// For calling the C interface with the same engine; null after it was moved from.
  braid_fabric* get() const { return fabric_.get(); }

 private:
  struct Close {
    void operator()(braid_fabric* fabric) const { braid_fabric_close(fabric); }
  };

  explicit Fabric(braid_fabric* fabric) : fabric_(fabric) {}

  using Handler = std::function<void(const Event&)>;

  /// A handler that is to be called lives until the last event of its request.
  template <typename Ask>
  static Status ask(const Ask& ask, bool is_called, Handler handler) {
    if (!is_called) return status_of(ask(nullptr, nullptr));
    auto kept = std::make_unique<Handler>(std::move(handler));
    const Status asked = status_of(ask(&Fabric::run_handler, kept.get()));
    if (asked.ok()) (void)kept.release();  // owner: the request
    return asked;
  }
  static void run_handler(const Event* event) noexcept {
    auto* handler = static_cast<Handler*>(event->user);
    const bool lasts =
        event->kind == BRAID_FABRIC_EVENT_PEER || event->kind == BRAID_FABRIC_EVENT_MESSAGE;
    const std::unique_ptr<Handler> last(!lasts || event->is_cancelled ? handler : nullptr);
    if (!event->is_cancelled) (*handler)(*event);
  }

  std::unique_ptr<braid_fabric, Close> fabric_;
};

}  // namespace braid
