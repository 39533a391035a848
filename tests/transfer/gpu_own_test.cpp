// GPU memory within one process: host and GPU, GPU and GPU, file and GPU. Every byte is verified.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/gate.h"
#include "support/lock_holder.h"
#include "transfer/own_gpu.h"

namespace braid::transfer::test {
namespace {

TEST_F(TransferOwnGpu, MovesBetweenHostAndGpuEitherWay) {
  fill(host(), 1);
  ASSERT_EQ(run({request(Operation::kWrite, host().data(), on(0), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(on(0), kBytes, 1), std::nullopt);
  put_pattern(on(1), kBytes, 2);
  ASSERT_EQ(run({request(Operation::kRead, host().data(), on(1), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(host(), 2), std::nullopt);
  // The GPU's memory as the near side, the host's as the far one.
  ASSERT_EQ(run({request(Operation::kRead, at(on(0)), host_address(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(on(0), kBytes, 2), std::nullopt);
  put_pattern(on(0), kBytes, 3);
  ASSERT_EQ(run({request(Operation::kWrite, at(on(0)), host_address(), kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(host(), 3), std::nullopt);
}

TEST_F(TransferOwnGpu, MovesBetweenGpus) {
  put_pattern(on(0), kBytes, 4);
  ASSERT_EQ(run({request(Operation::kWrite, at(on(0)), on(1), kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(on(1), kBytes, 4), std::nullopt);
  put_pattern(on(1), kBytes, 5);
  ASSERT_EQ(run({request(Operation::kRead, at(on(0)), on(1), kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(on(0), kBytes, 5), std::nullopt);
}

TEST_F(TransferOwnGpu, MovesBetweenFileAndGpuAtEveryPlace) {
  const auto file = open_file("kv");
  put_pattern(on(0), kBytes, 6);
  auto all = request(Operation::kWrite, at(on(0)), 0, kBytes - 5);
  all.segment = file;
  ASSERT_EQ(run({all}), std::vector{Cause::kDone});
  const std::vector<std::byte> written = read_file("kv");
  ASSERT_EQ(written.size(), kBytes - 5);
  EXPECT_EQ(wrong_at(written, 6), std::nullopt);
  std::vector<Transfer::Request> reads;
  size_t place = 0;
  for (const size_t size : {1, 4096, 4097, 524'288, 524'289, 1'500'001}) {
    reads.push_back(request(Operation::kRead, at(on(1) + place), place + 13, size));
    reads.back().segment = file;
    place += size;
  }
  ASSERT_EQ(run(reads), std::vector(reads.size(), Cause::kDone));
  for (const auto& read : reads)
    EXPECT_EQ(
        wrong_on_gpu(reinterpret_cast<CUdeviceptr>(read.local), read.size_bytes, 6, read.address),
        std::nullopt)
        << read.size_bytes;
}

TEST_F(TransferOwnGpu, AFileThatEndsBeforeIsOutsideAndTheOthersAreDone) {
  const auto file = open_file("short");
  auto written = request(Operation::kWrite, host().data(), 0, 700'000);
  fill(host(), 7);
  written.segment = file;
  ASSERT_EQ(run({written}), std::vector{Cause::kDone});
  auto beyond = request(Operation::kRead, at(on(0)), 0, 3 << 20);
  auto within = request(Operation::kRead, at(on(0) + (4 << 20)), 5, 600'000);
  beyond.segment = within.segment = file;
  EXPECT_EQ(run({beyond, within}), (std::vector{Cause::kOutside, Cause::kDone}));
  EXPECT_EQ(wrong_on_gpu(on(0) + (4 << 20), 600'000, 7, 5), std::nullopt);
}

TEST_F(TransferOwnGpu, ABatchMixesHostGpuAndFile) {
  const auto file = open_file("mixed");
  constexpr size_t kPart = 300'001;
  fill(host().first(kPart), 8);
  put_pattern(on(0), kPart, 9);
  auto to_file = request(Operation::kWrite, host().data(), 0, kPart);
  to_file.segment = file;
  EXPECT_EQ(run({request(Operation::kWrite, host().data(), on(1), kPart),
                 request(Operation::kWrite, at(on(0)), host_address(1 << 20), kPart),
                 request(Operation::kWrite, at(on(0)), on(1) + (1 << 20), kPart),
                 request(Operation::kWrite, host().data(), host_address(2 << 20), kPart), to_file}),
            std::vector(5, Cause::kDone));
  EXPECT_EQ(wrong_on_gpu(on(1), kPart, 8), std::nullopt);
  EXPECT_EQ(wrong_at(host().subspan(1 << 20, kPart), 9), std::nullopt);
  EXPECT_EQ(wrong_on_gpu(on(1) + (1 << 20), kPart, 9), std::nullopt);
  EXPECT_EQ(wrong_at(host().subspan(2 << 20, kPart), 8), std::nullopt);
  EXPECT_EQ(wrong_at(read_file("mixed"), 8), std::nullopt);
}

TEST_F(TransferOwnGpu, RightsAndBordersHoldForTheOwnMemoryTooAndEachBadRequestFailsAlone) {
  DeviceBuffer closed(driver(), kBytes), unknown(driver(), 4096);
  const auto buffer = transfer_->register_memory(at(closed.at()), kBytes, {}).value();
  put_pattern(closed.at(), kBytes, 10);
  fill(host(), 11);
  EXPECT_EQ(run({request(Operation::kWrite, host().data(), closed.at(), 4096),
                 request(Operation::kRead, host().data(), closed.at(), 4096),
                 request(Operation::kWrite, host().data(), on(0) + kBytes - 8, 16),
                 request(Operation::kWrite, at(unknown.at()), on(0), 16),
                 request(Operation::kWrite, host().data(), on(1), 4096)}),
            (std::vector{Cause::kNotAllowed, Cause::kNotAllowed, Cause::kOutside,
                         Cause::kLocalMemory, Cause::kDone}));
  EXPECT_EQ(wrong_on_gpu(closed.at(), kBytes, 10), std::nullopt);
  EXPECT_EQ(wrong_at(host(), 11), std::nullopt);
  EXPECT_EQ(wrong_on_gpu(on(1), 4096, 11), std::nullopt);
  EXPECT_TRUE(transfer_->unregister_memory(buffer, kLimit).ok());
}

TEST_F(TransferOwnGpu, AnEngineWithoutGpuMemorySaysHowToOpenIt) {
  auto plain = Transfer::open({}).value();
  const auto refused = plain.register_memory(at(on(0)), kBytes, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("gpu_memory"), std::string::npos);
  DeviceBuffer small(driver(), 4096);
  EXPECT_FALSE(transfer_->register_memory(at(small.at()), 64 << 20, {}).ok())
      << "it reaches beyond its allocation";
}

TEST_F(TransferOwnGpu, ItsEndIsToldByTheDescriptor) {
  const int descriptor = transfer_->event_descriptor().value();
  put_pattern(on(0), kBytes, 12);
  const auto batch =
      transfer_->submit({request(Operation::kRead, host().data(), on(0), kBytes)}).value();
  pollfd awaited{descriptor, POLLIN, 0};
  ASSERT_EQ(poll(&awaited, 1, 20'000), 1) << "nobody drives the engine but its own thread";
  EXPECT_EQ(transfer_->take_ended().value(), std::vector{batch});
  EXPECT_EQ(wrong_at(host(), 12), std::nullopt);
}

TEST_F(TransferOwnGpu, ExplainNamesTheHops) {
  const auto file = open_file("explained");
  auto read = request(Operation::kRead, at(on(0)), 0, kBytes);
  read.segment = file;
  const std::string text = transfer_->explain(read, Transfer::Form::kText).value();
  EXPECT_NE(text.find("a file to host memory"), std::string::npos) << text;
  EXPECT_NE(text.find("host memory to GPU 0"), std::string::npos) << text;
  EXPECT_EQ(text.find("a file to host memory, assumed"), std::string::npos) << text;
  const std::string direct =
      transfer_
          ->explain(request(Operation::kWrite, host().data(), on(0), kBytes), Transfer::Form::kJson)
          .value();
  EXPECT_NE(direct.find("host memory to GPU 0"), std::string::npos) << direct;
}

/// The relays open beside the program.
TEST_F(TransferOwnGpu, ExplainNamesTheRelaysThatShareACopy) {
  if (gpus() < 3) GTEST_SKIP() << "waived: needs 3 GPUs, this server has " << gpus();
  constexpr size_t kLarge = 64 << 20;
  HostBuffer large(driver(), kLarge);
  DeviceBuffer target(driver(), kLarge);
  const auto a = transfer_->register_memory(large.data(), kLarge, {}).value();
  const auto b = transfer_->register_memory(at(target.at()), kLarge, {true, true}).value();
  const auto copy = request(Operation::kWrite, large.data(), target.at(), kLarge);
  std::string text;
  EXPECT_TRUE(braid::test::eventually([&] {
    EXPECT_EQ(run({copy}), std::vector{Cause::kDone});
    text = transfer_->explain(copy, Transfer::Form::kText).value();
    return text.find("; GPU 1 to GPU 0 (") != std::string::npos;
  })) << text;
  EXPECT_NE(text.find("GB/s: host memory to GPU 0 ("), std::string::npos) << text;
  EXPECT_NE(text.find("GB/s: host memory to GPU 1 ("), std::string::npos) << text;
  EXPECT_NE(text.find(" % of each copy"), std::string::npos) << text;
  const auto small = request(Operation::kWrite, host().data(), on(0), 65536);
  EXPECT_EQ(transfer_->explain(small, Transfer::Form::kText).value().find(" % of each copy"),
            std::string::npos)
      << "the driver makes a small copy alone";
  EXPECT_TRUE(transfer_->unregister_memory(a, kLimit).ok());
  EXPECT_TRUE(transfer_->unregister_memory(b, kLimit).ok());
}

/// What is under way ends, and then nothing more of it is copied.
TEST_F(TransferOwnGpu, WhatIsCancelledIsFinal) {
  for (uint64_t turn = 0; turn < 10; ++turn) {
    fill(host(), 20 + turn);
    std::vector<Transfer::Request> requests;
    for (size_t place = 0; place + 65536 <= kBytes; place += 65536)
      requests.push_back(request(Operation::kWrite, &host()[place], on(0) + place, 65536));
    const auto batch = transfer_->submit(requests).value();
    ASSERT_TRUE(transfer_->cancel(batch).ok());
    const auto causes = end(*transfer_, batch);
    for (size_t i = 0; i < causes.size(); ++i) {
      EXPECT_TRUE(causes[i] == Cause::kDone || causes[i] == Cause::kCancelled);
      if (causes[i] != Cause::kDone) continue;
      EXPECT_EQ(wrong_on_gpu(on(0) + i * 65536, 65536, 20 + turn, i * 65536), std::nullopt);
    }
    put_pattern(on(0), kBytes, 90);  // the memory is the caller's again
    fill(host(), 91);
    usleep(5000);
    EXPECT_EQ(wrong_on_gpu(on(0), kBytes, 90), std::nullopt) << "it landed late, turn " << turn;
  }
}

/// Between host memory and a GPU they go over every link, as `braid_copy` makes them.
TEST_F(TransferOwnGpu, LargeCopiesTakeEveryLink) {
  if (gpus() < 3) GTEST_SKIP() << "waived: needs 3 GPUs, this server has " << gpus();
  constexpr size_t kLarge = 64 << 20;
  const braid_option at_once{"BRAID_OPENING", "wait"};
  const braid_options options{sizeof(braid_options), &at_once, 1};
  braid_engine* engine = nullptr;  // the process's counters are in its report too
  ASSERT_EQ(braid_open(&options, &engine), BRAID_OK) << braid_last_error();
  std::string counted;
  const auto takes_links = [&] {
    std::vector<char> text(1 << 20);
    EXPECT_EQ(braid_stats_json(engine, text.data(), text.size(), nullptr), BRAID_OK);
    counted = text.data();
    return counted.find("\"target\":0,\"via\":1,\"direction\":\"h2d\"") != std::string::npos;
  };
  HostBuffer host(driver(), kLarge);
  DeviceBuffer device(driver(), kLarge);
  const std::span bytes(reinterpret_cast<std::byte*>(host.data()), kLarge);
  const auto a = transfer_->register_memory(host.data(), kLarge, {}).value();
  const auto b = transfer_->register_memory(at(device.at()), kLarge, {true, true}).value();
  for (uint64_t turn = 0; turn < 30 && !takes_links(); ++turn) {
    fill(bytes, 50 + turn);
    ASSERT_EQ(run({request(Operation::kWrite, host.data(), device.at(), kLarge)}),
              std::vector{Cause::kDone});
    ASSERT_EQ(wrong_on_gpu(device.at(), kLarge, 50 + turn), std::nullopt);
  }
  EXPECT_TRUE(takes_links()) << counted;
  EXPECT_TRUE(transfer_->unregister_memory(a, kLimit).ok());
  EXPECT_TRUE(transfer_->unregister_memory(b, kLimit).ok());
  braid_close(engine);
}

// ---- A driver that makes a call wait ----

/// A thread of the program's holds the lock of GPU 0's context, as cuMemFree does while a stream is
/// held back: copies there wait in the driver, and nothing else does.
TEST_F(TransferOwnGpu, ACallThatTheDriverHoldsUpHoldsUpNothingElse) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the lock is the emulated driver's";
  if (gpus() < 2) GTEST_SKIP() << "waived: needs 2 GPUs";
  // Streams, pinned memory and whatever else is made once.
  fill(host(), 30);
  const auto file = open_file("blocked");
  auto to_file = request(Operation::kWrite, at(on(0)), 0, kBytes);
  to_file.segment = file;
  ASSERT_EQ(run({request(Operation::kWrite, host().data(), on(0), kBytes),
                 request(Operation::kWrite, host().data(), on(1), kBytes), to_file}),
            std::vector(3, Cause::kDone));
  use_gpu(0);
  CUdeviceptr freed = 0;
  MUST(driver(), cuMemAlloc(&freed, 4096));
  braid::test::Gate gate(driver());
  gate.hold(new_stream());
  {
    braid::test::LockHolder holder(driver(), context(0), freed);
    fill(host(), 31);
    auto from_file = request(Operation::kRead, at(on(0)), 0, kBytes);
    from_file.segment = file;
    const auto held =
        transfer_->submit({request(Operation::kWrite, host().data(), on(0), kBytes), from_file})
            .value();
    EXPECT_FALSE(transfer_->wait(held, 100ms).value());
    std::vector<std::byte> other(kBytes), far(kBytes);
    fill(other, 32);
    const auto a = transfer_->register_memory(other.data(), kBytes, {}).value();
    const auto b = transfer_->register_memory(far.data(), kBytes, {false, true}).value();
    EXPECT_EQ(run({request(Operation::kWrite, other.data(), reinterpret_cast<uint64_t>(far.data()),
                           kBytes)}),
              std::vector{Cause::kDone})
        << "host memory";
    EXPECT_EQ(wrong_at(far, 32), std::nullopt);
    EXPECT_EQ(run({request(Operation::kWrite, other.data(), on(1), kBytes)}),
              std::vector{Cause::kDone})
        << "another GPU";
    EXPECT_FALSE(transfer_->wait(held, 1200ms).value()) << "it is late, and not lost";
    EXPECT_FALSE(holder.has_ended());
    gate.open();
    EXPECT_EQ(end(*transfer_, held), std::vector(2, Cause::kDone));
    EXPECT_TRUE(transfer_->unregister_memory(a, kLimit).ok());
    EXPECT_TRUE(transfer_->unregister_memory(b, kLimit).ok());
  }
}

/// What a copy reads or writes is in use at both ends, whichever of them the request calls local.
TEST_F(TransferOwnGpu, MemoryAtTheFarEndIsInUseUntilTheCopyHasEnded) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the lock is the emulated driver's";
  fill(host(), 33);
  ASSERT_EQ(run({request(Operation::kWrite, host().data(), on(0), kBytes)}),
            std::vector{Cause::kDone});
  use_gpu(0);
  CUdeviceptr freed = 0;
  MUST(driver(), cuMemAlloc(&freed, 4096));
  braid::test::Gate gate(driver());
  gate.hold(new_stream());
  braid::test::LockHolder holder(driver(), context(0), freed);
  const auto held =
      transfer_->submit({request(Operation::kWrite, host().data(), on(0), kBytes)}).value();
  EXPECT_FALSE(transfer_->wait(held, 100ms).value());
  EXPECT_FALSE(transfer_->unregister_memory(buffers_[0], 100ms).ok());
  gate.open();
  EXPECT_EQ(end(*transfer_, held), std::vector{Cause::kDone});
  EXPECT_TRUE(transfer_->unregister_memory(buffers_[0], kLimit).ok());
}

// ---- A driver that refuses ----

/// The third copy is refused, and others that were put beside it are not to blame.
class TransferGpuFaults : public TransferOwnGpu {
 protected:
  std::string faults() const override {
    return R"({"calls": [{"name": "cuMemcpyAsync", "nth": 3, "error": "CUDA_ERROR_INVALID_VALUE"}]})";
  }
};

TEST_F(TransferGpuFaults, ACopyThatIsRefusedOnceIsMadeAgain) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated driver injects faults";
  fill(host(), 40);
  std::vector<Transfer::Request> requests;
  for (size_t place = 0; place + 262144 <= kBytes; place += 262144)  // apart, so that none merge
    requests.push_back(request(Operation::kWrite, &host()[place], on(0) + place, 262144 - 8));
  EXPECT_EQ(run(requests), std::vector(requests.size(), Cause::kDone));
  for (const auto& each : requests)
    EXPECT_EQ(wrong_on_gpu(each.address, each.size_bytes, 40, each.address - on(0)), std::nullopt);
}

/// From the fifth copy on, all are refused.
class TransferGpuDies : public TransferOwnGpu {
 protected:
  std::string faults() const override {
    std::string calls;
    for (int nth = 5; nth < 60; ++nth)
      calls += std::string(calls.empty() ? "" : ", ") + R"({"name": "cuMemcpyAsync", "nth": )" +
               std::to_string(nth) + R"(, "error": "CUDA_ERROR_LAUNCH_FAILED"})";
    return R"({"calls": [)" + calls + "]}";
  }
};

TEST_F(TransferGpuDies, RequestsFailWithACauseOfTheirOwnAndHostMemoryGoesOn) {
  if (!is_emulated()) GTEST_SKIP() << "waived: the emulated driver injects faults";
  fill(host(), 41);
  std::vector<Transfer::Request> requests;
  for (size_t place = 0; place + 262144 <= kBytes; place += 262144)
    requests.push_back(request(Operation::kWrite, &host()[place], on(0) + place, 262144 - 8));
  requests.push_back(
      request(Operation::kWrite, host().data(), host_address(kBytes / 2), kBytes / 2));
  const auto causes = run(requests);
  EXPECT_EQ(causes.back(), Cause::kDone);
  EXPECT_GT(std::count(causes.begin(), causes.end(), Cause::kGpuError), 5);
  for (size_t i = 0; i + 1 < causes.size(); ++i) {
    EXPECT_TRUE(causes[i] == Cause::kDone || causes[i] == Cause::kGpuError);
    if (causes[i] != Cause::kDone) continue;
    EXPECT_EQ(wrong_on_gpu(requests[i].address, requests[i].size_bytes, 41, i * 262144),
              std::nullopt);
  }
}

}  // namespace
}  // namespace braid::transfer::test
