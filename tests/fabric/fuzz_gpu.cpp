// Altered bytes to everything that staged and local domains read of each other, and to the messages
// of examples/kv_push. The domains have to go on: now and then an honest peer writes.
//
//   fabric_gpu_fuzz [--runs N] [--seed S]      S, S + 1, ...: each is a run's seed; one alone:
//   --runs 1
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "examples/kv_push/messages.h"
#include "fabric/fuzz_alter.h"
#include "fabric/local/domain.h"
#include "fabric/local/parts.h"
#include "fabric/staged/domain.h"
#include "fabric/staged/records.h"
#include "fabric/staged/sealing.h"
#include "fabric/wires.h"

namespace {

using namespace braid::fabric;
using sim::Random;
using test::alter;
using test::Input;

constexpr size_t kBytes = 4096;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

const test::WireKind& kind_named(const std::vector<test::WireKind>& kinds, const char* name) {
  for (const test::WireKind& kind : kinds)
    if (kind.name == name) return kind;
  fail(name);
}

Input input_of(Bytes bytes) {
  Input input;
  for (const std::byte byte : bytes) input.push_back(static_cast<uint8_t>(byte));
  return input;
}
Bytes bytes_of(const Input& input) {
  return {reinterpret_cast<const std::byte*>(input.data()), input.size()};
}

/// Somebody honest, who writes into memory of an owner's.
struct Honest {
  Domain& writer;
  Domain& owner;
  test::Memory& target;
  RemoteRange range;
  std::vector<std::byte> source = test::some_bytes(kBytes, 5);
  uint32_t from = writer.add_region(source, Access::kLocal).value();
  uint32_t peer = writer.connect(owner.address()).value();
  uint64_t context = 0;

  /// The liar may have spoken for it: then it is told so, and writes again. `look`: the owner's.
  void check(const std::function<void()>& look_at_owner) {
    for (int attempt = 0; attempt < 3; ++attempt)
      if (write(look_at_owner)) return;
    fail("an honest peer's write fails");
  }

 private:
  bool write(const std::function<void()>& look_at_owner) {
    const auto bytes = test::some_bytes(kBytes, static_cast<uint32_t>(++context));
    std::copy(bytes.begin(), bytes.end(), source.begin());
    Write write;
    write.peer = peer;
    write.region = from;
    write.source = source;
    write.target_address = range.base;
    write.target_key = range.key;
    write.context = context;
    bool is_posted = false;
    for (int look = 0; look < 2'000'000; ++look) {
      is_posted = is_posted || writer.post_write(write);
      Completion completion;
      if (writer.poll({&completion, 1}) > 0 && completion.context == context) {
        if (completion.ok && target.get() != source) fail("an honest peer's bytes are wrong");
        return completion.ok;
      }
      look_at_owner();
    }
    fail("an honest peer's write does not end");
  }
};

// ---- Staged ----

class StagedStage {
 public:
  StagedStage() {
    corpus_.push_back(
        said({{.kind = staged::Kind::kGreeting, .number = 7, .write = 8}}, liar_->address()));
    corpus_.push_back(
        said({{.kind = staged::Kind::kRing, .session = 7, .number = 9}}, liar_->address()));
    using staged::Kind;
    std::vector<staged::Record> records;
    for (const Kind kind : {Kind::kPiece, Kind::kDone, Kind::kForget, Kind::kGoodbye}) {
      records.push_back({.kind = kind, .session = 9, .number = 1, .write = 2, .size_bytes = 100});
      records.back().total_bytes = 200;
      records.back().address = range_.base;
      records.back().key = range_.key;
      corpus_.push_back(said({records.back()}));
    }
    corpus_.push_back(said(records));
    for (uint64_t buffer = 0; buffer < kBuffers; ++buffer) receive(buffer);
    const Bytes place = liar_->address();
    corpus_.push_back(input_of(staged::encode_address(place, place)));
  }

