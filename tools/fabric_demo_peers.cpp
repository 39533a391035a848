// `braid fabric demo`: the processes that write, and that are written to.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "fabric/engine.h"
#include "fabric/ofi/domain.h"
#include "tools/fabric_demo_parts.h"
#include "tools/rail_sockets.h"

namespace braid::tools {
namespace {

using fabric::Engine;
using fabric::Fence;
using fabric::TicketState;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kConnectNs = 20 * kSecondNs;
constexpr uint64_t kWriteNs = 1 * kSecondNs;
constexpr uint64_t kArrivalNs = 2 * kSecondNs;
constexpr uint64_t kSampleNs = kSecondNs / 20;
constexpr size_t kSlots = 2;    // orders of one owner at a time
constexpr size_t kPieces = 16;  // of its memory: those that are quarantined are replaced
constexpr auto kQuiet = std::chrono::microseconds(50);

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

struct Order {
  uint64_t number = 0;
  uint32_t immediate = 0;
};

std::unique_ptr<Engine> open_engine(const std::string& who) {
  std::vector<std::unique_ptr<fabric::Domain>> rails;
  for (size_t rail = 0; rail < kDemoRails; ++rail) {
    auto domain = fabric::ofi::open_domain(fabric::ofi::tcp_quirks(), demo_address(rail));
    if (!domain.ok()) {
      fmt::print(stderr, "braid: {}: {}\n", who, domain.status().message());
      return nullptr;
    }
    rails.push_back(std::move(domain).value());
  }
  fabric::EngineOptions options;
  options.engine = static_cast<uint64_t>(getpid()) << 32 | (now_ns() & 0xffffffff);
  return Engine::open(std::move(rails), options).value();
}

/// What both sides do besides their own.
class Process {
 public:
  Process(DemoShared& shared, const std::string& who)
      : shared_(shared), engine_(open_engine(who)) {}

  bool is_open() const { return engine_ != nullptr; }

 protected:
  void step() {
    if (shared_.kills_rail && !has_killed_) {
      has_killed_ = true;
      kill_rail(demo_address(kKilledRail));
    }
    if (!engine_->step(now_ns())) std::this_thread::sleep_for(kQuiet);
  }

  DemoShared& shared_;
  std::unique_ptr<Engine> engine_;

 private:
  bool has_killed_ = false;
};

// ---- The side that is written to

class Owner final : Process {
 public:
  Owner(DemoShared& shared, size_t index, std::span<const std::byte> base)
      : Process(shared, "an owner"),
        own_(shared.owners[index]),
        base_(base),
        memory_(kPieces * kDemoWriteBytes),
        next_number_(1 + index) {
    for (Slot& slot : slots_) slot.piece = next_piece_++;
  }

  int run() {
    if (!is_open()) return 1;
    const auto address = encode(engine_->address());
    std::memcpy(own_.address, address.data(), address.size());
    own_.address_bytes = address.size();
    region_ = engine_->add_region(memory_).value();
    std::optional<uint64_t> writer;
    while (!writer && !shared_.writer_ended) {
      step();
      writer = engine_->accept();
    }
    for (size_t slot = 0; writer && !shared_.writer_ended; slot = (slot + 1) % kSlots) {
      step();
      while (const auto failed = engine_->receive()) hear_of_failure(*failed);
      look_after(slots_[slot], *writer);
    }
    return 0;
  }

 private:
  struct Slot {
    size_t piece = 0;
    Order order;
    std::optional<uint64_t> grant;
    std::vector<std::byte> message;  // to be sent
    bool is_sent = false;
    bool has_ended = false;  // it has arrived, or was given up
    uint64_t deadline_ns = 0;
    uint64_t before = 0;  // the number of the write that is in the memory; 0: zeros
  };

  std::span<std::byte> memory(const Slot& slot) {
    return std::span(memory_).subspan(slot.piece * kDemoWriteBytes, kDemoWriteBytes);
  }

