// Processes that write over the same limited rails at once: each gets its share, and what one that
// is stopped or killed has used, the others get. Needs root and iproute2; elsewhere it is skipped.
#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>

#include "transfer/limited_rails.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

constexpr int kRails = 2;
constexpr double kAllGbps = 2 * 0.05 * 0.95;  // 400 Mbit each, less what headers take
constexpr size_t kBytes = 1 << 20;

class TransferSharing : public testing::Test {
 protected:
  void SetUp() override {
    if (!rails_.is_up()) GTEST_SKIP() << "needs root, network namespaces, iproute2 and tbf";
    std::vector<std::string> arguments = {"netns=" + rails_.there(), "provider=tcp;ofi_rxm",
                                          "insecure=1", "bytes=" + std::to_string(kBytes)};
    for (int rail = 0; rail < kRails; ++rail)
      arguments.push_back("address=" + LimitedRails::there_address(rail));
    target_ = std::make_unique<Owner>(arguments);
    ASSERT_EQ(target_->addresses.size(), 4u) << target_->name;
  }
  /// A process that writes with so many threads, on and on.
  Owner& add_writer(int threads) {
    std::vector<std::string> arguments = {"provider=tcp;ofi_rxm", "insecure=1",
                                          "bytes=" + std::to_string(kBytes)};
    for (int rail = 0; rail < kRails; ++rail)
      arguments.push_back("address=" + LimitedRails::here_address(rail));
    writers_.push_back(std::make_unique<Owner>(arguments));
    EXPECT_EQ(writers_.back()->ask("load " + target_->name + " " +
                                   std::to_string(target_->addresses[Owner::kBoth]) + " " +
                                   std::to_string(kBytes) + " 1 " + std::to_string(threads)),
              "loading");
    return *writers_.back();
  }
  /// GB/s of each, over so long.
  static std::vector<double> measure(const std::vector<Owner*>& writers,
                                     std::chrono::milliseconds span) {
    std::vector<double> bytes;
    const auto begun = std::chrono::steady_clock::now();
    for (Owner* writer : writers) bytes.push_back(-std::stod(writer->ask("moved")));
    std::this_thread::sleep_for(span);
    for (size_t i = 0; i < writers.size(); ++i) bytes[i] += std::stod(writers[i]->ask("moved"));
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
    for (double& each : bytes) each /= took.count();
    return bytes;
  }
  static double sum(const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0);
  }
  static double jain(const std::vector<double>& all) {
    const double squares = std::inner_product(all.begin(), all.end(), all.begin(), 0.0);
    return sum(all) * sum(all) / (static_cast<double>(all.size()) * squares);
  }

  /// All that writers can get: where the CPUs are slow, no more than the only one does now, which
  /// is more than one rail has.
  static double all_gbps(Owner& only) {
    double most = 0;
    for (int turn = 0; turn < 3; ++turn) most = std::max(most, measure({&only}, 1s)[0]);
    EXPECT_TRUE(comes_about([&] {
      most = std::max(most, measure({&only}, 1s)[0]);
      return most > 0.6 * kAllGbps;
    }));
    return std::min(kAllGbps, most);
  }
  static bool is_even(const std::vector<double>& gbps, double all_gbps) {
    for (const double each : gbps) std::printf("%.4f ", each);
    std::printf("of %.4f GB/s, Jain %.3f\n", all_gbps, jain(gbps));
    return jain(gbps) > 0.95 && sum(gbps) > 0.85 * all_gbps;
  }
  /// On a busy machine a rail may fall out for seconds.
  static bool comes_about(const std::function<bool()>& is_so) { return eventually(is_so); }

  LimitedRails rails_{kRails, "400mbit"};
  std::unique_ptr<Owner> target_;
  std::vector<std::unique_ptr<Owner>> writers_;
};

TEST_F(TransferSharing, TwoGetTheSameAndOneThatIsStoppedOrKilledLeavesAll) {
  Owner& few = add_writer(2);
  const double all = all_gbps(few);
  Owner& many = add_writer(16);
  const auto is_fair = [&] { return is_even(measure({&many, &few}, 2s), all); };
  const auto has_all = [&] { return measure({&few}, 1s)[0] > 0.8 * all; };
  EXPECT_TRUE(comes_about(is_fair));
  many.stop();
  EXPECT_TRUE(comes_about(has_all)) << "nobody waits for one that stands still";
  many.signal(SIGCONT);
  EXPECT_TRUE(comes_about(is_fair));
  many.end(SIGKILL);
  EXPECT_TRUE(comes_about(has_all));
}

TEST_F(TransferSharing, FourGetTheSameThoughOneHasEightTimesTheThreads) {
  std::vector<Owner*> all{&add_writer(16)};
  const double gbps = all_gbps(*all[0]);
  for (int i = 0; i < 3; ++i) all.push_back(&add_writer(2));
  EXPECT_TRUE(comes_about([&] { return is_even(measure(all, 4s), gbps); }));
}

}  // namespace
}  // namespace braid::transfer::test
