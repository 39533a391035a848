// Kernels: each thread block of a launch is a twin that is stepped through virtual time. The twin
// says which bytes move and which words it looks at; here they are checked, timed and carried out.
#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

class RunningKernel;

// The memory of the launching GPU, as one step of one block sees it. Effects are immediate; those
// who wait for a word hear of a change when the access has taken its time.
class StepMemory final : public cuda::TwinMemory {
 public:
  StepMemory(World& world, const Context& context) : world_(world), context_(context) {}

  uint32_t load(uint64_t address) override {
    uint32_t* word = find(address, Access::kRead);
    if (word == nullptr) return 0;
    loaded_[address] = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return loaded_[address];
  }
  void store(uint64_t address, uint32_t value) override {
    if (uint32_t* word = find(address, Access::kWrite)) {
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
      announce(address);
    }
  }
  uint32_t fetch_add(uint64_t address, uint32_t value) override {
    uint32_t* word = find(address, Access::kWrite);
    if (word == nullptr) return 0;
    const uint32_t old = __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
    announce(address);
    return old;
  }
  void add(uint64_t address, uint32_t value) override {
    const std::pair before{cost_us_, longest_us_};
    fetch_add(address, value);
    std::tie(cost_us_, longest_us_) = before;
  }
  // The words count as looked at, so that a block which polls wakes when one of them changes.
  void read(uint64_t address, void* to, uint64_t size_bytes) override {
    std::memset(to, 0, size_bytes);
    const double before_us = cost_us_;
    for (uint64_t at = 0; at < size_bytes && !faulted_; at += sizeof(uint32_t)) {
      cost_us_ = before_us;
      const uint32_t word = load(address + at);
      std::memcpy(static_cast<std::byte*>(to) + at, &word, sizeof(word));
    }
  }

  uint64_t now_ns() const override { return to_ns(world_.simulation.now()); }

  /// When each access waits for the last; when all are under way together.
  double cost_us() const { return cost_us_; }
  double longest_us() const { return longest_us_; }
  bool faulted() const { return faulted_; }
  const std::map<uint64_t, uint32_t>& loaded() const { return loaded_; }

 private:
  uint32_t* find(uint64_t address, Access access);
  void announce(uint64_t address) {
    if (!world_.watches.any_in(address, sizeof(uint32_t))) return;
    World& world = world_;
    world.simulation.after_us(cost_us_,
                              [&world, address] { world.wrote(address, sizeof(uint32_t)); });
  }

  World& world_;
  const Context& context_;
  double cost_us_ = 0;
  double longest_us_ = 0;
  bool faulted_ = false;
  std::map<uint64_t, uint32_t> loaded_;  // words read and not written, with what was read
};

uint32_t* StepMemory::find(uint64_t address, Access access) {
  Allocation* allocation =
      find_for_kernel(world_.memory, context_, address, sizeof(uint32_t), access);
  if (allocation == nullptr || address % sizeof(uint32_t) != 0) {
    faulted_ = true;
    return nullptr;
  }
  const topology::Costs& costs = world_.server.costs;
  const double access_us = allocation->is_host() ? costs.host_store_us.value
                           : allocation->place.number() == context_.gpu
                               ? costs.local_atomic_us.value
                               : costs.peer_atomic_us.value;
  cost_us_ += access_us;
  longest_us_ = std::max(longest_us_, access_us);
  return reinterpret_cast<uint32_t*>(allocation->bytes_at(address));
}

class RunningKernel : public std::enable_shared_from_this<RunningKernel> {
 public:
  RunningKernel(World& world, ContextPtr context, OpPtr op, Launch launch)
      : world_(world),
        context_(std::move(context)),
        op_(std::move(op)),
        launch_(std::move(launch)),
        blocks_left_(launch_.blocks) {}

  // The launch is due: blocks become resident as the GPU has room.
  void start() {
    op_->on_cancel = [kernel = shared_from_this()] { kernel->cancel(); };
    const Time due = world_.simulation.now() + from_us(world_.server.costs.kernel_start_us.value);
    world_.simulation.at(world_.machine.kernel_may_start(context_->gpu, due),
                         [kernel = shared_from_this()] { kernel->place_blocks(); });
  }

 private:
  using Block = std::shared_ptr<cuda::TwinBlock>;

  void place_blocks() {
    context_id_ = context_->id;
    slice_ = world_.machine.begin_kernel(context_->gpu, context_id_);
    for (uint32_t i = 0; i < launch_.blocks; ++i)
      world_.machine.threads(context_->gpu, slice_)
          .take(
              launch_.threads_per_block,
              [kernel = shared_from_this(), i] {
                // As an event of its own: a slot may come free amid another block's step.
                kernel->world_.simulation.after_us(0, [kernel, i] { kernel->begin_block(i); });
              },
              launch_.priority.value_or(op_->priority));
  }

  void begin_block(uint32_t number) {
    step(Block(launch_.twin->make_block(launch_.args.data(), number)));
  }

  void step(const Block& block) {
    if (op_->cancelled) return leave();
    StepMemory memory(world_, *context_);
    const cuda::TwinStep step = block->step(memory);
    if (memory.faulted()) return fault();
    switch (step.kind) {
      case cuda::TwinStep::Kind::kMove:
        return move(block, step, slowed(step.overlaps ? memory.longest_us() : memory.cost_us()));
      case cuda::TwinStep::Kind::kPoll: return poll(block, memory, step.wake_ns);
      case cuda::TwinStep::Kind::kTrap: return fault(CUDA_ERROR_LAUNCH_FAILED);
      case cuda::TwinStep::Kind::kExit: break;
    }
    world_.simulation.after_us(slowed(memory.cost_us()),
                               [kernel = shared_from_this()] { kernel->leave(); });
  }