  void look_after(Slot& slot, uint64_t writer) {
    if (!slot.grant) return begin(slot, writer);
    if (!slot.is_sent) slot.is_sent = engine_->send(writer, slot.message).ok();
    if (slot.has_ended) return end(slot);
    const uint64_t expected = fabric::immediates_of_write(kDemoWriteBytes);
    const uint64_t count = engine_->counters().count(slot.order.immediate);
    if (count == expected) {
      verify(slot);
      (void)engine_->counters().release(slot.order.immediate);
      revoke(slot);
    } else if (now_ns() > slot.deadline_ns) {
      ++own_.given_up;
      (void)engine_->counters().release(slot.order.immediate, expected - count);
      revoke(slot);
      slot.order.immediate = 0;
    }
  }

  void begin(Slot& slot, uint64_t writer) {
    if (slot.piece == kPieces) return;  // all memory is quarantined
    const auto granted =
        engine_->grant(region_, writer, slot.piece * kDemoWriteBytes, kDemoWriteBytes);
    if (!granted.ok()) return;  // the writer is gone
    slot.order = {next_number_, engine_->counters().acquire().value()};
    next_number_ += kDemoOwners;
    slot.grant = granted.value().grant;
    slot.message.resize(sizeof slot.order);
    std::memcpy(slot.message.data(), &slot.order, sizeof slot.order);
    const auto descriptor = encode(granted.value().descriptor);
    slot.message.insert(slot.message.end(), descriptor.begin(), descriptor.end());
    slot.is_sent = slot.has_ended = false;
    slot.deadline_ns = now_ns() + kArrivalNs;
  }

  void verify(Slot& slot) {
    const auto expected = demo_bytes(base_, slot.order.number);
    if (std::memcmp(memory(slot).data(), expected.data(), expected.size()) == 0)
      ++own_.verified;
    else
      for (size_t i = 0; i < expected.size(); ++i) own_.wrong += memory(slot)[i] != expected[i];
    slot.before = slot.order.number;
  }

  void revoke(Slot& slot) {
    slot.has_ended = true;
    (void)engine_->revoke(*slot.grant, now_ns() + kWriteNs);
  }

  /// The memory is ours again once it is fenced. A write that failed may have left some of its
  /// bytes, and no others.
  void end(Slot& slot) {
    const Fence fence = engine_->fence(*slot.grant).value();
    if (fence == Fence::kQuarantined) return replace(slot);
    if (fence != Fence::kFenced) return;
    (void)engine_->forget_grant(*slot.grant);
    slot.grant.reset();
    if (slot.before == slot.order.number) return;
    const auto written = demo_bytes(base_, slot.order.number);
    const std::span<std::byte> now = memory(slot);
    for (size_t i = 0; i < now.size(); ++i) {
      const std::byte old = slot.before == 0 ? std::byte{0} : demo_bytes(base_, slot.before)[i];
      own_.wrong += now[i] != written[i] && now[i] != old;
    }
    std::fill(now.begin(), now.end(), std::byte{0});
    slot.before = 0;
  }

  /// A late write may still land in the memory: it stays as it is.
  void replace(Slot& slot) {
    own_.quarantined += kDemoWriteBytes;
    slot.grant.reset();
    slot.piece = next_piece_ < kPieces ? next_piece_++ : kPieces;
    slot.before = 0;
  }

  void hear_of_failure(const fabric::Received& message) {
    uint64_t number = 0;
    std::memcpy(&number, message.payload.data(), sizeof number);
    for (Slot& slot : slots_)
      if (slot.grant && slot.order.number == number) slot.deadline_ns = 0;
  }

  DemoShared::Owner& own_;
  std::span<const std::byte> base_;
  std::vector<std::byte> memory_;
  uint64_t region_ = 0;
  size_t next_piece_ = 0;
  uint64_t next_number_;
  std::array<Slot, kSlots> slots_;
};

// ---- The side that writes

class Writer final : Process {
 public:
  Writer(DemoShared& shared, std::span<std::byte> base, bool corrupts)
      : Process(shared, "the writer"), base_(base), corrupts_(corrupts) {}