  void run(Random& random) {
    Input input = corpus_[random.below(corpus_.size())];
    for (uint64_t changes = random.between(0, 4); changes > 0; --changes)
      alter(input, corpus_, random);
    const Bytes bytes = bytes_of(input);
    if (staged::version_of(bytes)) (void)staged::read_message(bytes);
    if (bytes.size() <= kAddressBytesMax)
      if (const auto peer = owner_->connect(bytes); peer.ok()) owner_->disconnect(peer.value());
    send(bytes.first(std::min(bytes.size(), memory_.size() - staged::kTrailerBytes)),
         random.below(8) != 0);
    if (++inputs_ % 500 == 0) honest_.check([&] { look_at_owner(); });
  }

 private:
  static Input said(const std::vector<staged::Record>& records, Bytes address = {}) {
    std::vector<std::byte> message;
    staged::append_mark(message);
    for (const staged::Record& record : records) staged::append(message, record);
    message.insert(message.end(), address.begin(), address.end());
    return input_of(message);
  }
  /// Takes what is no message of a staged domain, as an engine does.
  void look_at_owner() {
    Completion completions[kBuffers];
    for (size_t i = 0, count = owner_->poll(completions); i < count; ++i)
      if (completions[i].event == Event::kReceived) receive(completions[i].context);
    wire_->pass_time();
    gpus_->pass_time();
  }
  void receive(uint64_t buffer) {
    (void)owner_->post_receive(0, MutableBytes(received_).subspan(buffer * kBytes, kBytes), buffer);
  }
  /// Behind a right seal its bytes are read further than without.
  void send(Bytes altered, bool is_sealed) {
    std::vector<std::byte> bytes(altered.begin(), altered.end());
    if (is_sealed) sealing_.seal(bytes, place_of_owner_, 1, ++sequence_);
    std::copy(bytes.begin(), bytes.end(), memory_.begin());
    bool is_posted = false, has_ended = false;
    for (int look = 0; look < 200 && !has_ended; ++look) {
      is_posted =
          is_posted || liar_->post_send(to_owner_, region_, Bytes(memory_).first(bytes.size()), 1);
      Completion completion;
      while (liar_->poll({&completion, 1}) > 0) has_ended = has_ended || is_posted;
      look_at_owner();
    }
  }

  static constexpr size_t kBuffers = 8;

  std::unique_ptr<test::Wire> gpus_ =
      kind_named(test::wire_kinds(), "simulated_host_to_gpu").make();
  std::unique_ptr<test::Wire> wire_ = kind_named(test::host_wire_kinds(), "simulated").make();
  std::unique_ptr<test::Memory> target_ = gpus_->memory(1, kBytes);
  std::unique_ptr<Domain> owner_ = staged::stage(wire_->open(1)).value();
  std::unique_ptr<Domain> writer_ = staged::stage(wire_->open(0)).value();
  std::unique_ptr<Domain> liar_ = wire_->open(0);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> received_ = std::vector<std::byte>(kBuffers * kBytes);
  uint32_t region_ = liar_->add_region(memory_, Access::kLocal).value();
  const std::vector<std::byte> place_of_owner_ =
      staged::read_address(owner_->address()).value().place;
  uint32_t to_owner_ = liar_->connect(place_of_owner_).value();
  staged::Sealing sealing_{{}, liar_->address()};
  uint64_t sequence_ = 0;
  RemoteRange range_ =
      owner_->remote_range(owner_->add_region(target_->bytes(), Access::kRemoteWrite).value());
  uint32_t to_writer_ = owner_->connect(writer_->address()).value();
  Honest honest_{*writer_, *owner_, *target_, range_};
  std::vector<Input> corpus_;
  uint64_t inputs_ = 0;
};

// ---- Local ----

class HostTarget final : public test::Memory {
 public:
  MutableBytes bytes() override { return bytes_; }
  std::vector<std::byte> get() const override { return bytes_; }
  void put(const std::vector<std::byte>& bytes) override { bytes_ = bytes; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
};

/// A process of this user beside a local domain, on either side of a connection.
class LocalStage {
 public:
  LocalStage() {
    const uint64_t hello = local::hello_of(local::kVersions.newest), key = range_.key;
    hellos_.push_back(input_of(local::bytes_of(hello)));
    local::Offer offer;
    offer.key = kAsked;
    offer.kind = local::Offer::kMapping;
    offer.size_bytes = offer.shared_bytes = kBytes;
    offers_.push_back(input_of(local::bytes_of(offer)));
    const local::HostWrite write{1, 0, key, 1, 1, 3, 1};
    records_.push_back(record(local::kBytes, input_of(local::bytes_of(write))));
    records_.push_back(record(local::kLanded, input_of(local::bytes_of(local::Landed{3, 1}))));
    for (const local::Kind kind :
         {local::kMessage, local::kAsk, local::kLetGo, local::kEnded, local::kRemoved})
      records_.push_back(
          record(kind, input_of(local::bytes_of(local::Numbered{kind == local::kAsk ? key : 1}))));
  }

