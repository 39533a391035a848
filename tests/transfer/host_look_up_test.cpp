// Hosts whose names a silent resolver looks up: nobody waits for it for longer than he likes.
#include "transfer/directory/host_look_up.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "support/in_time.h"
#include "transfer/directory/lease.h"

namespace braid::transfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Answers nobody until it is let go, at the end at the latest.
class SilentResolver {
 public:
  ~SilentResolver() { let_go(); }
  Resolver resolver() const {
    return [state = state_](const std::string&, uint16_t port, AddressUse use) {
      std::unique_lock lock(state->mutex);
      ++state->asked;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return state->is_let_go; });
      return look_up_host("127.0.0.1", port, use);
    };
  }
  void let_go() const {
    const std::lock_guard lock(state_->mutex);
    state_->is_let_go = true;
    state_->changed.notify_all();
  }
  void wait_until_asked() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->asked > 0; });
  }
  int asked() const {
    const std::lock_guard lock(state_->mutex);
    return state_->asked;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int asked = 0;
    bool is_let_go = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

const HostAndPort kNamed{"store.example", 6379};

TEST(HostLookUp, EndsWhenItsCallerLikesAndGoesOnWithTheSameQuestion) {
  const SilentResolver silent;
  HostLookUp host(kNamed, silent.resolver());
  for (int i = 0; i < 3; ++i) {
    const auto found = host.find(monotonic_after_ns(20'000));
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.status().message().find("'store.example' cannot be looked up"),
              std::string::npos);
  }
  silent.let_go();
  const auto found = host.find(monotonic_after_ns(60'000'000));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(number_of(*found.value()), "127.0.0.1");
  EXPECT_EQ(silent.asked(), 1) << "a thread for each attempt would pile up";
  EXPECT_TRUE(host.find(monotonic_after_ns(60'000'000)).ok());
  EXPECT_EQ(silent.asked(), 2) << "a host may move";
}

TEST(HostLookUp, OfANumberAsksNobody) {
  const SilentResolver silent;
  for (const char* number : {"127.0.0.1", "::1"}) {
    HostLookUp host({number, 1}, silent.resolver());
    EXPECT_TRUE(host.find(WaitEnd(0)).ok()) << number;
  }
  EXPECT_EQ(silent.asked(), 0);
}

TEST(HostLookUp, MayEndBeforeItsResolverDoes) {
  const SilentResolver silent;
  EXPECT_FALSE(HostLookUp(kNamed, silent.resolver()).find(WaitEnd(0)).ok());
  silent.wait_until_asked();
}

/// As braid_transfer_close does while its engine's name is renewed. A call that nobody ends takes
/// kStoreLimitMs.
template <typename Open>
void expect_that_a_store_is_let_go(const Open& open) {
  EXPECT_TRUE(test::is_once_within(milliseconds(kStoreLimitMs * 9 / 10), [&] {
    const SilentResolver silent;
    std::unique_ptr<Store> store = open(silent.resolver());
    const auto begun = steady_clock::now();
    std::thread renews([&] { EXPECT_FALSE(store->put("prefill-0", "here", "here").ok()); });
    silent.wait_until_asked();
    store->end_by(monotonic_after_ns(100'000));
    renews.join();
    store = nullptr;
    return steady_clock::now() - begun;
  }));
}

TEST(HostLookUp, HoldsUpNoStoreThatIsClosed) {
  expect_that_a_store_is_let_go([](Resolver resolver) {
    return open_redis({StoreKind::kRedis, kNamed}, std::move(resolver));
  });
  const auto etcd = open_etcd({StoreKind::kEtcd, kNamed});
  if (!etcd.ok()) GTEST_SKIP() << etcd.status().message();
  expect_that_a_store_is_let_go([](Resolver resolver) {
    return open_etcd({StoreKind::kEtcd, kNamed}, std::move(resolver)).value();
  });
}

}  // namespace
}  // namespace braid::transfer
