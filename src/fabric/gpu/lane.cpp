#include "fabric/gpu/lane.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include "cuda/relaxed_capture.h"
#include "fabric/thread.h"

namespace braid::fabric::gpu {
namespace {

constexpr size_t kGroupsMax = 4;
constexpr uint64_t kGroupBytesMax = 16 << 20;
/// A copy to or from the host may be one step of a pipeline with a wire, which takes a group's
/// bytes once the group has ended.
constexpr uint64_t kGroupOfHostBytesMax = 1 << 20;
/// Carried copies that do not go on where another ends gain nothing by going together.
constexpr uint64_t kGroupOfCarriedBytesMax = 4 << 20;
static_assert(2 * kGroupsMax <= Mover::kListCount);
constexpr int kEagerLooks = 200;  // before it sleeps between looks
constexpr auto kBetweenLooks = std::chrono::microseconds(20);

}  // namespace

std::shared_ptr<Lane> lane_of(const cuda::Driver& driver, CUcontext context, int gpu) {
  static std::mutex mutex;
  static std::map<std::pair<CUcontext, int>, std::weak_ptr<Lane>> lanes;
  const std::lock_guard lock(mutex);
  std::erase_if(lanes, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<Lane>& known = lanes[{context, gpu}];
  std::shared_ptr<Lane> lane = known.lock();
  if (lane == nullptr) known = lane = Lane::start(driver, context, gpu);
  return lane;
}

std::shared_ptr<Lane> Lane::start(const cuda::Driver& driver, CUcontext context, int gpu) {
  Lane* lane = new Lane(driver, context, gpu);  // owner: its thread
  try {
    lane->end_->thread_ = start_thread([lane] {
      lane->work();
      const std::shared_ptr<LaneEnd> end = lane->end_;
      delete lane;  // owner: this thread
      end->become(LaneEnd::State::kOver);
    });
  } catch (const std::system_error&) {
    delete lane;  // owner: nobody, without a thread
    return nullptr;
  }
  return {lane, [](Lane* held) { held->begin_end(); }};
}

void Lane::begin_end() {
  end_->become(LaneEnd::State::kBegun);
  const std::lock_guard lock(mutex_);
  is_ending_ = true;
  wake_.notify_one();
}

void LaneEnd::become(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

LaneEnd::~LaneEnd() {
  if (thread_.joinable()) thread_.detach();
}

void LaneEnd::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::kBegun; });
  if (state_ == State::kOver && thread_.joinable()) thread_.join();
}

bool LaneEnd::wait_until(uint64_t end_ns) {
  {
    std::unique_lock lock(mutex_);
    const std::chrono::nanoseconds since_start(
        static_cast<int64_t>(std::min<uint64_t>(end_ns, std::numeric_limits<int64_t>::max())));
    const std::chrono::steady_clock::time_point end{since_start};
    if (!changed_.wait_until(lock, end, [&] { return state_ != State::kBegun; })) return false;
  }
  wait();
  return true;
}

bool LaneEnd::is_over() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOver;
}

void LaneEnds::add(const Lane& lane) {
  if (!ends_.insert(lane.end()).second) return;
  std::erase_if(ends_, [](const auto& end) { return end->is_over(); });
}

void LaneEnds::wait() {
  for (const auto& end : ends_) end->wait();
}

void Lane::copy(CopyKind kind, Copy copy) {
  {
    const std::lock_guard lock(mutex_);
    to_copy_[static_cast<size_t>(kind)].push_back(std::move(copy));
  }
  wake_.notify_one();
}

void Lane::copy(CopyKind kind, std::vector<Copy>& copies) {
  if (copies.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    std::deque<Copy>& all = to_copy_[static_cast<size_t>(kind)];
    all.insert(all.end(), std::make_move_iterator(copies.begin()),
               std::make_move_iterator(copies.end()));
  }
  copies.clear();
  wake_.notify_one();
}

void Lane::run(std::function<void(CUresult)> call) {
  const std::lock_guard lock(mutex_);
  to_run_.push_back(std::move(call));
  wake_.notify_one();
}

void Lane::prepare_pages() {
  run([this](CUresult context) {
    if (context == CUDA_SUCCESS)
      mover_.prepare_pages(streams_[static_cast<size_t>(CopyKind::kBetweenGpus)][0].handle);
  });
}

void Lane::pin(std::shared_ptr<HostMemory> memory) {
  const std::lock_guard lock(mutex_);
  to_pin_.push_back(std::move(memory));
  wake_.notify_one();
}