  void run(Random& random) {
    if (random.chance(0.5))
      lie_to_owner(random);
    else
      lie_to_writer(random);
    if (++inputs_ % 500 == 0) honest_.check([&] { look(*owner_); });
  }

 private:
  static constexpr uint64_t kAsked = 77;  // a key

  static Input record(uint32_t kind, const Input& body) {
    const uint32_t header[] = {kind, static_cast<uint32_t>(body.size())};
    Input bytes = input_of({reinterpret_cast<const std::byte*>(header), sizeof header});
    bytes.insert(bytes.end(), body.begin(), body.end());
    bytes.resize((bytes.size() + 7) / 8 * 8);
    return bytes;
  }
  static Input altered(const std::vector<Input>& all, Random& random) {
    Input input = all[random.below(all.size())];
    for (uint64_t changes = random.between(0, 4); changes > 0; --changes) alter(input, all, random);
    return input;
  }
  /// As it is, whatever the header says; sometimes without all of it.
  void put(local::Queue& queue, Random& random) {
    const Input input = altered(records_, random);
    const uint64_t tail = queue.tail.load();
    for (size_t i = 0; i < input.size(); ++i)
      queue.bytes[(tail + i) % local::kQueueBytes] = std::byte{input[i]};
    const bool lies = random.chance(0.1);
    queue.tail.store(tail + (lies ? random.below(2 * local::kQueueBytes) : input.size()));
  }
  static void look(Domain& domain) {
    Completion completions[16];
    for (int i = 0; i < 3; ++i) (void)domain.poll(completions);
  }
  static std::string name_of(Bytes address) {
    return {reinterpret_cast<const char*>(address.data()), address.size()};
  }

  void lie_to_owner(Random& random) {
    auto socket = local::Socket::connect(name_of(owner_->address()));
    auto created = local::CreatedSegment::create();
    if (!socket.ok() || !socket.value() || !created.ok())
      fail("no socket or memory: descriptors are leaked");
    const Input hello = random.chance(0.8) ? hellos_[0] : altered(hellos_, random);
    const bool has_file = random.chance(0.95);
    (void)socket.value()->send(bytes_of(hello).first(std::min<size_t>(hello.size(), 512)),
                               has_file ? created.value().file.get() : -1);
    usleep(60);  // domains look at their sockets now and then
    look(*owner_);
    for (uint64_t records = random.between(1, 6); records > 0; --records) {
      put(created.value().segment.shared().to_owner, random);
      look(*owner_);
    }
  }

