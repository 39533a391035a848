// From a seed to a program.
#include <algorithm>
#include <numeric>
#include <optional>

#include "stress/copy_maker.h"
#include "stress/owners.h"
#include "stress/program.h"
#include "stress/random.h"

namespace braid::stress {
namespace {

constexpr uint64_t kLargeBytes = 5 << 19;  // pageable copies of this size are staged

// What one thread has: its streams for the whole program, its regions for a phase.
struct Hands {
  std::vector<int> streams;
  std::vector<int> regions;
};

class Generator {
 public:
  Generator(uint64_t seed, const Machine& machine) : random_(seed * 2 + 1) {
    program_.seed = seed;
    program_.machine = machine;
  }

  Program make() {
    program_.threads = random_.one_in(2) ? 1 : static_cast<int>(random_.between(2, 3));
    first_gpu_ = static_cast<int>(random_.below(program_.machine.gpus));
    hands_.resize(program_.threads);
    for (Hands& hands : hands_) add_hands(hands);
    Owners owners(program_, random_);
    CopyMaker copies(program_, random_, owners);
    owners_ = &owners;
    copies_ = &copies;
    const uint64_t phases = random_.between(1, 3);
    for (uint64_t phase = 0; phase < phases; ++phase) {
      if (phase > 0) deal_regions();
      choose_reset(phase + 1 == phases);
      is_held_phase_ = random_.one_in(2);
      auto& threads = program_.phases.emplace_back(program_.threads);
      for (int thread = 0; thread < program_.threads; ++thread)
        write_phase(hands_[thread], threads[thread]);
      if (reset_gpu_ < 0) continue;
      auto& alone = program_.phases.emplace_back(program_.threads);
      alone[0].push_back({.step = Step::kReset, .value = static_cast<uint64_t>(reset_gpu_)});
    }
    return std::move(program_);
  }

 private:
  int some_gpu() {
    return random_.one_in(3) ? static_cast<int>(random_.below(program_.machine.gpus)) : first_gpu_;
  }
  uint64_t some_size(RegionKind kind) {
    if (random_.one_in(40) && (kind == RegionKind::kPageable || kind == RegionKind::kDevice))
      return kLargeBytes + random_.below(4096);
    if (random_.one_in(5)) return random_.between(64 << 10, 512 << 10);
    return random_.between(4 << 10, 64 << 10);
  }
  // Half of them such as braid accelerates without more ado.
  RegionKind some_kind() {
    static const std::vector<RegionKind> plain = {RegionKind::kPinned, RegionKind::kRegistered,
                                                  RegionKind::kDevice, RegionKind::kDevice};
    return random_.one_in(2) ? random_.of(plain) : static_cast<RegionKind>(random_.below(7));
  }
  void add_region(Hands& hands, RegionKind kind, int gpu) {
    hands.regions.push_back(static_cast<int>(program_.regions.size()));
    program_.regions.push_back({kind, gpu, some_size(kind)});
  }
  void add_stream(Hands& hands, Flavour flavour, int gpu) {
    hands.streams.push_back(static_cast<int>(program_.streams.size()));
    program_.streams.push_back({flavour, gpu});
  }

  // Something to copy between on one GPU, then anything.
  void add_hands(Hands& hands) {
    const int home = some_gpu();
    add_stream(hands, random_.one_in(2) ? Flavour::kLegacy : Flavour::kPerThread, home);
    for (uint64_t more = random_.between(1, 3); more > 0; --more)
      add_stream(hands, static_cast<Flavour>(random_.below(5)),
                 random_.one_in(3) ? some_gpu() : home);
    add_region(hands, random_.one_in(2) ? RegionKind::kPinned : RegionKind::kRegistered, home);
    add_region(hands, RegionKind::kDevice, home);
    for (uint64_t more = random_.between(2, 5); more > 0; --more)
      add_region(hands, some_kind(), random_.one_in(4) ? some_gpu() : home);
  }