void Lane::unpin(const std::shared_ptr<HostMemory>& memory) {
  const std::lock_guard lock(mutex_);
  to_unpin_.push_back(memory);
  wake_.notify_one();
}

// ---- The thread ----

void Lane::work() {
  const cuda::RelaxedCapture relaxed(driver_);
  enter_context();
  for (int looks = 0;;) {
    if (serve() || look()) looks = 0;
    std::unique_lock lock(mutex_);
    const auto is_wanted = [&] {
      bool has_work = is_ending_ || !to_pin_.empty() || !to_unpin_.empty() || !to_run_.empty();
      for (size_t kind = 0; kind < kCopyKindCount; ++kind)
        has_work = has_work || (!to_copy_[kind].empty() && has_room(kind));
      return has_work;
    };
    if (is_ending_) break;
    if (!has_something_under_way()) {
      wake_.wait(lock, is_wanted);
    } else if (++looks > kEagerLooks) {
      wake_.wait_for(lock, kBetweenLooks, is_wanted);
    } else {
      lock.unlock();
      sched_yield();
    }
  }
  close();
}

/// Retains a primary context, since the program may release it while memory of it is in use here.
void Lane::enter_context() {
  unsigned flags = 0;
  int is_active = 0;
  state_ = driver_.cuDeviceGet(&device_, gpu_);
  if (state_ == CUDA_SUCCESS)
    state_ = driver_.cuDevicePrimaryCtxGetState(device_, &flags, &is_active);
  if (state_ == CUDA_SUCCESS && (context_ == nullptr || is_active != 0)) {
    CUcontext primary = nullptr;
    state_ = driver_.cuDevicePrimaryCtxRetain(&primary, device_);
    holds_primary_ = state_ == CUDA_SUCCESS;
    if (context_ == nullptr) context_ = primary;
    if (holds_primary_ && primary != context_) {
      driver_.cuDevicePrimaryCtxRelease(device_);
      holds_primary_ = false;
    }
  }
  is_programs_ = !holds_primary_;
  if (state_ == CUDA_SUCCESS) state_ = driver_.cuCtxSetCurrent(context_);
  for (auto& streams : streams_)
    for (Stream& stream : streams)
      if (state_ == CUDA_SUCCESS)
        state_ = driver_.cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING);
}

/// Serves all requests. False: there were none.
bool Lane::serve() {
  std::deque<std::shared_ptr<HostMemory>> to_pin, to_unpin;
  std::deque<std::function<void(CUresult)>> to_run;
  std::vector<Copy> to_copy[kCopyKindCount];
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return false;
    to_pin.swap(to_pin_);
    to_unpin.swap(to_unpin_);
    to_run.swap(to_run_);
    for (size_t kind = 0; kind < kCopyKindCount; ++kind)
      if (has_room(kind)) to_copy[kind] = take_group(static_cast<CopyKind>(kind), to_copy_[kind]);
  }
  bool any = !to_pin.empty() || !to_unpin.empty() || !to_run.empty();
  for (const auto& memory : to_pin) begin_pin(memory);
  for (const auto& call : to_run) call(state_);
  for (size_t kind = 0; kind < kCopyKindCount; ++kind) {
    if (to_copy[kind].empty()) continue;
    any = true;
    begin(static_cast<CopyKind>(kind), std::move(to_copy[kind]));
  }
  for (const auto& memory : to_unpin) end_pin(memory);
  return any;
}