  // A context beside others on the GPU has it for a part of the time.
  double slowed(double us) const { return us * world_.machine.slowdown(context_->gpu); }

  // The accesses of a step, which take `access_us`, come before its bytes or run beside them.
  void move(const Block& block, const cuda::TwinStep& step, double access_us) {
    const auto [source, destination] = ends(step);
    if (source == nullptr || destination == nullptr) return fault();
    const int share_class =
        world_.machine.kernel_class(context_->gpu, slice_, source->place, destination->place);
    const Time accessed = world_.simulation.now() + from_us(access_us);
    auto land = [kernel = shared_from_this(), block, step, accessed] {
      Simulation& simulation = kernel->world_.simulation;
      simulation.at(std::max(accessed, simulation.now()),
                    [kernel, block, step] { kernel->land(block, step); });
    };
    world_.simulation.after_us(
        step.overlaps ? 0 : access_us,
        [this, kernel = shared_from_this(), share_class, step, land = std::move(land)] {
          world_.simulation.flow(share_class, step.size_bytes, land);
        });
  }

  std::pair<Allocation*, Allocation*> ends(const cuda::TwinStep& step) const {
    const auto find = [&](uint64_t address, Access access) {
      return find_for_kernel(world_.memory, *context_, address, step.size_bytes, access);
    };
    return {find(step.source, Access::kRead), find(step.destination, Access::kWrite)};
  }

  void land(const Block& block, const cuda::TwinStep& moved) {
    if (op_->cancelled) return leave();
    const auto [source, destination] = ends(moved);  // again: it may have been freed meanwhile
    if (source == nullptr || destination == nullptr) return fault();
    std::memmove(destination->bytes_at(moved.destination), source->bytes_at(moved.source),
                 moved.size_bytes);
    world_.wrote(moved.destination, moved.size_bytes);
    step(block);
  }

  // A block that polls looks again every so often. Looks that would find the same words are not
  // simulated: the block sleeps until a word it read has changed, and looks at the next beat.
  void poll(const Block& block, const StepMemory& memory, uint64_t wake_ns) {
    const Time beat =
        from_us(slowed(memory.cost_us())) + from_us(slowed(world_.server.costs.poll_us.value));
    const Time first = world_.simulation.now() + beat;
    const uint64_t group = world_.watches.new_group();
    polls_.insert(group);
    for (const auto& word : memory.loaded()) {
      const uint64_t address = word.first;
      const uint32_t seen = word.second;
      const bool host_memory = world_.memory.find(address)->is_host();
      world_.watches.add(group, address, sizeof(uint32_t), host_memory,
                         [kernel = shared_from_this(), block, address, seen, first, beat, group] {
                           return kernel->look(block, address, seen, first, beat, group);
                         });
    }
    if (wake_ns != 0)
      world_.simulation.at(from_ns(wake_ns), [kernel = shared_from_this(), block, group] {
        if (kernel->polls_.erase(group) == 0) return;  // awake already
        kernel->world_.watches.drop(group);
        kernel->step(block);
      });
  }

  bool look(const Block& block, uint64_t address, uint32_t seen, Time first, Time beat,
            uint64_t group) {
    const Allocation* allocation = world_.memory.find(address);
    if (allocation != nullptr &&
        __atomic_load_n(reinterpret_cast<uint32_t*>(allocation->bytes_at(address)),
                        __ATOMIC_ACQUIRE) == seen)
      return false;
    polls_.erase(group);
    const Time late = world_.simulation.now() - first;
    const Time when = late <= 0 ? first : first + (late + beat - 1) / beat * beat;
    world_.simulation.at(when, [kernel = shared_from_this(), block] { kernel->step(block); });
    return true;
  }

  void fault(CUresult error = CUDA_ERROR_ILLEGAL_ADDRESS) {
    world_.poison(*context_, error);
    leave();
  }

  // Blocks that sleep in a poll leave now; the others when their next step comes.
  void cancel() {
    const std::set<uint64_t> polls = std::exchange(polls_, {});
    for (const uint64_t group : polls) {
      world_.watches.drop(group);
      leave();
    }
  }

  void leave() {
    world_.machine.threads(context_->gpu, slice_).give_back(launch_.threads_per_block);
    if (--blocks_left_ > 0) return;
    world_.machine.end_kernel(context_->gpu, context_id_);
    world_.scheduler.finish(op_);
  }

  World& world_;
  ContextPtr context_;
  OpPtr op_;
  Launch launch_;
  uint32_t blocks_left_;
  uint64_t context_id_ = 0;   // of the life of the context that it was launched in
  int slice_ = 0;             // of the GPU
  std::set<uint64_t> polls_;  // watch groups of blocks that sleep in a poll
};

}  // namespace

CompletionPtr enqueue_kernel(World& world, const StreamPtr& stream, Launch launch) {
  const ContextPtr context = stream->context.lock();
  return world.scheduler.enqueue(
      stream, [&world, context, launch = std::move(launch)](const OpPtr& op) {
        std::make_shared<RunningKernel>(world, context, op, launch)->start();
      });
}

}  // namespace braid::emulator
