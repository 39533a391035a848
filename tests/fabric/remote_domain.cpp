#include "fabric/remote_domain.h"

#include <algorithm>
#include <optional>

namespace braid::fabric::test {
namespace {

Traits take_traits(Parcel& parcel) {
  Traits traits;
  traits.provider = parcel.take_text();
  traits.removal_fences = parcel.take<bool>();
  traits.closing_fences = parcel.take<bool>();
  traits.door_keys = parcel.take<bool>();
  traits.postings_max = parcel.take<uint64_t>();
  traits.posted_bytes_max = parcel.take<uint64_t>();
  traits.segments_max = parcel.take<size_t>();
  traits.batched_writes_max = parcel.take<size_t>();
  traits.endpoints = parcel.take<size_t>();
  return traits;
}

[[noreturn]] void only_receives() {
  throw std::logic_error("the other process's domain writes nothing, and opens no doors");
}

class RemoteDomain final : public Domain {
 public:
  RemoteDomain(std::shared_ptr<OtherProcess> process, Parcel opened)
      : process_(std::move(process)),
        number_(opened.take<uint32_t>()),
        traits_(take_traits(opened)),
        address_(opened.take_bytes()) {}
  ~RemoteDomain() override {
    try {
      ask(Call::kClose);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "closing a domain: " << error.what();
    }
  }

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return address_; }

  Result<uint32_t> add_region(MutableBytes memory, Access access) override {
    Parcel answer =
        ask(Call::kAddRegion, Parcel().put(memory.data()).put(memory.size()).put(access));
    if (answer.take<bool>()) return answer.take<uint32_t>();
    return Status::error(answer.take_text());
  }
  RemoteRange remote_range(uint32_t region) const override {
    return ask_of<RemoteRange>(Call::kRemoteRange, region);
  }
  void remove_region(uint32_t region) override { ask(Call::kRemoveRegion, Parcel().put(region)); }
  bool removal_fences(uint32_t region) const override {
    return ask_of<bool>(Call::kRemovalFences, region);
  }
  Drain drain(uint32_t region) const override { return ask_of<Drain>(Call::kDrain, region); }

  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override {
    const Parcel posted = Parcel().put(region).put(buffer.data()).put(buffer.size()).put(context);
    return ask(Call::kPostReceive, posted).take<bool>();
  }
  size_t poll(std::span<Completion> completions) override {
    Parcel answer = ask(Call::kPoll, Parcel().put(completions.size()));
    const auto count = answer.take<size_t>();
    for (size_t i = 0; i < count; ++i) completions[i] = answer.take<Completion>();
    return count;
  }
  bool has_copied() const override { return ask(Call::kHasCopied).take<bool>(); }
  bool arm() override { return ask(Call::kArm).take<bool>(); }
  int wait_descriptor() const override {
    if (!wait_descriptor_) {
      const bool has_one = ask(Call::kWaitDescriptor).take<bool>();
      wait_descriptor_ = has_one ? process_->receive_file() : File();
    }
    return wait_descriptor_->get();
  }

  Result<uint32_t> connect(Bytes) override { only_receives(); }
  void disconnect(uint32_t) override { only_receives(); }
  Result<uint32_t> open_door() override { only_receives(); }
  Bytes door_address(uint32_t) const override { only_receives(); }
  Result<uint32_t> add_door_region(uint32_t, MutableBytes) override { only_receives(); }
  void close_door(uint32_t) override { only_receives(); }
  Drain drain_door(uint32_t) const override { only_receives(); }
  bool post_write(const Write&) override { only_receives(); }
  bool post_send(uint32_t, uint32_t, Bytes, uint64_t) override { only_receives(); }

 private:
  Parcel ask(Call call, const Parcel& question = {}) const {
    return process_->ask(call, Parcel().put(number_).put_bytes(question.all()));
  }
  template <typename Answer>
  Answer ask_of(Call call, uint32_t region) const {
    return ask(call, Parcel().put(region)).take<Answer>();
  }

  const std::shared_ptr<OtherProcess> process_;
  const uint32_t number_;
  const Traits traits_;
  const std::vector<std::byte> address_;
  mutable std::optional<File> wait_descriptor_;
};

class RemoteMemory final : public Memory {
 public:
  RemoteMemory(std::shared_ptr<OtherProcess> process, Parcel allocated, size_t size_bytes)
      : process_(std::move(process)),
        number_(allocated.take<uint32_t>()),
        bytes_(allocated.take<std::byte*>(), size_bytes) {}
  MutableBytes bytes() override { return bytes_; }
  std::vector<std::byte> get() const override {
    return process_->ask(Call::kGet, Parcel().put(number_)).take_bytes();
  }
  std::byte first() const override {
    return process_->ask(Call::kFirst, Parcel().put(number_)).take<std::byte>();
  }
  void put(const std::vector<std::byte>& bytes) override {
    process_->ask(Call::kPut, Parcel().put(number_).put_bytes(bytes));
  }

 private:
  const std::shared_ptr<OtherProcess> process_;
  const uint32_t number_;
  const MutableBytes bytes_;  // addresses of that process
};

}  // namespace

std::unique_ptr<Domain> open_remote_domain(std::shared_ptr<OtherProcess> process,
                                           const std::string& provider) {
  Parcel opened = process->ask(Call::kOpen, Parcel().put_text(provider));
  return std::make_unique<RemoteDomain>(std::move(process), std::move(opened));
}

std::unique_ptr<Memory> remote_memory(std::shared_ptr<OtherProcess> process, Place place,
                                      size_t size_bytes) {
  Parcel allocated = process->ask(Call::kAllocate, Parcel().put(place).put(size_bytes));
  return std::make_unique<RemoteMemory>(std::move(process), std::move(allocated), size_bytes);
}

}  // namespace braid::fabric::test
