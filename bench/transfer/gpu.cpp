// transfer_gpu: what transfers of GPU memory reach, in turns with what else does the same. Prints a
// line of JSON for each; every byte is verified; exit code 1 if one was wrong.
//
//   transfer_gpu [--memory 256M] [--turns 7] [--turn-ms 200] [--gpus 0,1] [--providers local,...]
//                [--file FOLDER] [--only host|peer|file]...
//
//   host  between pinned host memory and a GPU of this process: against braid_copy (braid.h)
//   peer  between GPUs of two processes: against cuMemcpyPeerAsync between the same GPUs in one
//         process. Where there is one GPU, both are that
//   file  from a file in FOLDER (/dev/shm: the page cache) to a GPU: against the slower of from the
//         file to host memory, by a transfer, and braid_copy from there
//
// `--gpus`: of this process, and of the other one; where there are fewer, the last.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/units.h"
#include "braid/braid.h"
#include "braid/transfer.h"
#include "cuda/driver.h"

namespace braid::bench {
namespace {

constexpr std::chrono::seconds kLimit{60};

struct Command {
  uint64_t memory_bytes = 256 << 20;
  int turns = 7;
  double turn_s = 0.2;
  int gpus[2] = {0, 1};
  std::vector<std::string> providers;
  std::string folder = "/dev/shm";
  std::set<std::string> rows;
  bool has(const char* row) const { return rows.empty() || rows.count(row) > 0; }
};

[[noreturn]] void end(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  _exit(1);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) end(result.status().message());
  return std::move(result).value();
}

Command parse(int count, char** words) {
  Command command;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i], value = words[i + 1];
    if (name == "--memory") command.memory_bytes = value_of(parse_size(value));
    if (name == "--turns") command.turns = std::max(std::atoi(value.c_str()), 1);
    if (name == "--turn-ms") command.turn_s = std::atof(value.c_str()) / 1000;
    if (name == "--gpus") std::sscanf(value.c_str(), "%d,%d", &command.gpus[0], &command.gpus[1]);
    if (name == "--file") command.folder = value;
    if (name == "--only") command.rows.insert(value);
    std::istringstream list(name == "--providers" ? value : "");
    for (std::string word; std::getline(list, word, ',');) command.providers.push_back(word);
  }
  if (count % 2 == 0) end("an option lacks its value");
  return command;
}

// ---- The GPU ----