  // Regions change hands between phases.
  void deal_regions() {
    std::vector<int> all(program_.regions.size());
    std::iota(all.begin(), all.end(), 0);
    for (size_t left = all.size(); left > 1; --left)
      std::swap(all[left - 1], all[random_.below(left)]);
    for (Hands& hands : hands_) hands.regions.clear();
    for (const int region : all) hands_[random_.below(hands_.size())].regions.push_back(region);
  }

  // What streams are held by, and mistakes are made with, lies in GPU 0's context.
  void choose_reset(bool is_last) {
    reset_gpu_ = -1;
    if (is_last || !random_.one_in(40)) return;
    is_quiet_ = random_.one_in(3);
    reset_gpu_ = static_cast<int>(random_.between(is_quiet_ ? 0 : 1, program_.machine.gpus - 1));
  }

  // A context may be reset while its work is in flight, which then ends first. But streams of other
  // contexts must be through with what it takes away.
  void write_before_reset(const Hands& hands) {
    if (is_quiet_)
      for (const int stream : hands.streams)
        out_->push_back({.step = Step::kSyncStream, .stream = stream});
    for (const int region : hands.regions) {
      const Region& of = program_.regions[region];
      const bool is_for_all = of.is_host() || of.kind == RegionKind::kManaged;
      if (of.gpu == reset_gpu_ && of.ends_with_context() && is_for_all) owners_->settle(region);
    }
  }

  void write_phase(Hands& hands, std::vector<Operation>& operations) {
    here_ = &hands;
    out_ = &operations;
    owners_->write_to(operations);
    for (uint64_t steps = random_.between(3, 12); steps > 0 && hands.regions.size() > 0; --steps)
      write_step();
    if (reset_gpu_ >= 0) write_before_reset(hands);
    owners_->leave(hands.regions, -1);
  }

  void write_step() {
    const uint64_t kind = random_.below(100);
    if (kind < 54) return write_copy();
    if (kind < 60) return write_kernel();
    if (kind < 66) return write_fill();
    if (kind < 71) return write_host_function();
    if (kind < 76) return write_touch();
    if (kind < 80) return write_order();
    if (kind < 85) return write_held();
    if (kind < 90) return write_capture();
    if (kind < 93) return write_renewal();
    if (kind < 95) return write_new_stream();
    if (kind < 96) return write_fork();
    write_mistake();
  }

  int some_stream() { return random_.of(here_->streams); }

  void write_copy() {
    if (auto made = copies_->make(some_stream(), here_->regions, false))
      out_->push_back(std::move(*made));
  }

  // The copy's hand-overs come before it.
  Operation fill_of(int region, int stream) {
    const uint64_t room = program_.regions[region].size_bytes;
    Operation made{
        .step = Step::kFill, .stream = stream, .region = region, .value = random_.next()};
    const uint64_t size = random_.below(room + 1);
    made.copy.pieces.push_back({region, region, random_.below(room - size + 1), 0, size});
    return made;
  }

  std::vector<int> choose(bool (*wanted)(const Region&), int gpu = -1) const {
    std::vector<int> chosen;
    for (const int region : here_->regions)
      if (wanted(program_.regions[region]) && (gpu < 0 || program_.regions[region].gpu == gpu))
        chosen.push_back(region);
    return chosen;
  }
  static bool is_host(const Region& region) { return region.is_host(); }
  static bool is_plain_device(const Region& region) {
    return !region.is_host() && region.kind != RegionKind::kManaged;
  }

  void write_fill() {
    const int stream = some_stream();
    const auto regions = choose(is_plain_device, program_.streams[stream].gpu);
    if (regions.empty()) return;
    const int region = random_.of(regions);
    owners_->acquire(region, stream);
    out_->push_back(fill_of(region, stream));
  }

