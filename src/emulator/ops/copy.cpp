// Copies: wait for a copy engine, start, let the bytes flow, and move them when the last has
// arrived.
#include <algorithm>
#include <utility>

#include "emulator/constants.h"
#include "emulator/ops/fault.h"
#include "emulator/ops/rows.h"

namespace braid::emulator {
namespace {

// The GPU of one end reaches the memory of the other.
bool reaches(World& world, const CopyEnd& from, const CopyEnd& to) {
  const Allocation* memory = world.memory.find(to.address);
  if (memory != nullptr && memory->grants != nullptr)
    return granted_to(*memory->grants, from.device) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const auto& [handle, context] : world.contexts.all())
    if (context->device == from.device && context->peers.count(to.context) > 0) return true;
  return false;
}

// Two GPUs of which one reaches the other; otherwise the driver stages through host memory.
bool is_direct(World& world, const CopyEnd& source, const CopyEnd& destination) {
  if (!source.place.is_gpu() || !destination.place.is_gpu()) return true;
  if (source.place == destination.place) return true;
  return reaches(world, source, destination) || reaches(world, destination, source);
}

// Whose PCIe link takes a copy between host memory and a GPU: plain memory is reached by its own
// GPU, whichever stream the copy is in; mapped and pooled memory by the GPU that touches it, which
// is the stream's, and over NVLink from there (seen on 2xH200, driver 580).
int passes(World& world, const ContextPtr& context, const Copy& copy) {
  const bool from_gpu = copy.source.place.is_gpu();
  const bool to_gpu = copy.destination.place.is_gpu();
  if (from_gpu && to_gpu)
    return is_direct(world, copy.source, copy.destination) ? Machine::kNothing
                                                           : Machine::kHostMemory;
  if (!from_gpu && !to_gpu) return Machine::kNothing;
  const CopyEnd& on_gpu = from_gpu ? copy.source : copy.destination;
  if (on_gpu.context != 0) return Machine::kNothing;
  const int gpu = on_gpu.through >= 0 ? world.visible[on_gpu.through] : context->gpu;
  return gpu == on_gpu.place.number() ? Machine::kNothing : gpu;
}

struct RoutedCopy {
  Copy copy;
  int share_class = 0;
  Slots* engine = nullptr;  ///< none for a copy within host memory, which a CPU thread makes
};
using RoutedCopies = std::shared_ptr<const std::vector<RoutedCopy>>;

RoutedCopy routed(World& world, const ContextPtr& context, Copy copy) {
  const Place from = copy.source.place;
  const Place to = copy.destination.place;
  const int way = passes(world, context, copy);
  const bool by_cpu = copy.staged != nullptr && copy.read == SourceRead::kDuringCall;
  const bool pageable = by_cpu || copy.source.pageable() || copy.destination.pageable();
  RoutedCopy made;
  made.share_class = pageable ? world.machine.pageable_class(from, to, way)
                              : world.machine.copy_class(from, to, way);
  if (from.is_gpu() || to.is_gpu()) made.engine = &world.machine.engine(from, to, way);
  made.copy = std::move(copy);
  return made;
}

bool may_move(World& world, const OpPtr& op, const Copy& copy) {
  const bool source_over = copy.staged != nullptr && copy.read == SourceRead::kDuringCall;
  const bool readable =
      source_over || may_touch(world, op, copy.source, copy.extent, Access::kRead);
  return readable && may_touch(world, op, copy.destination, copy.extent, Access::kWrite);
}

void move_bytes(World& world, const OpPtr& op, const Copy& copy) {
  if (!may_move(world, op, copy)) return fault(world, op);
  const CopyEnd source =
      copy.staged != nullptr ? packed_end(copy.staged.get(), copy.extent) : copy.source;
  move_rows(copy.destination, source, copy.extent);
  world.wrote(copy.destination.address, span_bytes(copy.destination, copy.extent));
}

// The copies of an op that has begun. Those that need the same engine take it once and go one after
// another; engines work beside each other.
class RunningCopies : public std::enable_shared_from_this<RunningCopies> {
 public:
  RunningCopies(World& world, OpPtr op, RoutedCopies copies)
      : world_(world), op_(std::move(op)), copies_(std::move(copies)) {}

  void start() {
    for (const RoutedCopy& each : *copies_) lane_of(each.engine).copies.push_back(&each);
    lanes_left_ = lanes_.size();
    for (Lane& lane : lanes_) {
      auto granted = [this, running = shared_from_this(), &lane] { go_on(lane); };
      if (lane.engine != nullptr)
        lane.engine->take(1, std::move(granted));
      else
        granted();
    }
  }

 private:
  struct Lane {
    Slots* engine = nullptr;
    std::vector<const RoutedCopy*> copies;
    size_t landed = 0;
  };

  Lane& lane_of(Slots* engine) {
    for (Lane& lane : lanes_)
      if (lane.engine == engine) return lane;
    lanes_.emplace_back().engine = engine;
    return lanes_.back();
  }

  double start_us(const Lane& lane) const {
    if (lane.engine == nullptr) return 0;
    return lane.landed == 0 ? world_.server.costs.copy_start_us.value : kBatchEntryUs;
  }

  void go_on(Lane& lane) {
    if (op_->cancelled || lane.landed == lane.copies.size()) return leave(lane);
    if (!may_move(world_, op_, lane.copies[lane.landed]->copy)) {
      fault(world_, op_);
      return leave(lane);
    }
    world_.simulation.after_us(start_us(lane), [this, running = shared_from_this(), &lane] {
      const RoutedCopy& next = *lane.copies[lane.landed];
      world_.simulation.flow(next.share_class, next.copy.extent.size_bytes(),
                             [this, running, &lane] { land(lane); });
    });
  }

  void land(Lane& lane) {
    if (!op_->cancelled) move_bytes(world_, op_, lane.copies[lane.landed]->copy);
    ++lane.landed;
    go_on(lane);
  }

  void leave(Lane& lane) {
    if (--lanes_left_ == 0) world_.scheduler.finish(op_);
    if (lane.engine != nullptr) lane.engine->give_back(1);
  }

  World& world_;
  OpPtr op_;
  RoutedCopies copies_;
  std::vector<Lane> lanes_;  // complete before the first is referred to
  size_t lanes_left_ = 0;
};

}  // namespace

CompletionPtr enqueue_copies(World& world, const StreamPtr& stream, std::vector<Copy> copies) {
  const ContextPtr context = stream->context.lock();
  auto all = std::make_shared<std::vector<RoutedCopy>>();
  all->reserve(copies.size());
  for (Copy& copy : copies) all->push_back(routed(world, context, std::move(copy)));
  return world.scheduler.enqueue(stream, [&world, all](const OpPtr& op) {
    std::make_shared<RunningCopies>(world, op, all)->start();
  });
}

}  // namespace braid::emulator