/// A primary context, and memory there.
class Gpu {
 public:
  Gpu(int number, uint64_t size_bytes) : driver_(value_of(cuda::open_driver())) {
    int count = 0;
    CUdevice device = 0;
    must(driver_.cuInit(0), "cuInit");
    must(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
    must(driver_.cuDeviceGet(&device, std::min(number, count - 1)), "cuDeviceGet");
    must(driver_.cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
    use();
    must(driver_.cuMemAlloc(&address_, size_bytes), "cuMemAlloc");
    must(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  void must(CUresult result, const char* call) const {
    if (result != CUDA_SUCCESS) end(std::string(call) + ": " + driver_.describe(result));
  }
  void use() const { must(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  void wait() const { must(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }
  void* pinned(uint64_t size_bytes) const {
    void* memory = nullptr;
    must(driver_.cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    return memory;
  }
  const cuda::Driver& driver() const { return driver_; }
  CUcontext context() const { return context_; }
  CUdeviceptr address() const { return address_; }
  void* memory() const { return reinterpret_cast<void*>(address_); }
  CUstream stream() const { return stream_; }

 private:
  cuda::Driver driver_;
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
  CUstream stream_ = nullptr;
};

uint64_t word_at(uint64_t index, uint64_t seed) { return (index + seed) * 0x9e3779b97f4a7c15; }

void fill(void* memory, uint64_t size_bytes, uint64_t seed) {
  auto* words = static_cast<uint64_t*>(memory);
  for (uint64_t i = 0; i < size_bytes / sizeof(uint64_t); ++i) words[i] = word_at(i, seed);
}

bool is_right(const Gpu& gpu, uint64_t size_bytes, uint64_t seed) {
  gpu.use();
  std::vector<uint64_t> words(size_bytes / sizeof(uint64_t));
  gpu.must(gpu.driver().cuMemcpyDtoH(words.data(), gpu.address(), size_bytes), "cuMemcpyDtoH");
  for (uint64_t i = 0; i < words.size(); ++i)
    if (words[i] != word_at(i, seed)) return false;
  return true;
}

// ---- The other process ----

/// It has memory on its GPU, and says whether it is right.
class Other {
 public:
  Other(const Command& command) {  // forks: before CUDA starts
    if (pipe(to_) != 0 || pipe(from_) != 0) end("no pipe");
    process_ = fork();
    if (process_ == 0) serve(command);
    name.resize(512);
    if (read(from_[0], name.data(), name.size()) != static_cast<ssize_t>(name.size()) ||
        read(from_[0], &address, sizeof address) != sizeof address)
      end("the other process has ended");
    name.resize(std::strlen(name.c_str()));
  }
  ~Other() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  bool check(uint64_t seed) const {
    char is_right = 0;
    return write(to_[1], &seed, sizeof seed) == sizeof seed && read(from_[0], &is_right, 1) == 1 &&
           is_right != 0;
  }

  std::string name;
  uint64_t address = 0;

 private:
  [[noreturn]] void serve(const Command& command) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Gpu gpu(command.gpus[1], command.memory_bytes);
    Transfer::Options options;
    options.gpu_memory = true;
    options.providers = command.providers;
    Transfer transfer = value_of(Transfer::open(options));
    (void)value_of(transfer.register_memory(gpu.memory(), command.memory_bytes, {true, true}));
    std::string said = value_of(transfer.name());
    said.resize(512);
    const uint64_t where = gpu.address();
    (void)!write(from_[1], said.data(), said.size());
    (void)!write(from_[1], &where, sizeof where);
    for (uint64_t seed = 0; read(to_[0], &seed, sizeof seed) == sizeof seed;) {
      const char answer = bench::is_right(gpu, command.memory_bytes, seed) ? 1 : 0;
      (void)!write(from_[1], &answer, 1);
    }
    _exit(0);
  }

  int to_[2], from_[2];
  pid_t process_ = -1;
};

// ---- Turns ----

/// Moves all memory so many times.
struct Side {
  std::string name;
  std::function<void(uint64_t times)> move;
  uint64_t times = 1;
  std::vector<double> gbps = {};
};

double seconds_of(const std::function<void()>& moving) {
  const auto begin = std::chrono::steady_clock::now();
  moving();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// braid against the slowest of the others, turn by turn.
bool compare(const Command& command, const char* what, double bar, Side braid,
             std::vector<Side> others, const std::function<bool()>& verify) {
  const auto calibrate = [&](Side& side) {
    side.move(2);  // warms up
    const double seconds = seconds_of([&] { side.move(1); });
    side.times = std::max<uint64_t>(static_cast<uint64_t>(command.turn_s / seconds), 1);
  };
  const auto turn = [&](Side& side) {
    const double seconds = seconds_of([&] { side.move(side.times); });
    side.gbps.push_back(static_cast<double>(side.times * command.memory_bytes) / seconds / 1e9);
    return side.gbps.back();
  };
  calibrate(braid);
  for (Side& other : others) calibrate(other);
  std::vector<double> ratios;
  for (int i = 0; i < command.turns; ++i) {
    const double reached = turn(braid);
    double slowest = 1e9;
    for (Side& other : others) slowest = std::min(slowest, turn(other));
    ratios.push_back(reached / slowest);
  }
  const bool is_verified = verify();
  std::printf(
      "{\"row\": \"A12\", \"what\": \"%s\", \"figure\": %.3f, \"bar\": %.2f, "
      "\"braid_gbps\": %.2f",
      what, median(ratios), bar, median(braid.gbps));
  for (const Side& other : others)
    std::printf(", \"%s_gbps\": %.2f", other.name.c_str(), median(other.gbps));
  std::printf(", \"verified\": %s}\n", is_verified ? "true" : "false");
  std::fflush(stdout);
  return is_verified;
}

// ---- What is compared ----

class Bench {
 public:
  Bench(const Command& command, const Other* other)
      : command_(command),
        other_(other),
        gpu_(command.gpus[0], command.memory_bytes),
        host_(gpu_.pinned(command.memory_bytes)),
        transfer_(open(command)) {
    (void)value_of(transfer_.register_memory(gpu_.memory(), command.memory_bytes, {true, true}));
    (void)value_of(transfer_.register_memory(host_, command.memory_bytes, {true, true}));
    own_ = value_of(transfer_.open_segment(value_of(transfer_.name()), kLimit));
    const braid_option at_once{"BRAID_OPENING", "wait"};
    const braid_options options{sizeof(braid_options), &at_once, 1};
    if (braid_open(&options, &engine_) != BRAID_OK) end(braid_last_error());
  }
  ~Bench() { braid_close(engine_); }
  bool host() {
    const auto address = gpu_.address();
    fill(host_, command_.memory_bytes, 1);
    const bool to_gpu =
        compare(command_, "host to GPU", 0.97,
                {"braid", [&](uint64_t n) { move(own_, Operation::kWrite, host_, address, n); }},
                {{"copy", [&](uint64_t n) { copy(gpu_.memory(), host_, n); }}}, [&] {
                  clear();
                  move(own_, Operation::kWrite, host_, address, 1);
                  return is_right(gpu_, command_.memory_bytes, 1);
                });
    const bool to_host =
        compare(command_, "GPU to host", 0.97,
                {"braid", [&](uint64_t n) { move(own_, Operation::kRead, host_, address, n); }},
                {{"copy", [&](uint64_t n) { copy(host_, gpu_.memory(), n); }}}, [&] {
                  std::memset(host_, 0, command_.memory_bytes);
                  move(own_, Operation::kRead, host_, address, 1);
                  clear();
                  copy(gpu_.memory(), host_, 1);
                  return is_right(gpu_, command_.memory_bytes, 1);
                });
    return to_gpu && to_host;
  }

  bool peer() {
    const auto there = value_of(transfer_.open_segment(other_->name, kLimit));
    const Gpu far(command_.gpus[1], command_.memory_bytes);
    gpu_.use();
    if (far.context() != gpu_.context()) gpu_.driver().cuCtxEnablePeerAccess(far.context(), 0);
    const auto peer_copy = [&](uint64_t times) {
      gpu_.use();
      for (uint64_t i = 0; i < times; ++i)
        gpu_.must(
            gpu_.driver().cuMemcpyPeerAsync(far.address(), far.context(), gpu_.address(),
                                            gpu_.context(), command_.memory_bytes, gpu_.stream()),
            "cuMemcpyPeerAsync");
      gpu_.wait();
    };
    fill(host_, command_.memory_bytes, 2);
    copy(gpu_.memory(), host_, 1);
    return compare(
        command_, "GPU to GPU of another process", 0.9,
        {"braid",
         [&](uint64_t n) { move(there, Operation::kWrite, gpu_.memory(), other_->address, n); }},
        {{"peer_copy", peer_copy}}, [&] { return other_->check(2); });
  }

  bool file() {
    const std::string name = "braid-transfer-gpu-" + std::to_string(getpid());
    const std::string path = command_.folder + "/" + name;
    fill(host_, command_.memory_bytes, 3);
    const int made = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (made < 0 || !transfer_.export_folder("bench", command_.folder, {true, false}).ok())
      end("cannot make a file in " + command_.folder);
    for (uint64_t at = 0; at < command_.memory_bytes;) {
      const ssize_t put = write(made, static_cast<char*>(host_) + at, command_.memory_bytes - at);
      if (put <= 0) end("cannot write " + path);
      at += static_cast<uint64_t>(put);
    }
    close(made);
    const auto opened = value_of(transfer_.open_file(own_, "bench/" + name, {true, false}, kLimit));
    const bool is_verified =
        compare(command_, "file to GPU", 0.8,
                {"braid", [&](uint64_t n) { move(opened, Operation::kRead, gpu_.memory(), 0, n); }},
                {{"file_to_host", [&](uint64_t n) { move(opened, Operation::kRead, host_, 0, n); }},
                 {"host_to_gpu", [&](uint64_t n) { copy(gpu_.memory(), host_, n); }}},
                [&] {
                  clear();
                  move(opened, Operation::kRead, gpu_.memory(), 0, 1);
                  return is_right(gpu_, command_.memory_bytes, 3);
                });
    unlink(path.c_str());
    return is_verified;
  }

 private:
  using Operation = Transfer::Operation;

  static Transfer open(const Command& command) {
    Transfer::Options options;
    options.gpu_memory = true;
    options.providers = command.providers;
    return value_of(Transfer::open(options));
  }

  /// So many requests in one batch.
  void move(Transfer::Segment segment, Operation operation, void* local, uint64_t address,
            uint64_t times) {
    const std::vector<Transfer::Request> requests(
        times, {segment, operation, local, address, command_.memory_bytes});
    const auto batch = value_of(transfer_.submit(requests));
    if (!value_of(transfer_.wait(batch, kLimit))) end("a batch has not ended");
    const std::vector<Transfer::Outcome> outcomes = value_of(transfer_.outcomes(batch));
    for (const Transfer::Outcome& each : outcomes)
      if (!each.is_done()) end(Transfer::cause_name(each.cause));
    (void)transfer_.forget(batch);
  }
  void copy(void* to, const void* from, uint64_t times) {
    gpu_.use();
    for (uint64_t i = 0; i < times; ++i)
      if (braid_copy(engine_, to, from, command_.memory_bytes, gpu_.stream(), BRAID_PRIORITY_BULK,
                     nullptr) != BRAID_OK)
        end(braid_last_error());
    gpu_.wait();
  }
  void clear() {
    gpu_.use();
    gpu_.must(
        gpu_.driver().cuMemsetD8Async(gpu_.address(), 0, command_.memory_bytes, gpu_.stream()),
        "cuMemsetD8Async");
    gpu_.wait();
  }

  const Command& command_;
  const Other* other_;
  Gpu gpu_;
  void* host_;
  Transfer transfer_;
  Transfer::Segment own_{};
  braid_engine* engine_ = nullptr;
};

}  // namespace
}  // namespace braid::bench

int main(int count, char** words) {
  using namespace braid::bench;
  const Command command = parse(count, words);
  std::optional<Other> other;
  if (command.has("peer")) other.emplace(command);
  Bench bench(command, other ? &*other : nullptr);
  bool are_right = true;
  if (command.has("host")) are_right = bench.host() && are_right;
  if (command.has("peer")) are_right = bench.peer() && are_right;
  if (command.has("file")) are_right = bench.file() && are_right;
  return are_right ? 0 : 1;
}