  // The words of both regions that the kernel looks at lie at multiples of 4.
  std::optional<Operation> kernel_of(const std::vector<int>& regions, int stream) {
    std::vector<int> usable;
    for (const int region : regions) {
      const Region& of = program_.regions[region];
      if (of.is_for_kernels() && (of.is_host() || of.gpu == program_.streams[stream].gpu))
        usable.push_back(region);
    }
    if (usable.size() < 2) return std::nullopt;
    const int to = random_.of(usable), from = random_.of(usable);
    if (to == from) return std::nullopt;
    owners_->acquire(to, stream);
    owners_->acquire(from, stream);
    const auto some_offset = [&](int region) {
      return random_.below(program_.regions[region].size_bytes / 2) & ~uint64_t{3};
    };
    Piece piece{to, from, some_offset(to), some_offset(from), 0};
    const uint64_t room = std::min(program_.regions[to].size_bytes - piece.to_offset,
                                   program_.regions[from].size_bytes - piece.from_offset);
    constexpr uint64_t kMost = 64 << 10;
    piece.size_bytes = random_.below(std::min(room, kMost) + 1);
    Operation made{.step = Step::kKernel, .stream = stream};
    made.copy.pieces.push_back(piece);
    return made;
  }

  void write_kernel() {
    if (auto made = kernel_of(here_->regions, some_stream())) out_->push_back(std::move(*made));
  }

  void write_fork() { out_->push_back({.step = Step::kFork, .value = random_.below(kForkEnds)}); }

  void write_host_function() {
    const auto regions = choose(is_host);
    if (regions.empty()) return;
    const int stream = some_stream();
    const int region = random_.of(regions);
    owners_->acquire(region, stream);
    out_->push_back({.step = Step::kHostFunction, .stream = stream, .region = region});
  }

  void write_touch() {
    const auto regions = choose(is_host);
    if (regions.empty()) return;
    const int region = random_.of(regions);
    owners_->settle(region);
    out_->push_back({.step = Step::kTouch, .region = region});
  }

  void write_order() {
    const int stream = some_stream();
    const int before = owners_->record(stream);
    for (uint64_t copies = random_.below(3); copies > 0; --copies)
      if (auto made = copies_->make(stream, here_->regions, false))
        out_->push_back(std::move(*made));
    const int after = owners_->record(stream);
    const bool waits = random_.one_in(2);
    if (waits) out_->push_back({.step = Step::kSyncEvent, .event = after});
    out_->push_back({.step = Step::kCheckOrder,
                     .event = before,
                     .other_event = after,
                     .value = waits ? uint64_t{1} : 0});
  }

  // A free waits for all streams of a context, and other threads wait for the free: beside one that
  // holds a stream back and has not released it yet, it would never end. So phases have one of
  // both.
  bool may_hold() const { return program_.threads == 1 || is_held_phase_; }
  bool may_free() const { return program_.threads == 1 || !is_held_phase_; }

  // A stream is held back; what is enqueued in it meanwhile must neither wait nor run ahead.
  // Another thread's synchronous copy in the legacy stream would wait for a blocking stream, and on
  // H200 has a lock then that this thread needs before it comes to the release (seeds 1 and 23,
  // natively).
  void write_held() {
    if (!may_hold()) return;
    const int stream = some_stream();
    if (program_.threads > 1 && !program_.streams[stream].is_non_blocking()) return;
    const auto regions = choose(is_host);
    const int watched = regions.empty() ? -1 : random_.of(regions);
    if (watched >= 0) owners_->settle(watched);
    program_.event_gpus.push_back(program_.streams[stream].gpu);
    const int event = static_cast<int>(program_.event_gpus.size()) - 1;
    out_->push_back({.step = Step::kHold, .stream = stream, .event = event});
    for (uint64_t copies = random_.between(1, 4); copies > 0; --copies)
      if (auto made = copies_->make(stream, here_->regions, true))
        out_->push_back(std::move(*made));
    out_->push_back(
        {.step = Step::kCheckHeld, .stream = stream, .region = watched, .event = event});
    out_->push_back(release_of(stream, event));
  }

  // By a stream only where nothing that it waits for can itself be held.
  Operation release_of(int held, int event) {
    Operation release{.step = Step::kRelease, .stream = held, .event = event};
    if (program_.threads == 1)
      for (const int stream : here_->streams)
        if (stream != held && program_.streams[stream].is_non_blocking() && random_.one_in(2))
          release = {.step = Step::kRelease, .stream = stream, .event = event, .value = 1};
    return release;
  }