  void lie_to_writer(Random& random) {
    const std::string name = "braid-fuzz-" + std::to_string(getpid());
    auto listener = local::Socket::listen(name);
    if (!listener.ok()) fail("no socket: descriptors are leaked");
    const uint32_t peer =
        victim_->connect({reinterpret_cast<const std::byte*>(name.data()), name.size()}).value();
    auto socket = listener.value().accept();
    const auto hello = socket ? socket->receive() : std::nullopt;
    if (!hello) fail("the victim has not said hello");
    auto segment = local::Segment::open(hello->file);
    if (!segment.ok()) fail("the victim has sent no memory");
    Write write;
    write.peer = peer;
    write.region = from_;
    write.source = source_;
    write.target_address = random.chance(0.5) ? local::kGpuBase : 0;
    write.target_key = kAsked;
    (void)victim_->post_write(write);
    for (uint64_t words = random.between(1, 6); words > 0; --words) {
      if (random.chance(0.5)) {
        const Input offer = altered(offers_, random);
        (void)socket->send(bytes_of(offer).first(std::min<size_t>(offer.size(), 512)));
        usleep(60);
      } else {
        put(segment.value().shared().to_writer, random);
      }
      look(*victim_);
    }
    victim_->disconnect(peer);
    look(*victim_);
  }

  HostTarget target_;
  std::unique_ptr<Domain> owner_ = local::open_domain().value();
  std::unique_ptr<Domain> writer_ = local::open_domain().value();
  std::unique_ptr<Domain> victim_ = local::open_domain().value();
  std::vector<std::byte> source_ = test::some_bytes(100, 1);
  uint32_t from_ = victim_->add_region(source_, Access::kLocal).value();
  RemoteRange range_ =
      owner_->remote_range(owner_->add_region(target_.bytes(), Access::kRemoteWrite).value());
  Honest honest_{*writer_, *owner_, target_, range_};
  std::vector<Input> hellos_, offers_, records_;
  uint64_t inputs_ = 0;
};

// ---- kv_push ----

class KvPushStage {
 public:
  KvPushStage() {
    const kv_push::Message messages[] = {
        kv_push::Join{"A"},
        kv_push::Dispatch{1, 2, 3, 4, {5, 6}, kv_push::Bytes(9), kv_push::Bytes(7)},
        kv_push::Cancel{8}, kv_push::CancelConfirmed{9}, kv_push::Leave{}};
    for (const kv_push::Message& message : messages)
      corpus_.push_back(input_of(kv_push::to_bytes(message)));
  }
  void run(Random& random) const {
    Input input = corpus_[random.below(corpus_.size())];
    for (uint64_t changes = random.between(0, 4); changes > 0; --changes)
      alter(input, corpus_, random);
    const Bytes bytes = bytes_of(input);
    const kv_push::Bytes said{bytes.begin(), bytes.end()};
    const auto message = kv_push::to_message(said);
    if (message && kv_push::to_bytes(*message) != said) fail("a message is read as another one");
  }

 private:
  std::vector<Input> corpus_;
};

}  // namespace

int main(int count, char** words) {
  uint64_t runs = 20'000, seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(words[i], "--runs") == 0) runs = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seed") == 0) seed = std::strtoull(words[i + 1], nullptr, 10);
  }
  std::printf("seeds %zu to %zu\n", size_t{seed}, size_t{seed + runs - 1});
  std::fflush(stdout);
  StagedStage staged;
  LocalStage local;
  const KvPushStage kv_push;
  size_t settled_bytes = 0;
  for (uint64_t run = 0; run < runs; ++run) {
    Random random(seed + run);
    staged.run(random);
    local.run(random);
    for (int i = 0; i < 10; ++i) kv_push.run(random);
    if (run == runs / 2) settled_bytes = mallinfo2().uordblks;
  }
  constexpr size_t kGrowthBytesMax = 4 << 20;
  if (runs > 1000 && mallinfo2().uordblks > settled_bytes + kGrowthBytesMax) fail("memory grows");
  std::printf("%zu inputs\n", size_t{runs});
  return 0;
}
