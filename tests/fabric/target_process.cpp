// The process of a wire's target: it holds domains and memory, and does what it is asked to
// (other_process.h), one call at a time.
//
//   fabric_target SOCKET     the number of the Unix socket over which it is asked
#include <cstdio>
#include <cstdlib>
#include <map>

#include "fabric/other_process.h"
#include "fabric/places.h"
#include "fabric/process_rail.h"

namespace braid::fabric::test {
namespace {

constexpr int kSide = 1;

void put_traits(Parcel& parcel, const Traits& traits) {
  parcel.put_text(traits.provider)
      .put(traits.removal_fences)
      .put(traits.closing_fences)
      .put(traits.door_keys)
      .put(traits.postings_max)
      .put(traits.posted_bytes_max)
      .put(traits.segments_max)
      .put(traits.batched_writes_max)
      .put(traits.endpoints);
}

MutableBytes take_memory(Parcel& parcel) {
  auto* const first = parcel.take<std::byte*>();
  return {first, parcel.take<size_t>()};
}

class TargetProcess {
 public:
  explicit TargetProcess(int socket) : socket_(socket) {}
  /// Until the other process has closed the socket.
  void serve() {
    for (;;) {
      Parcel asked = receive_parcel(socket_);
      const auto call = asked.take<Call>();
      Parcel question(asked.take_bytes());
      answer(call, question);
    }
  }

 private:
  void answer(Call call, Parcel& question) {
    Parcel answer = Parcel().put(true);
    try {
      if (call == Call::kOpen || call >= Call::kAllocate)
        do_own(call, question, answer);
      else
        ask_domain(call, question, answer);
    } catch (const std::exception& error) {
      answer = Parcel().put(false).put_text(error.what());
    }
    send_parcel(socket_, answer);
    if (to_send_ >= 0) send_file(socket_, std::exchange(to_send_, -1));
  }

  void do_own(Call call, Parcel& question, Parcel& answer) {
    if (call == Call::kOpen) return open(question.take_text(), answer);
    if (call == Call::kAllocate) return allocate(question, answer);
    if (call == Call::kFreeAll) return memories_.clear();
    Memory& memory = *memories_.at(question.take<uint32_t>());
    if (call == Call::kGet) answer.put_bytes(memory.get());
    if (call == Call::kFirst) answer.put(memory.first());
    if (call == Call::kPut) memory.put(question.take_bytes());
  }
  void open(const std::string& provider, Parcel& answer) {
    auto opened = open_process_rail(provider);
    if (!opened.ok()) throw std::runtime_error(opened.status().message());
    const Domain& domain = *(domains_[++numbers_] = std::move(opened).value());
    answer.put(numbers_);
    put_traits(answer, domain.traits());
    answer.put_bytes(domain.address());
  }
  void allocate(Parcel& question, Parcel& answer) {
    const auto place = question.take<Place>();
    memories_[++numbers_] = memory_at(place, kSide, question.take<size_t>());
    answer.put(numbers_).put(memories_[numbers_]->bytes().data());
  }

  void ask_domain(Call call, Parcel& asked, Parcel& answer) {
    const auto number = asked.take<uint32_t>();
    if (call == Call::kClose) return static_cast<void>(domains_.erase(number));
    Domain& domain = *domains_.at(number);
    Parcel question(asked.take_bytes());
    switch (call) {
      case Call::kPoll: return poll(domain, question.take<size_t>(), answer);
      case Call::kHasCopied: answer.put(domain.has_copied()); break;
      case Call::kArm: answer.put(domain.arm()); break;
      case Call::kWaitDescriptor:
        to_send_ = domain.wait_descriptor();
        answer.put(to_send_ >= 0);
        break;
      case Call::kAddRegion: return add_region(domain, question, answer);
      default: ask_region(domain, call, question, answer);
    }
  }
  static void poll(Domain& domain, size_t size, Parcel& answer) {
    std::vector<Completion> completions(size);
    const size_t count = domain.poll(completions);
    answer.put(count);
    for (size_t i = 0; i < count; ++i) answer.put(completions[i]);
  }
  static void add_region(Domain& domain, Parcel& question, Parcel& answer) {
    const MutableBytes memory = take_memory(question);
    const Result<uint32_t> region = domain.add_region(memory, question.take<Access>());
    answer.put(region.ok());
    region.ok() ? answer.put(region.value()) : answer.put_text(region.status().message());
  }
  static void ask_region(Domain& domain, Call call, Parcel& question, Parcel& answer) {
    const auto region = question.take<uint32_t>();
    if (call == Call::kRemoteRange) answer.put(domain.remote_range(region));
    if (call == Call::kRemoveRegion) domain.remove_region(region);
    if (call == Call::kRemovalFences) answer.put(domain.removal_fences(region));
    if (call == Call::kDrain) answer.put(domain.drain(region));
    if (call != Call::kPostReceive) return;
    const MutableBytes buffer = take_memory(question);
    answer.put(domain.post_receive(region, buffer, question.take<uint64_t>()));
  }

  const int socket_;
  uint32_t numbers_ = 0;
  int to_send_ = -1;
  std::map<uint32_t, std::unique_ptr<Memory>> memories_;
  std::map<uint32_t, std::unique_ptr<Domain>> domains_;  // they end before their memory
};

}  // namespace
}  // namespace braid::fabric::test

int main(int count, char** words) {
  if (count != 2) return 2;
  try {
    braid::fabric::test::TargetProcess(std::atoi(words[1])).serve();
  } catch (const std::exception&) {
    return 0;  // the socket is closed
  }
}
