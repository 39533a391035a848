// An engine and another process (peer.cpp), which writes what it is told to: for tests that stop
// and kill it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "fabric/engine.h"
#include "fabric/fake_provider/use.h"
#include "fabric/host/processes.h"
#include "fabric/ofi/domain.h"
#include "fabric/order_message.h"
#include "fabric/process_rail.h"
#include "fabric/wires.h"
#include "support/stop.h"

namespace braid::fabric::test {

inline constexpr uint64_t kSecondNs = 1'000'000'000;
inline constexpr uint32_t kForEver = 1u << 30;

/// The other process; killed at the end, and with the test.
class Peer {
 public:
  /// It sends itself the signal at the point (peer.cpp); 0: it does not.
  Peer(const std::string& provider, const Address& owner, int point = 0, int signal_there = 0,
       const char* points = "steps") {
    const std::string address = to_hex(encode(owner)), at = std::to_string(point),
                      number = std::to_string(signal_there);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(BRAID_FABRIC_PEER, BRAID_FABRIC_PEER, provider.c_str(), address.c_str(), at.c_str(),
            number.c_str(), points, nullptr);
      _exit(127);
    }
    started_ = process_;
  }
  ~Peer() {
    if (process_ > 0) end(SIGKILL);
  }
  /// Also of one that has halted.
  pid_t process() const { return started_; }
  void signal(int number) const { kill(process_, number); }
  /// Until SIGCONT.
  void stop() const { braid::test::stop(process_); }
  /// Whether it has been stopped, or has ended.
  bool has_halted() {
    if (waitpid(process_, &status_, WNOHANG | WUNTRACED) != process_) return false;
    if (!WIFSTOPPED(status_)) process_ = -1;
    return true;
  }
  /// waitpid's, once it has halted.
  int status() const { return status_; }
  int end(int number) {
    if (process_ <= 0) return 0;
    if (number != 0) signal(number);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

 private:
  pid_t process_ = -1;  // while it lives
  pid_t started_ = -1;
  int status_ = 0;
};

/// Of a provider, as open_process_rail names it.
class ProcessTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    use_fake_providers();
    open_engine();
  }

  /// Closes the one before.
  void open_engine() {
    engine_.reset();
    auto domain = open_process_rail(GetParam());
    ASSERT_TRUE(domain.ok()) << domain.status().message();
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(std::move(domain).value());
    EngineOptions options;
    options.engine = 4711 + static_cast<uint64_t>(getpid());
    options.processes = host_processes();
    engine_ = Engine::open(std::move(rails), options).value();
  }

  uint64_t now_ns() const {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
  }
  bool wait(const std::function<bool()>& until, double seconds = 60) {
    const uint64_t end_ns = now_ns() + static_cast<uint64_t>(seconds * kSecondNs);
    while (!until()) {
      if (now_ns() > end_ns) return false;
      engine_->step(now_ns());
    }
    return true;
  }

  /// Starts another process, and says who it is.
  uint64_t start(std::unique_ptr<Peer>& peer) {
    peer = std::make_unique<Peer>(GetParam(), engine_->address());
    std::optional<uint64_t> newcomer;
    EXPECT_TRUE(wait([&] {
      newcomer = engine_->accept();
      return newcomer.has_value();
    }));
    return newcomer.value_or(0);
  }

  struct Job {
    uint64_t grant;
    uint32_t immediate;
    uint64_t region;
  };
  Job order(uint64_t peer, MutableBytes memory, uint32_t writes) {
    Job job;
    job.region = engine_->add_region(memory).value();
    const Granted granted = engine_->grant(job.region, peer, 0, memory.size()).value();
    job.grant = granted.grant;
    job.immediate = engine_->counters().acquire().value();
    const Order told{writes, job.immediate, memory.size()};
    EXPECT_TRUE(engine_->send(peer, message_of(told, granted.descriptor)).ok());
    return job;
  }
  uint64_t count(const Job& job) { return engine_->counters().count(job.immediate); }
  Fence fence(const Job& job) { return engine_->fence(job.grant).value(); }

  std::unique_ptr<Engine> engine_;
};

inline std::vector<std::string> libfabrics_providers() {
  std::vector<std::string> all;
  for (const ofi::Quirks* quirks : ofi::all_quirks()) all.emplace_back(quirks->provider);
  all.insert(all.end(), {"tcp;ofi_rxm+endpoints", "shm+endpoints"});
  return all;
}
inline std::string name_of_provider(const testing::TestParamInfo<std::string>& provider) {
  const bool is_staged = provider.param.ends_with("+gpu");
  const bool is_mapped = provider.param.ends_with("+mapped");
  const bool has_several = provider.param.find("+endpoints") != std::string::npos;
  return (is_staged   ? "staged_"
          : is_mapped ? "mapped_"
                      : "") +
         provider.param.substr(0, 3) + (has_several ? "_endpoints" : "");
}

}  // namespace braid::fabric::test
