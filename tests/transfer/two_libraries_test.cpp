// Two braid libraries in one process, as the Python door's and the program's own: both use the same
// libfabric, whose functions each replaces for its own engines.
#include <braid/transfer_abi.h>
#include <dlfcn.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBytes = 1 << 20;
constexpr uint64_t kLimitUs = 30'000'000;

/// A copy of libbraid_transfer.so: to the loader, another library.
class Library {
 public:
  explicit Library(const std::string& name) {
    const fs::path copy =
        fs::path(testing::TempDir()) / (name + "-" + std::to_string(getpid()) + ".so");
    fs::copy_file(BRAID_TRANSFER_LIBRARY, copy, fs::copy_options::overwrite_existing);
    handle_ = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    fs::remove(copy);
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    find("braid_transfer_open", open);
    find("braid_transfer_close", close);
    find("braid_transfer_name", name_of);
    find("braid_transfer_register_memory", register_memory);
    find("braid_transfer_open_segment", open_segment);
    find("braid_transfer_submit_and_wait", submit_and_wait);
    find("braid_transfer_last_error", last_error);
  }

  decltype(&braid_transfer_open) open = nullptr;
  decltype(&braid_transfer_close) close = nullptr;
  decltype(&braid_transfer_name) name_of = nullptr;
  decltype(&braid_transfer_register_memory) register_memory = nullptr;
  decltype(&braid_transfer_open_segment) open_segment = nullptr;
  decltype(&braid_transfer_submit_and_wait) submit_and_wait = nullptr;
  decltype(&braid_transfer_last_error) last_error = nullptr;

 private:
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(name);
  }
  void* handle_ = nullptr;  // is never unloaded
};

/// An engine of one of them, with memory that peers may read and write.
class Engine {
 public:
  Engine(const Library& library, const char* provider) : library_(library) {
    braid_transfer_options options{};
    options.struct_bytes = sizeof options;
    options.providers = &provider;
    options.provider_count = 1;
    must(library.open(&options, &engine_));
    uint64_t buffer = 0;
    must(library.register_memory(engine_, memory.data(), memory.size(),
                                 BRAID_TRANSFER_MAY_READ | BRAID_TRANSFER_MAY_WRITE, &buffer));
    char text[256] = {};
    size_t needed_bytes = 0;
    must(library.name_of(engine_, text, sizeof text, &needed_bytes));
    name = text;
  }
  ~Engine() { library_.close(engine_); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
  /// Sends the pattern of this seed there, and fetches it into the other half of the memory.
  void exchange(const std::string& with, uint64_t address, uint64_t seed) {
    uint64_t segment = 0;
    must(library_.open_segment(engine_, with.c_str(), kLimitUs, &segment));
    fill(std::span(memory).first(kBytes), seed);
    fill(std::span(memory).last(kBytes), seed + 1);
    for (const int operation : {BRAID_TRANSFER_WRITE, BRAID_TRANSFER_READ}) {
      std::byte* local = memory.data() + (operation == BRAID_TRANSFER_READ ? kBytes : 0);
      const braid_transfer_request request{segment, local, address, kBytes, operation, 0, 0};
      braid_transfer_outcome outcome{};
      uint64_t batch = 0;
      must(library_.submit_and_wait(engine_, &request, 1, nullptr, kLimitUs, &outcome, &batch));
      EXPECT_EQ(batch, 0u) << "it does not end";
      EXPECT_EQ(outcome.cause, BRAID_TRANSFER_DONE);
    }
    EXPECT_EQ(wrong_at(std::span(memory).last(kBytes), seed), std::nullopt);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(2 * kBytes);
  std::string name;

 private:
  void must(braid_status status) const {
    if (status != BRAID_OK) throw std::runtime_error(library_.last_error());
  }

  const Library& library_;
  braid_transfer* engine_ = nullptr;
};

class TransferTwoLibraries : public testing::TestWithParam<const char*> {
 protected:
  /// Shared memory connects no engines of one process.
  bool is_network() const { return std::string(GetParam()).starts_with("tcp"); }

  void exchange_with_owner(Engine& engine, uint64_t seed) {
    engine.exchange(owner.name, owner.addresses[Owner::kBoth], seed);
    EXPECT_EQ(owner.check(Owner::kBoth, seed, 0, kBytes), "right");
  }
  /// The other process connects, and writes.
  void owner_writes(Engine& to, uint64_t seed) {
    owner.fill(Owner::kRead, seed);
    const std::string before = owner.ask("moved");
    EXPECT_EQ(owner.ask("load " + to.name + " " + std::to_string(to.address()) + " " +
                        std::to_string(kBytes) + " 1 1"),
              "loading");
    EXPECT_TRUE(eventually([&] { return owner.ask("moved") != before; }));
    EXPECT_EQ(owner.ask("unload"), "over");
    EXPECT_EQ(wrong_at(std::span(to.memory).first(kBytes), seed), std::nullopt);
  }
  void exchange_all(Engine& one, Engine& other, uint64_t seed) {
    exchange_with_owner(one, seed);
    exchange_with_owner(other, seed + 10);
    if (!is_network()) return;
    one.exchange(other.name, other.address(), seed + 20);
    other.exchange(one.name, one.address(), seed + 30);
  }

  Owner owner{{std::string("provider=") + GetParam()}};
  const Library first{"first"}, second{"second"};
};

TEST_P(TransferTwoLibraries, EnginesOfBothReachEachOtherAndAnotherProcess) {
  std::optional<Engine> one(std::in_place, first, GetParam());
  Engine other(second, GetParam());
  exchange_all(*one, other, 100);
  owner_writes(*one, 200);
  owner_writes(other, 300);
  one.reset();
  exchange_with_owner(other, 400);
  owner_writes(other, 500);
  Engine again(first, GetParam());
  exchange_all(again, other, 600);
  owner_writes(again, 700);
}

/// The functions of libfabric are replaced by both at once.
TEST_P(TransferTwoLibraries, BothMayOpenTheirFirstEngineAtOnce) {
  std::optional<Engine> one, other;
  std::thread opening([&] { one.emplace(first, GetParam()); });
  other.emplace(second, GetParam());
  opening.join();
  exchange_all(*one, *other, 100);
}

INSTANTIATE_TEST_SUITE_P(Rails, TransferTwoLibraries, testing::Values("tcp;ofi_rxm", "shm"),
                         [](const auto& rail) { return std::string(rail.param).substr(0, 3); });

}  // namespace
}  // namespace braid::transfer::test
