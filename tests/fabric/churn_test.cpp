// Peers that come, write a little, and go: what a process holds stays the same. A few hundred in
// each run; BRAID_TEST_CHURN_VISITS says how many otherwise (10,000 in `make test-long`).
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "braid/fabric.h"
#include "fabric/churn.h"
#include "fabric/order.h"
#include "support/eventually.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Holdings;

constexpr int kProcesses = 2;       // at once
constexpr int kProcessVisits = 20;  // of each, one after the other
constexpr int kTurnVisits = kProcesses * kProcessVisits;

struct Case {
  const char* name;
  const char* provider;
  bool is_gpu;             // memory of both sides
  int host_visits_max;     // then the host is another engine
  int64_t bytes_of_visit;  // that may stay; those of libfabric 1.17 are named below
  const char* last;        // how the last engine of a process goes
  bool is_mapped = false;  // the host's memory, by the visitors
  const char* endpoints = "1";
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

// `net` loses an fi_info for each endpoint and each connection: 600 bytes each, in parts. `shm`
// loses the name of each endpoint, 280 bytes, and keeps a mapping and a place in its table for each
// peer until the domain is closed (quirks_shm.cpp). A process that ends may hold a lock of its
// (docs/fabric.md).
constexpr Case kCases[] = {
    {"tcp", "tcp;ofi_rxm", false, 1 << 30, 100, "ends"},
    {"net", "net", false, 1 << 30, 3200, "ends"},
    {"shm", "shm", false, 40, 1300, "leaves"},
    {"local", "local", false, 1 << 30, 100, "ends"},
    {"mapped", "local", false, 1 << 30, 100, "ends", true},
    {"staged_tcp", "tcp;ofi_rxm", true, 1 << 30, 100, "ends"},
    {"staged_shm", "shm", true, 40, 2600, "leaves"},
    {"tcp_endpoints", "tcp;ofi_rxm", false, 1 << 30, 300, "ends", false, "3"},
    {"shm_endpoints", "shm", false, 40, 3900, "leaves", false, "3"}};

/// An engine that is visited.
class Host {
 public:
  explicit Host(const Case& each)
      : is_gpu_(each.is_gpu),
        is_mapped_(each.is_mapped),
        fabric_(Fabric::open(test::visit_options(each.provider, each.is_gpu)).value()),
        address_(fabric::test::to_hex(fabric_.address().value())) {}

  const std::string& address() const { return address_; }

  void serve(int visits) {
    const auto end = std::chrono::steady_clock::now() + seconds(240);
    for (int gone = 0; gone < visits;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << gone << " of " << visits;
      while (const auto peer = fabric_.accept(milliseconds(1)).value()) receive(*peer);
      for (auto& [peer, visit] : visits_)
        if (!visit.is_over && fabric_.wait_count(visit.immediate, 1, Limit(0)).value() == 1)
          finish(peer, visit);
      while (const auto lost = fabric_.wait_lost(Limit(0)).value()) {
        ASSERT_TRUE(visits_.at(lost->peer).is_over) << "lost, as " << lost->why;
        ASSERT_TRUE(fabric_.disconnect(lost->peer).ok());
        visits_.erase(lost->peer);
        ++gone;
      }
    }
  }

 private:
  struct Visit {
    uint32_t number = 0;
    std::unique_ptr<test::VisitMemory> memory;  // null: it is allocated
    const std::byte* allocated = nullptr;
    Fabric::Region region{};
    std::vector<std::byte> get() const {
      return memory != nullptr ? memory->get()
                               : std::vector(allocated, allocated + test::kVisitBytes);
    }
    Fabric::Grant grant{};
    Fabric::Immediate immediate = 0;
    bool is_over = false;
  };

