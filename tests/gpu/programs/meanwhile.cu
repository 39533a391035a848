// While copies are under way: one operation after the other, in both directions, from the thread
// that enqueues the copies and from another one, on the GPU they go to and on the one that may
// relay. Prints a line for each with the time that the operation took; a hang ends with exit
// code 9.
// --json appends a line for each as it ends, so that nothing is lost by a hang.
//   meanwhile --list, and kUsage in meanwhile/choice.h
#include "meanwhile/choice.h"
#include "meanwhile/flow.cuh"
#include "meanwhile/operations.h"
#include "watch.h"

namespace meanwhile {

__global__ void add_one_loaded(unsigned* words) { atomicAdd(words, 1u); }

void launch_loaded(unsigned* words, cudaStream_t stream) {
  add_one_loaded<<<1, 1, 0, stream>>>(words);
}

}  // namespace meanwhile

namespace {

using namespace meanwhile;

constexpr double kPreparationMs = 60'000;

struct Taken {
  std::string operation, gpu, direction, thread;
  double operation_ms, copies_ms;

  std::string key() const { return operation + " " + gpu + " " + direction + " " + thread; }
};

class Run {
 public:
  explicit Run(const Choice& choice);
  void all();
  size_t taken() const { return taken_; }

 private:
  void add_gpu(int gpu);
  void both_threads(const Operation& operation, size_t gpu);
  void once(const Operation& operation, size_t gpu, Direction direction, bool is_other_thread);
  void say(const Taken& taken) const;

  const Choice& choice_;
  Watch& watch_ = Watch::of_process();
  std::vector<Scene> scenes_;  // by GPU
  size_t taken_ = 0;
  bool has_begun_;
  std::FILE* json_ = nullptr;
  std::unique_ptr<Flow> flow_;
};

Run::Run(const Choice& choice) : choice_(choice), has_begun_(choice.after.empty()) {
  if (!choice.json.empty()) {
    json_ = std::fopen(choice.json.c_str(), "a");
    require(json_ != nullptr, choice.json + " cannot be written");
  }
  int gpus = 0;
  MUST(cudaGetDeviceCount(&gpus));
  watch_.begin("the beginning", 2 * kPreparationMs);
  for (int gpu = 0; gpu < std::min(gpus, 2); ++gpu) add_gpu(gpu);
  if (scenes_.size() == 2) {
    scenes_[0].there = scenes_[1].device;
    scenes_[1].there = scenes_[0].device;
    scenes_[0].other_gpu = 1;
    scenes_[1].other_gpu = 0;
  }
  MUST(cudaSetDevice(0));
  flow_ = std::make_unique<Flow>(choice.copies, choice.size_bytes);
  for (Scene& scene : scenes_) {
    scene.side = flow_->stream();
    scene.halfway = flow_->halfway();
  }
}

void Run::add_gpu(int gpu) {
  MUST(cudaSetDevice(gpu));
  Scene scene{gpu,
              -1,
              new_stream(),
              new_stream(),
              nullptr,
              nullptr,
              pin(kScratchBytes),
              nullptr,
              allocate(kScratchBytes),
              nullptr,
              0};
  scene.pageable = static_cast<unsigned char*>(std::malloc(kScratchBytes));
  std::memset(scene.pageable, 0, kScratchBytes);
  launch_loaded(reinterpret_cast<unsigned*>(scene.device), scene.own);
  MUST(cudaDeviceSynchronize());
  scenes_.push_back(scene);
}

void Run::all() {
  for (const Operation& operation : kOperations)
    for (size_t gpu = 0; gpu < (operation.is_for_relay ? scenes_.size() : 1); ++gpu)
      if (choice_.takes(operation.name)) both_threads(operation, gpu);
}

void Run::both_threads(const Operation& operation, size_t gpu) {
  scenes_[gpu].turn = 0;
  for (const Direction direction : {Direction::kToDevice, Direction::kToHost}) {
    if (!choice_.direction.empty() && choice_.direction != name_of(direction)) continue;
    for (const bool is_other : {false, true}) {
      if (!choice_.thread.empty() && (choice_.thread == "other") != is_other) continue;
      once(operation, gpu, direction, is_other);
      ++scenes_[gpu].turn;
    }
  }
}

/// Milliseconds that the action took.
double timed(const Action& action, int gpu) {
  MUST(cudaSetDevice(gpu));
  const double begin_ms = now_ms();
  action.now();
  return now_ms() - begin_ms;
}

void Run::once(const Operation& operation, size_t gpu, Direction direction, bool is_other_thread) {
  const Scene& scene = scenes_[gpu];
  Taken taken{operation.name,
              gpu == 0 ? "target" : "relay",
              name_of(direction),
              is_other_thread ? "other" : "this",
              0,
              0};
  const std::string what = taken.key();
  if (!has_begun_) {
    has_begun_ = what == choice_.after;
    return;
  }
  watch_.begin("before " + what, kPreparationMs);
  remark.clear();
  MUST(cudaSetDevice(scene.gpu));
  const Action action = operation.prepare(scene);
  MUST(cudaDeviceSynchronize());
  MUST(cudaSetDevice(0));
  flow_->prepare(direction);

  watch_.begin(what, choice_.limit_ms);
  const double begin_ms = now_ms();
  flow_->enqueue_first_half(direction);
  if (is_other_thread) {
    std::thread other([&] { taken.operation_ms = timed(action, scene.gpu); });
    flow_->enqueue_second_half(direction);
    other.join();
  } else {
    flow_->enqueue_second_half(direction);
    taken.operation_ms = timed(action, scene.gpu);
  }
  watch_.begin("the copies beside " + what, choice_.limit_ms);
  flow_->finish();
  taken.copies_ms = now_ms() - begin_ms;

  watch_.begin("after " + what, kPreparationMs);
  MUST(cudaSetDevice(0));
  flow_->verify(direction, what);
  MUST(cudaSetDevice(scene.gpu));
  action.afterwards();
  MUST(cudaDeviceSynchronize());
  MUST(cudaSetDevice(0));
  say(taken);
  ++taken_;
}

void Run::say(const Taken& taken) const {
  std::printf("%s %s %s %s: ok", taken.operation.c_str(), taken.gpu.c_str(),
              taken.direction.c_str(), taken.thread.c_str());
  if (!remark.empty()) std::printf(" (%s)", remark.c_str());
  if (choice_.prints_times) std::printf(" %.2f ms", taken.operation_ms);
  std::printf("\n");
  std::fflush(stdout);
  if (json_ == nullptr) return;
  std::fprintf(
      json_,
      "{\"operation\": \"%s\", \"gpu\": \"%s\", \"direction\": \"%s\", \"thread\": \"%s\", "
      "\"operation_ms\": %.3f, \"copies_ms\": %.3f}\n",
      taken.operation.c_str(), taken.gpu.c_str(), taken.direction.c_str(), taken.thread.c_str(),
      taken.operation_ms, taken.copies_ms);
  require(std::fflush(json_) == 0, choice_.json + " cannot be written");
}

void list() {
  for (const Operation& operation : kOperations)
    std::printf("%s%s\n", operation.name, operation.is_for_relay ? " (target, relay)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  const Choice choice = read_choice(argc, argv);
  if (choice.lists) {
    list();
    return 0;
  }
  Run run(choice);
  run.all();
  require(run.taken() > 0, "nothing was chosen");
  Watch::of_process().begin("the end", kPreparationMs);
  std::printf("%zu operations beside copies\n", run.taken());
  return 0;
}
