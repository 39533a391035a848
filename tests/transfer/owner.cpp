// A process that owns memory, for tests that read, write, stop and kill it. It opens an engine as a
// user does, says where everything is, and then does what it is told, a line at a time.
//
//   transfer_owner [name=N] [listen=H:P] [provider=P]... [address=A]... [bytes=B] [secret=FILE]
//                  [insecure=1] [netns=N] [readable=FOLDER] [writable=FOLDER] [store=URL] [gpu=N]
// With gpu=N the buffers lie on that GPU, or the last one where there are fewer.
// says: NAME READ WRITE BOTH NONE   (the addresses of four buffers of B bytes, by their rights)
//   check BUFFER SEED OFFSET SIZE  -> right, or wrong AT
//   fill BUFFER SEED               -> filled
//   notified                       -> NAME SIZE, or nothing
//   watch BUFFER SEED COUNT SIZE   -> NAME-I PAYLOAD right, or wrong AT; ...  (by name; as each of
//   so
//                                     many notifications comes, bytes I * SIZE on are looked at)
//   unregister BUFFER              -> gone, or why not
//   replace BUFFER SEED            -> replaced, or why not   (it is unregistered, and memory of the
//                                     pattern, which is not, lies at the same address)
//   break ADDRESS                  -> broken COUNT     (all TCP connections there)
//   kill ADDRESS                   -> killed           (nobody can connect there any more)
//   report                         -> one line of JSON
//   load NAME ADDRESS SIZE BATCH THREADS -> loading   (each thread writes batches of so many times
//                                     SIZE bytes there, on and on)
//   unload                         -> over, or why it ended before
//   moved                          -> how many bytes of slices that were so far, or why it ended
//   leave                          -> it closes its engine and ends
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "braid/transfer.h"
#include "cuda/driver.h"
#include "tools/rail_sockets.h"
#include "transfer/pattern.h"

namespace {

using braid::Transfer;
using namespace braid::transfer::test;
using std::chrono::seconds;

struct Memory {
  Transfer::Buffer buffer{};
  std::span<std::byte> bytes;
  const braid::cuda::Driver* driver = nullptr;  // of GPU memory
};

void must(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(result));
}

/// The emulated server's, or the machine's where the environment names it.
const braid::cuda::Driver& open_gpu(int number) {
  const char* named = std::getenv("BRAID_TEST_DRIVER");
  static const auto driver =
      braid::cuda::open_driver(named != nullptr ? named : BRAID_EMULATOR).value();
  int count = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  must(driver.cuInit(0));
  must(driver.cuDeviceGetCount(&count));
  must(driver.cuDeviceGet(&device, std::min(number, count - 1)));
  must(driver.cuDevicePrimaryCtxRetain(&context, device));
  must(driver.cuCtxSetCurrent(context));
  return driver;
}

/// Four buffers, by what peers may do.
Memory make(Transfer& transfer, size_t size_bytes, Transfer::Rights rights,
            const braid::cuda::Driver* driver) {
  if (driver == nullptr) {
    const auto made = transfer.allocate_memory(size_bytes, rights).value();
    return {made.buffer, {static_cast<std::byte*>(made.memory), size_bytes}, nullptr};
  }
  CUdeviceptr address = 0;
  must(driver->cuMemAlloc(&address, size_bytes));
  auto* bytes = reinterpret_cast<std::byte*>(address);
  return {transfer.register_memory(bytes, size_bytes, rights).value(), {bytes, size_bytes}, driver};
}

std::string check(const Memory& memory, std::istringstream& line) {
  uint64_t seed = 0, offset = 0, size_bytes = 0;
  line >> seed >> offset >> size_bytes;
  std::span<const std::byte> bytes = memory.bytes.subspan(offset, size_bytes);
  std::vector<std::byte> copy;
  if (memory.driver != nullptr) {
    copy.resize(size_bytes);
    must(memory.driver->cuMemcpyDtoH(copy.data(), reinterpret_cast<CUdeviceptr>(bytes.data()),
                                     size_bytes));
    bytes = copy;
  }
  const auto wrong = wrong_at(bytes, seed);
  return wrong ? "wrong " + std::to_string(*wrong) : "right";
}

void fill_all(const Memory& memory, uint64_t seed) {
  if (memory.driver == nullptr) return fill(memory.bytes, seed);
  std::vector<std::byte> copy(memory.bytes.size());
  fill(copy, seed);
  must(memory.driver->cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(memory.bytes.data()), copy.data(),
                                   copy.size()));
}