  int run() {
    if (!is_open()) return 1;
    region_ = engine_->add_region(base_).value();
    for (DemoShared::Owner& owner : shared_.owners)
      if (!connect(owner)) return 1;
    begun_ns_ = now_ns();
    while (!shared_.is_ending) {
      step();
      while (const auto order = engine_->receive()) begin(*order);
      look_after_writes();
      take_sample();
    }
    return 0;
  }

 private:
  struct Job {
    uint64_t ticket;
    uint64_t number;
    uint64_t owner;
    bool has_failed = false;
  };

  bool connect(DemoShared::Owner& owner) {
    while (owner.address_bytes == 0 && !shared_.is_ending) step();
    const auto address = fabric::decode_address({owner.address, owner.address_bytes});
    if (!address.ok()) return false;
    const uint64_t peer = engine_->connect(address.value(), now_ns() + kConnectNs).value();
    while (engine_->peer_state(peer).value() == fabric::PeerState::kConnecting) step();
    owners_.push_back(peer);
    return engine_->peer_state(peer).value() == fabric::PeerState::kConnected;
  }

  void begin(const fabric::Received& message) {
    Order order;
    std::memcpy(&order, message.payload.data(), sizeof order);
    const auto descriptor =
        fabric::decode_descriptor(fabric::Bytes(message.payload).subspan(sizeof order));
    const auto target = engine_->open_target(descriptor.value());
    if (!target.ok()) return;  // revoked in between
    const bool is_wrong = corrupts_ && order.number == 7;
    const auto bytes = demo_bytes(base_, order.number + is_wrong);
    const uint64_t offset = static_cast<uint64_t>(bytes.data() - base_.data());
    const auto ticket = engine_->write(region_, target.value(), {offset, 0, bytes.size()},
                                       order.immediate, now_ns() + kWriteNs);
    if (ticket.ok()) jobs_.push_back({ticket.value(), order.number, message.peer});
  }

  /// An owner hears of a failure, so that it need not wait for its limit.
  void look_after_writes() {
    std::erase_if(jobs_, [&](Job& job) {
      const TicketState state = engine_->state(job.ticket).value();
      if (state == TicketState::kPending || state == TicketState::kQuarantined) return false;
      if (state == TicketState::kFailed) {
        std::array<std::byte, sizeof job.number> message;
        std::memcpy(message.data(), &job.number, message.size());
        if (!engine_->send(job.owner, message).ok()) return false;  // no credit now
      }
      engine_->forget(job.ticket);
      return true;
    });
  }

  void take_sample() {
    const uint64_t now = now_ns();
    const size_t count = shared_.sample_count;
    if (now < begun_ns_ + count * kSampleNs || count == kDemoSamplesMax) return;
    DemoSample& sample = shared_.samples[count];
    sample.seconds = static_cast<double>(now - begun_ns_) / kSecondNs;
    for (const fabric::RouteStatistics& route : engine_->routes()) {
      const size_t owner = route.peer == owners_[0] ? 0 : 1;
      sample.bytes[owner][route.rail] = route.bytes;
      sample.states[owner][route.rail] = static_cast<uint8_t>(route.state);
      sample.failures[route.rail] += route.failures;
    }
    shared_.sample_count = count + 1;
  }

  std::span<std::byte> base_;
  bool corrupts_;
  uint64_t region_ = 0;
  uint64_t begun_ns_ = 0;
  std::vector<uint64_t> owners_;
  std::vector<Job> jobs_;
};

}  // namespace

std::span<const std::byte> demo_bytes(std::span<const std::byte> base, uint64_t number) {
  constexpr uint64_t kPrime = 7919;
  return base.subspan(number * kPrime % (kDemoBaseBytes - kDemoWriteBytes), kDemoWriteBytes);
}

int run_demo_owner(DemoShared& shared, size_t index, std::span<std::byte> base) {
  return Owner(shared, index, base).run();
}

int run_demo_writer(DemoShared& shared, std::span<std::byte> base, bool corrupts) {
  return Writer(shared, base, corrupts).run();
}

}  // namespace braid::tools