  void receive(Fabric::Peer peer) {
    Visit& visit = visits_[peer];
    visit.number = next_number_++;
    if (is_mapped_) {
      const auto allocated = fabric_.allocate_memory(test::kVisitBytes).value();
      visit.allocated = static_cast<const std::byte*>(allocated.memory);
      visit.region = allocated.region;
    } else {
      visit.memory = std::make_unique<test::VisitMemory>(is_gpu_);
      visit.region = fabric_.add_region(visit.memory->data(), test::kVisitBytes).value();
    }
    const auto granted = fabric_.grant(visit.region, peer, 0, test::kVisitBytes).value();
    visit.grant = granted.grant;
    visit.immediate = fabric_.acquire_immediate().value();
    const test::VisitOrder order{visit.number, visit.immediate};
    Fabric::ByteList message(sizeof order);
    std::memcpy(message.data(), &order, sizeof order);
    message.insert(message.end(), granted.descriptor.begin(), granted.descriptor.end());
    ASSERT_TRUE(fabric_.send(peer, message).ok());
  }

  void finish(Fabric::Peer peer, Visit& visit) {
    const std::vector<std::byte> bytes = visit.get();
    for (size_t i = 0; i < bytes.size(); ++i)
      ASSERT_EQ(bytes[i], test::byte_of_visit(visit.number, i)) << i;
    ASSERT_EQ(fabric_.revoke(visit.grant, seconds(60)).value(), Fabric::Fence::kFenced);
    ASSERT_TRUE(fabric_.forget(visit.grant).ok());
    ASSERT_TRUE(fabric_.remove_region(visit.region).ok());
    ASSERT_TRUE(fabric_.release(visit.immediate).ok());
    ASSERT_TRUE(fabric_.send(peer, Fabric::ByteList(1)).ok());
    visit.is_over = true;
  }

  const bool is_gpu_, is_mapped_;
  Fabric fabric_;
  std::string address_;
  std::map<Fabric::Peer, Visit> visits_;
  uint32_t next_number_ = 0;
};

class ChurnTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    // Otherwise clearing the buffers of rxm's endpoints takes most of the time.
    setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 0);
    setenv("BRAID_FABRIC_ENDPOINTS", GetParam().endpoints, 1);  // of the visitors too
    const auto options = test::visit_options(GetParam().provider, GetParam().is_gpu);
    const auto opened = Fabric::open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
  }

  static pid_t start(const std::string& address) {
    const std::string visits = std::to_string(kProcessVisits),
                      bytes = std::to_string(GetParam().bytes_of_visit);
    const pid_t process = fork();
    if (process != 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(BRAID_FABRIC_VISITOR, BRAID_FABRIC_VISITOR, GetParam().provider, address.c_str(),
          visits.c_str(), bytes.c_str(), GetParam().last, GetParam().is_gpu ? "gpu" : "host",
          nullptr);
    _exit(127);
  }

  /// kTurnVisits of them.
  static void visit(Host& host) {
    pid_t processes[kProcesses];
    for (pid_t& process : processes) process = start(host.address());
    host.serve(kTurnVisits);
    for (const pid_t process : processes) {
      int status = 0;
      waitpid(process, &status, 0);
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a visitor has failed";
    }
  }
};

/// The last ones may still be cleared away.
void expect_nothing_grown(const Holdings& before, int visits, const char* when) {
  std::string grown;
  EXPECT_TRUE(test::eventually([&] {
    grown = Holdings::now().grown_since(before, visits, ChurnTest::GetParam().bytes_of_visit);
    return grown.empty();
  })) << grown
      << when;
}

TEST_P(ChurnTest, PeersThatComeAndGoLeaveNothing) {
  const char* wanted = std::getenv("BRAID_TEST_CHURN_VISITS");
  const int visits = wanted != nullptr ? std::atoi(wanted) : 120;
  const int host_visits = std::min(visits, GetParam().host_visits_max);
  const bool is_one_host = host_visits == visits;
  {
    Host warm(GetParam());
    ASSERT_NO_FATAL_FAILURE(visit(warm));
  }
  const Holdings before = Holdings::now();
  for (int done = 0; done < visits; done += host_visits) {
    Host host(GetParam());
    ASSERT_NO_FATAL_FAILURE(visit(host));
    const Holdings early = Holdings::now();
    for (int i = kTurnVisits; i < host_visits; i += kTurnVisits)
      ASSERT_NO_FATAL_FAILURE(visit(host));
    if (is_one_host) expect_nothing_grown(early, visits - kTurnVisits, "while the engine is open");
  }
  expect_nothing_grown(before, visits, "once all engines are closed");
}

INSTANTIATE_TEST_SUITE_P(Providers, ChurnTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace braid