std::string replace(Transfer& transfer, Memory& memory, uint64_t seed) {
  const braid::Status gone = transfer.unregister_memory(memory.buffer, seconds(10));
  if (!gone.ok()) return gone.message();
  void* there = mmap(memory.bytes.data(), memory.bytes.size(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (there != memory.bytes.data()) return "the address is somebody else's";
  fill(memory.bytes, seed);
  return "replaced";
}

std::string notified(Transfer& transfer) {
  const auto next = transfer.next_notification(seconds(0)).value();
  if (!next) return "nothing";
  return next->name + " " + std::to_string(next->payload.size());
}

std::string watch(Transfer& transfer, const Memory& memory, std::istringstream& line) {
  uint64_t seed = 0, count = 0, size_bytes = 0;
  line >> seed >> count >> size_bytes;
  std::set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    const auto next = transfer.next_notification(seconds(60)).value();
    if (!next) break;
    const uint64_t number = std::stoull(next->name.substr(next->name.find('-') + 1));
    const auto wrong =
        wrong_at(memory.bytes.subspan(number * size_bytes, size_bytes), seed + number);
    seen.insert(next->name + " " + std::to_string(next->payload.size()) + " " +
                (wrong ? "wrong " + std::to_string(*wrong) : "right") + "; ");
  }
  std::string all;
  for (const std::string& each : seen) all += each;
  return all;
}

/// Threads that write to another owner until the process is killed.
struct Load {
  std::mutex mutex;
  std::string wrong;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads_at_work;

  std::string start(Transfer& transfer, const Memory& memory, std::istringstream& line) {
    std::string name;
    uint64_t address = 0;
    size_t size_bytes = 0, batch = 0;
    int threads = 0;
    line >> name >> address >> size_bytes >> batch >> threads;
    const auto segment = transfer.open_segment(name, seconds(10));
    if (!segment.ok()) return segment.status().message();
    for (int i = 0; i < threads; ++i)
      threads_at_work.emplace_back([&transfer, &memory, this, segment, address, size_bytes, batch] {
        const Transfer::Request write{segment.value(), Transfer::Operation::kWrite,
                                      memory.bytes.data(), address, size_bytes};
        const std::vector<Transfer::Request> writes(batch, write);
        while (!is_over && write_once(transfer, writes)) {
        }
      });
    return "loading";
  }
  bool write_once(Transfer& transfer, const std::vector<Transfer::Request>& writes) {
    const auto batch = transfer.submit(writes).value();
    (void)transfer.wait(batch, seconds(60));
    const std::vector<Transfer::Outcome> outcomes = transfer.outcomes(batch).value();
    for (const Transfer::Outcome& outcome : outcomes) {
      if (outcome.is_done()) continue;
      const std::lock_guard lock(mutex);
      wrong = Transfer::cause_name(outcome.cause);
    }
    (void)transfer.forget(batch);
    const std::lock_guard lock(mutex);
    return wrong.empty();
  }
  std::string stop() {
    is_over = true;
    for (std::thread& thread : threads_at_work) thread.join();
    threads_at_work.clear();
    is_over = false;
    return wrong.empty() ? "over" : wrong;
  }
  std::string moved(Transfer& transfer) {
    constexpr std::string_view kBytes = "\"delivered_bytes\":";
    const std::string report = transfer.report(Transfer::Form::kJson).value();
    uint64_t moved_bytes = 0;
    for (size_t at = report.find(kBytes); at != std::string::npos; at = report.find(kBytes, at + 1))
      moved_bytes += std::stoull(report.substr(at + kBytes.size()));
    const std::lock_guard lock(mutex);
    return wrong.empty() ? std::to_string(moved_bytes) : wrong;
  }
} load;

std::string answer(Transfer& transfer, std::vector<Memory>& memory, std::istringstream& line) {
  std::string what, address;
  size_t which = 0;
  uint64_t seed = 0;
  line >> what;
  if (what == "notified") return notified(transfer);
  if (what == "load") return load.start(transfer, memory.front(), line);
  if (what == "unload") return load.stop();
  if (what == "moved") return load.moved(transfer);
  if (what == "report") return transfer.report(Transfer::Form::kJson).value();
  if (what == "break" || what == "kill") {
    line >> address;
    if (what == "kill") return "killed " + std::to_string(braid::tools::kill_rail(address));
    return "broken " + std::to_string(braid::tools::break_connections(address));
  }
  line >> which;
  if (what == "watch") return watch(transfer, memory.at(which), line);
  if (what == "check") return check(memory.at(which), line);
  if (what == "unregister") {
    const braid::Status gone = transfer.unregister_memory(memory.at(which).buffer, seconds(10));
    return gone.ok() ? "gone" : gone.message();
  }
  line >> seed;
  if (what == "replace") return replace(transfer, memory.at(which), seed);
  fill_all(memory.at(which), seed);
  return "filled";
}

/// A network namespace that `ip netns add` has made.
bool enter(const std::string& name) {
  const int file = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_there = file >= 0 && setns(file, CLONE_NEWNET) == 0;
  if (file >= 0) close(file);
  return is_there;
}

}  // namespace

int main(int count, char** arguments) {
  Transfer::Options options;
  uint64_t size_bytes = 4 << 20;
  std::string readable, writable;
  const braid::cuda::Driver* gpu = nullptr;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string key = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (key == "name") options.name = value;
    if (key == "listen") options.listen = value;
    if (key == "provider") options.providers.push_back(value);
    if (key == "address") options.addresses.push_back(value);
    if (key == "insecure") options.allow_unauthenticated = true;
    if (key == "secret") options.secret_file = value;
    if (key == "bytes") size_bytes = std::stoull(value);
    if (key == "store") options.store = value;
    if (key == "readable") readable = value;
    if (key == "writable") writable = value;
    if (key == "gpu") gpu = &open_gpu(std::stoi(value));
    options.gpu_memory = gpu != nullptr;
    if (key == "netns" && !enter(value)) return 1;
  }
  auto opened = Transfer::open(options);
  if (!opened.ok()) {
    std::cout << "error " << opened.status().message() << std::endl;
    return 1;
  }
  Transfer& transfer = opened.value();
  std::vector<Memory> memory;
  if (!readable.empty()) (void)transfer.export_folder("readable", readable, {true, false});
  if (!writable.empty()) (void)transfer.export_folder("writable", writable, {true, true});
  std::cout << transfer.name().value();
  for (const Transfer::Rights rights :
       {Transfer::Rights{true, false}, Transfer::Rights{false, true}, Transfer::Rights{true, true},
        Transfer::Rights{}}) {
    memory.push_back(make(transfer, size_bytes, rights, gpu));
    std::cout << " " << reinterpret_cast<uint64_t>(memory.back().bytes.data());
  }
  std::cout << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "leave";) {
    std::istringstream words(line);
    std::string said = answer(transfer, memory, words);
    if (!said.empty() && said.back() == '\n') said.pop_back();
    std::cout << said << std::endl;
  }
  (void)load.stop();
}