/// Takes one of several groups, so that the end of one is handled while others are copied. A
/// carrier needs large copies, which are made of small ones that are adjacent.
std::vector<Copy> Lane::take_group(CopyKind kind, std::deque<Copy>& waiting) {
  std::vector<Copy> group;
  const auto bytes_max = [&] {
    if (kind == CopyKind::kBetweenGpus || group.empty()) return kGroupBytesMax;
    if (group.front().carrier == nullptr) return kGroupOfHostBytesMax;
    return goes_on(group.back(), waiting.front()) ? kGroupBytesMax : kGroupOfCarriedBytesMax;
  };
  for (uint64_t size_bytes = 0; !waiting.empty() && size_bytes < bytes_max();) {
    size_bytes += waiting.front().size_bytes;
    group.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  return group;
}

/// Copies that come while others are under way wait, and go together: few large groups keep a GPU
/// as busy as many small ones, at a smaller cost.
bool Lane::has_room(size_t kind) const {
  size_t under_way = 0;
  for (const Stream& stream : streams_[kind]) under_way += stream.under_way.size();
  return under_way < kGroupsMax;
}

/// Small groups take two streams, so that one is copied while the next begins. Carried copies take
/// one: each fills all links alone, and two at a time end together, after which all links rest.
Lane::Stream& Lane::stream_for(Stream* streams, const std::vector<Copy>& copies) {
  const bool is_carried = copies.front().carrier != nullptr;
  const bool is_second = streams[0].under_way.size() > streams[1].under_way.size();
  return streams[is_second && !is_carried ? 1 : 0];
}

void Lane::begin(CopyKind kind, std::vector<Copy> copies) {
  Stream* streams = streams_[static_cast<size_t>(kind)];
  Stream& stream = stream_for(streams, copies);
  Group group{nullptr, state_, std::move(copies), {}};
  if (state_ != CUDA_SUCCESS) return finish(group, state_);
  group.bounce_buffers.replace(kind, group.copies);
  const size_t turn = stream.groups++ % kGroupsMax;  // at most kGroupsMax are under way in it
  const size_t list = (&stream == streams ? 0 : kGroupsMax) + turn;
  group.result = mover_.enqueue(group.copies, stream.handle, list);
  // Some copies may be under way although another was refused. All have ended once the stream has
  // passed them.
  CUresult recorded = CUDA_SUCCESS;
  if (events_.empty()) {
    recorded = driver_.cuEventCreate(&group.event, CU_EVENT_DISABLE_TIMING);
  } else {
    group.event = events_.back();
    events_.pop_back();
  }
  if (recorded == CUDA_SUCCESS) recorded = driver_.cuEventRecord(group.event, stream.handle);
  if (recorded != CUDA_SUCCESS) {
    const CUresult passed = driver_.cuStreamSynchronize(stream.handle);
    if (group.event != nullptr) events_.push_back(group.event);
    return finish(group, group.result == CUDA_SUCCESS ? passed : group.result);
  }
  stream.under_way.push_back(std::move(group));
}

bool Lane::look() {
  bool any = false;
  for (auto& streams : streams_)
    for (Stream& stream : streams) any = look(stream) || any;
  return any;
}

bool Lane::look(Stream& stream) {
  bool any = false;
  while (!stream.under_way.empty()) {
    const Group& group = stream.under_way.front();
    const CUresult result = driver_.cuEventQuery(group.event);
    if (result == CUDA_ERROR_NOT_READY) break;
    finish(group, group.result == CUDA_SUCCESS ? result : group.result);
    events_.push_back(group.event);
    stream.under_way.pop_front();
    any = true;
  }
  return any;
}

void Lane::finish(const Group& group, CUresult result) {
  if (result == CUDA_SUCCESS) group.bounce_buffers.bring_back();
  std::vector<Ended::Copy> ended;
  for (size_t i = 0; i < group.copies.size(); ++i) {
    ended.push_back({group.copies[i].tag, result == CUDA_SUCCESS});
    const bool is_last =
        i + 1 == group.copies.size() || group.copies[i + 1].ended != group.copies[i].ended;
    if (!is_last) continue;
    group.copies[i].ended->add(ended);
    ended.clear();
  }
}

void Lane::begin_pin(const std::shared_ptr<HostMemory>& memory) {
  if (state_ != CUDA_SUCCESS || pinned_.contains(memory.get())) return;
  const MutableBytes bytes = memory->bytes();
  if (driver_.cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_PORTABLE) ==
      CUDA_SUCCESS)
    pinned_[memory.get()] = memory;
}

void Lane::end_pin(const std::shared_ptr<HostMemory>& memory) {
  if (pinned_.erase(memory.get()) != 0) driver_.cuMemHostUnregister(memory->bytes().data());
}

bool Lane::has_something_under_way() const {
  for (const auto& streams : streams_)
    for (const Stream& stream : streams)
      if (!stream.under_way.empty()) return true;
  return false;
}

void Lane::close() {
  std::deque<std::function<void(CUresult)>> to_run;
  {
    const std::lock_guard lock(mutex_);
    to_run.swap(to_run_);
  }
  for (const auto& call : to_run) call(state_);
  for (auto& streams : streams_)
    for (Stream& stream : streams) {
      if (!stream.under_way.empty()) driver_.cuStreamSynchronize(stream.handle);
      look(stream);
      if (stream.handle != nullptr) driver_.cuStreamDestroy(stream.handle);
    }
  mover_.close();
  for (const CUevent event : events_) driver_.cuEventDestroy(event);
  for (const auto& [address, memory] : pinned_) driver_.cuMemHostUnregister(memory->bytes().data());
  driver_.cuCtxSetCurrent(nullptr);
  if (holds_primary_) driver_.cuDevicePrimaryCtxRelease(device_);
}

}  // namespace braid::fabric::gpu