  // Global mode would fail the calls of other threads, and a blocking stream those in the legacy
  // stream: one after the other, so not always the same.
  void write_capture() {
    const int stream = some_stream();
    const Flavour flavour = program_.streams[stream].flavour;
    const bool alone = program_.threads == 1;
    if (flavour < Flavour::kBlocking || (flavour == Flavour::kBlocking && !alone)) return;
    auto regions = here_->regions;
    std::erase_if(regions, [&](int region) {
      const Region& of = program_.regions[region];
      return !of.is_prompt() || (!of.is_host() && of.gpu != program_.streams[stream].gpu);
    });
    for (const int region : regions) owners_->acquire(region, stream);
    Operation capture{.step = Step::kCapture, .stream = stream, .value = random_.below(4)};
    capture.mode =
        static_cast<CUstreamCaptureMode>(alone ? random_.below(3) : random_.between(1, 2));
    for (uint64_t steps = random_.between(1, 4); steps > 0 && !regions.empty(); --steps)
      write_captured(capture, regions);
    out_->push_back(std::move(capture));
  }

  void write_captured(Operation& capture, const std::vector<int>& regions) {
    const int stream = capture.stream;
    const int region = random_.of(regions);
    const bool is_host = program_.regions[region].is_host();
    if (random_.one_in(5)) {
      if (auto made = kernel_of(regions, stream)) capture.inner.push_back(std::move(*made));
    } else if (random_.one_in(5))
      capture.inner.push_back(
          is_host ? Operation{.step = Step::kHostFunction, .stream = stream, .region = region}
                  : fill_of(region, stream));
    else if (auto made = copies_->make(stream, regions, true))
      capture.inner.push_back(std::move(*made));
  }

  // cuMemFreeHost and cuMemHostUnregister wait for work of the context that pinned the memory.
  void write_renewal() {
    const int region = random_.of(here_->regions);
    const Region& of = program_.regions[region];
    const int stream = some_stream();
    if (of.kind == RegionKind::kPool && program_.streams[stream].gpu == of.gpu) {
      owners_->acquire(region, stream);
      out_->push_back({.step = Step::kRenewInStream,
                       .stream = stream,
                       .region = region,
                       .value = random_.next()});
      return;
    }
    if (!may_free()) return;
    const bool is_pinned = of.kind == RegionKind::kPinned || of.kind == RegionKind::kRegistered;
    const bool free_waits = is_pinned && owners_->is_used_by(region, of.gpu);
    if (!free_waits || random_.one_in(2)) owners_->settle(region);
    owners_->settled(region);
    out_->push_back({.step = Step::kRenew, .region = region, .value = random_.next()});
  }

  void write_new_stream() {
    const int stream = some_stream();
    if (program_.streams[stream].is_default()) return;
    owners_->leave(here_->regions, stream);
    out_->push_back({.step = Step::kRenewStream, .stream = stream});
  }

  // Handles and addresses that are no longer anybody's may be another thread's a moment later.
  void write_mistake() {
    const auto mistake = static_cast<Mistake>(random_.below(kMistakes));
    const bool reuses = mistake == Mistake::kDestroyedStream || mistake == Mistake::kFreedMemory;
    if (reuses && (program_.threads > 1 || !program_.machine.refuses_what_is_undefined)) return;
    out_->push_back(
        {.step = Step::kMistake, .stream = some_stream(), .value = static_cast<uint64_t>(mistake)});
  }

  Random random_;
  Program program_;
  std::vector<Hands> hands_;
  int first_gpu_ = 0;
  int reset_gpu_ = -1;  // after the phase that is being written
  bool is_quiet_ = false;
  bool is_held_phase_ = false;
  Owners* owners_ = nullptr;
  CopyMaker* copies_ = nullptr;
  Hands* here_ = nullptr;
  std::vector<Operation>* out_ = nullptr;
};

}  // namespace

Program make_program(uint64_t seed, const Machine& machine) {
  return Generator(seed, machine).make();
}

}  // namespace braid::stress
