// Copies through the C interface: every byte arrives, in the stream's order, whichever way it goes,
// and the outcome says which way that was.
#include <cstring>
#include <random>
#include <thread>

#include "fixture.h"
#include "support/gate.h"

namespace braid::test {
namespace {

using CopyTest = LibraryTest;

TEST_F(CopyTest, GoesBothWaysInTheStreamsOrder) {
  HostBuffer sent(driver(), kSize);
  HostBuffer received(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  sent.fill_random(1);
  received.fill_random(2);
  ASSERT_EQ(braid_copy(engine_, at(device), sent.data(), kSize, stream_, BRAID_PRIORITY_URGENT,
                       &outcome_),
            BRAID_OK)
      << braid_last_error();
  EXPECT_STREQ(outcome_.reason, "accelerated");
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  EXPECT_EQ(outcome_.native_bytes, 0u);
  ASSERT_EQ(braid_copy(engine_, received.data(), at(device), kSize, stream_, BRAID_PRIORITY_BULK,
                       &outcome_),
            BRAID_OK);
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  synchronize(stream_);
  EXPECT_EQ(bytes(sent), bytes(received));
}

TEST_F(CopyTest, IsMadeByTheDriverWhereBraidDoesNotHelp) {
  HostBuffer pinned(driver(), kSize);
  pinned.fill_random(3);
  const std::vector<uint8_t> pageable = bytes(pinned);
  DeviceBuffer device(driver(), kSize);
  DeviceBuffer other(driver(), kSize);
  const auto copy = [&](void* to, const void* from, uint64_t size_bytes) {
    EXPECT_EQ(braid_copy(engine_, to, from, size_bytes, stream_, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_EQ(outcome_.native_bytes, size_bytes);
    EXPECT_EQ(outcome_.accelerated_bytes, 0u);
    synchronize(stream_);
    return std::string(outcome_.reason);
  };
  EXPECT_EQ(copy(at(device), pinned.data(), 1000), "below_threshold");
  EXPECT_EQ(read(device, 1000), std::vector(pageable.begin(), pageable.begin() + 1000));
  EXPECT_EQ(copy(at(device), pageable.data(), kSize - (1 << 10)),
            "pageable");  // too small to stage
  MUST(driver(), cuMemcpyHtoD(device.at(), pinned.data(), kSize));
  EXPECT_EQ(copy(at(other), at(device), kSize), "not_linear");
  EXPECT_EQ(read(other, kSize), pageable);
}

TEST_F(CopyTest, StagesPageableMemoryBothWays) {
  constexpr uint64_t kLarge = 9 << 20;
  const braid_option rows[] = {{"BRAID_PAGEABLE", "2"}};
  const braid_options options{sizeof options, rows, 1};
  braid_engine* engine = nullptr;
  ASSERT_EQ(braid_open(&options, &engine), BRAID_OK) << braid_last_error();
  HostBuffer pinned(driver(), kLarge);
  pinned.fill_random(15);
  std::vector<uint8_t> sent = bytes(pinned), received(kLarge, 0);
  DeviceBuffer device(driver(), kLarge);
  ASSERT_EQ(braid_copy(engine, at(device), sent.data(), kLarge, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "staged");
  EXPECT_EQ(outcome_.accelerated_bytes, kLarge);
  ASSERT_EQ(braid_copy(engine, received.data(), at(device), kLarge, stream_, 0, &outcome_),
            BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "staged");
  EXPECT_EQ(received, sent);  // as cuMemcpyAsync returns, when the bytes have arrived
  braid_close(engine);
}

TEST_F(CopyTest, RowsThatLieApartGoByBothWays) {
  struct Shape {
    uint64_t row_bytes, rows, host_pitch_bytes, device_pitch_bytes;
    const char* reason;
  };
  for (const Shape& shape : {Shape{20000, 300, 20480, 24576, "accelerated"},
                             Shape{16384, 256, 16384, 16384, "accelerated"},  // which touch
                             Shape{1000, 300, 1024, 2048, "not_linear"}}) {
    SCOPED_TRACE(shape.row_bytes);
    HostBuffer sent(driver(), shape.host_pitch_bytes * shape.rows);
    HostBuffer received(driver(), shape.host_pitch_bytes * shape.rows);
    DeviceBuffer device(driver(), shape.device_pitch_bytes * shape.rows);
    sent.fill_random(shape.row_bytes);
    std::memset(received.data(), 0x5a, received.size());
    MUST(driver(), cuMemsetD8(device.at(), 0x77, shape.device_pitch_bytes * shape.rows));
    const uint64_t size_bytes = shape.row_bytes * shape.rows;
    const auto expect_way = [&] {
      EXPECT_STREQ(outcome_.reason, shape.reason);
      EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, size_bytes);
    };
    ASSERT_EQ(
        braid_copy_rows(engine_, at(device), shape.device_pitch_bytes, sent.data(),
                        shape.host_pitch_bytes, shape.row_bytes, shape.rows, stream_, 0, &outcome_),
        BRAID_OK)
        << braid_last_error();
    expect_way();
    ASSERT_EQ(braid_copy_rows(engine_, received.data(), shape.host_pitch_bytes, at(device),
                              shape.device_pitch_bytes, shape.row_bytes, shape.rows, stream_, 0,
                              &outcome_),
              BRAID_OK)
        << braid_last_error();
    expect_way();
    synchronize(stream_);
    const auto there = read(device, shape.device_pitch_bytes * shape.rows);
    for (uint64_t row = 0; row < shape.rows; ++row) {
      const uint8_t* from = sent.data() + row * shape.host_pitch_bytes;
      const uint8_t* back = received.data() + row * shape.host_pitch_bytes;
      const uint8_t* on_gpu = there.data() + row * shape.device_pitch_bytes;
      ASSERT_EQ(std::memcmp(from, back, shape.row_bytes), 0) << row;
      ASSERT_EQ(std::memcmp(from, on_gpu, shape.row_bytes), 0) << row;
      for (uint64_t at = shape.row_bytes; at < shape.host_pitch_bytes; ++at)
        ASSERT_EQ(back[at], 0x5a) << row;
      for (uint64_t at = shape.row_bytes; at < shape.device_pitch_bytes; ++at)
        ASSERT_EQ(on_gpu[at], 0x77) << row;
    }
  }
}

TEST_F(CopyTest, AForecastSaysWhatWouldBeAndCopiesNothing) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize), other(driver(), kSize);
  host.fill_random(16);
  MUST(driver(), cuMemsetD8(device.at(), 0x5a, kSize));
  const auto forecast = [&](void* to, const void* from, size_t size_bytes) {
    EXPECT_EQ(braid_forecast(engine_, &to, &from, &size_bytes, 1, stream_, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, size_bytes);
    return std::string(outcome_.reason);
  };
  EXPECT_EQ(forecast(at(device), host.data(), kSize), "accelerated");
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  EXPECT_EQ(forecast(at(device), host.data(), 1000), "below_threshold");
  EXPECT_EQ(outcome_.native_bytes, 1000u);
  EXPECT_EQ(forecast(at(device), at(other), kSize), "not_linear");
  synchronize(stream_);
  EXPECT_EQ(read(device, kSize), std::vector<uint8_t>(kSize, 0x5a));
  const auto all = statistics();
  EXPECT_TRUE(all.at("entry_points").empty()) << all;
}

TEST_F(CopyTest, ReachesTheDriversPoolOverEveryPath) {
  HostBuffer sent(driver(), kSize), received(driver(), kSize);
  sent.fill_random(4);
  const auto allocate = reinterpret_cast<decltype(&cuMemAllocAsync)>(symbol("cuMemAllocAsync"));
  const auto free = reinterpret_cast<decltype(&cuMemFreeAsync)>(symbol("cuMemFreeAsync"));
  CUdeviceptr memory = 0;
  ASSERT_EQ(allocate(&memory, kSize, stream_), CUDA_SUCCESS);
  void* pooled = reinterpret_cast<void*>(memory);
  ASSERT_EQ(braid_copy(engine_, pooled, sent.data(), kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  ASSERT_EQ(braid_copy(engine_, received.data(), pooled, kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  ASSERT_EQ(free(memory, stream_), CUDA_SUCCESS);
  synchronize(stream_);
  EXPECT_EQ(bytes(sent), bytes(received));
}

// All that names the memory is enqueued when a copy's call returns, so the driver lets it end.
TEST_F(CopyTest, PlainMemoryMayBeFreedBehindCopiesThatAreHeldBack) {
  const braid_option rows[] = {{"BRAID_MOVER", "copy-engine"}, {"BRAID_THRESHOLD", "64K"}};
  const braid_options options{sizeof options, rows, 2};
  braid_engine* engine = nullptr;
  ASSERT_EQ(braid_open(&options, &engine), BRAID_OK) << braid_last_error();
  HostBuffer sent(driver(), kSize), received(driver(), kSize);
  sent.fill_random(14);
  CUdeviceptr address = 0;
  MUST(driver(), cuMemAlloc(&address, kSize));
  void* memory = reinterpret_cast<void*>(address);
  test::Gate gate(driver());
  gate.hold(stream_);
  ASSERT_EQ(braid_copy(engine, memory, sent.data(), kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  ASSERT_EQ(braid_copy(engine, received.data(), memory, kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  const auto free = reinterpret_cast<decltype(&cuMemFreeAsync)>(symbol("cuMemFreeAsync"));
  EXPECT_EQ(free(address, stream_), CUDA_SUCCESS);
  gate.open();
  synchronize(stream_);
  EXPECT_EQ(bytes(sent), bytes(received));
  braid_close(engine);
}

TEST_F(CopyTest, TakesTheDefaultStreams) {
  HostBuffer host(driver(), kSize);
  for (const CUstream stream : {CUstream(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    DeviceBuffer device(driver(), kSize);
    host.fill_random(reinterpret_cast<uint64_t>(stream));
    ASSERT_EQ(braid_copy(engine_, at(device), host.data(), kSize, stream, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_STREQ(outcome_.reason, "accelerated");
    synchronize(stream);
    EXPECT_EQ(read(device, kSize), bytes(host));
  }
}

TEST_F(CopyTest, OfNoBytesDoesNothing) {
  EXPECT_EQ(braid_copy(engine_, nullptr, nullptr, 0, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "accelerated");
  EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, 0u);
}

TEST_F(CopyTest, ABatchMayMixDirectionsAndGpus) {
  HostBuffer up(driver(), 2 * kSize);
  HostBuffer down(driver(), kSize);
  HostBuffer source(driver(), kSize);
  DeviceBuffer here(driver(), kSize);
  DeviceBuffer full(driver(), kSize);
  use_gpu(1);
  DeviceBuffer there(driver(), kSize);
  use_gpu(0);
  up.fill_random(4);
  source.fill_random(5);
  MUST(driver(), cuMemcpyHtoD(full.at(), source.data(), kSize));
  void* const to[] = {at(here), down.data(), at(there)};
  const void* const from[] = {up.data(), at(full), up.data() + kSize};
  const size_t sizes[] = {kSize, kSize, kSize};
  ASSERT_EQ(braid_copy_batch(engine_, to, from, sizes, 3, stream_, 0, &outcome_), BRAID_OK)
      << braid_last_error();
  // The stream is GPU 0's: only its copies are carried.
  EXPECT_EQ(outcome_.accelerated_bytes, 2 * kSize);
  EXPECT_EQ(outcome_.native_bytes, kSize);
  EXPECT_STREQ(outcome_.reason, "foreign_context");
  synchronize(stream_);
  const std::vector<uint8_t> sent = bytes(up);
  EXPECT_EQ(read(here, kSize), std::vector(sent.begin(), sent.begin() + kSize));
  EXPECT_EQ(bytes(down), bytes(source));
  use_gpu(1);
  EXPECT_EQ(read(there, kSize), std::vector(sent.begin() + kSize, sent.end()));
}

// The driver has a part of it, which may end inside a piece, and relays have the rest.
TEST_F(CopyTest, ABatchThatSparesTheGpuIsSharedWithTheDriver) {
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>(300, 40'000), std::vector<size_t>{20'000'001, 30'000'003, 7}}) {
    SCOPED_TRACE(std::to_string(sizes.size()) + " pieces");
    constexpr size_t kGap = 96;
    const size_t count = sizes.size();
    size_t all = 0, room = 0;
    for (const size_t size_bytes : sizes) all += size_bytes, room += size_bytes + kGap;
    HostBuffer sent(driver(), room), returned(driver(), room);
    DeviceBuffer device(driver(), room);
    sent.fill_random(count);
    std::memset(returned.data(), 0, room);
    std::vector<void*> there, back;
    std::vector<const void*> from, middle;
    std::vector<uint8_t> expected(room, 0);
    for (size_t piece = 0, start = 0, end = room; piece < count; ++piece) {
      end -= sizes[piece] + kGap;
      from.push_back(sent.data() + start);
      there.push_back(at(device, end));
      middle.push_back(at(device, end));
      back.push_back(returned.data() + start);
      std::memcpy(expected.data() + start, sent.data() + start, sizes[piece]);
      start += sizes[piece] + kGap;
    }
    const auto expect_shared = [&](braid_status status) {
      ASSERT_EQ(status, BRAID_OK) << braid_last_error();
      EXPECT_STREQ(outcome_.reason, "accelerated");
      EXPECT_GT(outcome_.accelerated_bytes, all / 10);
      EXPECT_GT(outcome_.native_bytes, all / 10);
      EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, all);
      synchronize(stream_);
    };
    expect_shared(braid_copy_batch_sparing(engine_, there.data(), from.data(), sizes.data(), count,
                                           stream_, 0, &outcome_));
    expect_shared(braid_copy_batch_sparing(engine_, back.data(), middle.data(), sizes.data(), count,
                                           stream_, 0, &outcome_));
    EXPECT_EQ(bytes(returned), expected);
  }
}

TEST_F(CopyTest, GatherAndScatterAreEachOthersReverse) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr size_t kPieces = 200;
  constexpr size_t kSlot = 40000;  // pieces lie in slots of this size, in any order
  HostBuffer scattered(driver(), kPieces * kSlot);
  HostBuffer returned(driver(), kPieces * kSlot);
  scattered.fill_random(seed);
  std::memset(returned.data(), 0, returned.size());
  std::vector<size_t> slots(kPieces), sizes(kPieces);
  std::vector<const void*> from(kPieces);
  std::vector<void*> to(kPieces);
  std::vector<uint8_t> expected, elsewhere(returned.size(), 0);
  for (size_t piece = 0; piece < kPieces; ++piece) slots[piece] = piece;
  std::shuffle(slots.begin(), slots.end(), random);
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const size_t start = slots[piece] * kSlot;
    sizes[piece] = random() % (kSlot + 1);
    from[piece] = scattered.data() + start;
    to[piece] = returned.data() + start;
    expected.insert(expected.end(), scattered.data() + start,
                    scattered.data() + start + sizes[piece]);
    std::copy_n(scattered.data() + start, sizes[piece], elsewhere.begin() + start);
  }
  DeviceBuffer device(driver(), expected.size());
  ASSERT_EQ(braid_gather(engine_, at(device), from.data(), sizes.data(), kPieces, stream_,
                         BRAID_PRIORITY_URGENT, &outcome_),
            BRAID_OK)
      << braid_last_error();
  EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, expected.size());
  ASSERT_EQ(braid_scatter(engine_, to.data(), at(device), sizes.data(), kPieces, stream_,
                          BRAID_PRIORITY_BULK, &outcome_),
            BRAID_OK)
      << braid_last_error();
  synchronize(stream_);
  EXPECT_EQ(read(device, expected.size()), expected);
  EXPECT_EQ(bytes(returned), elsewhere);
}

TEST_F(CopyTest, TwoEnginesAndSeveralThreadsWorkBesideEachOther) {
  braid_engine* second = nullptr;
  ASSERT_EQ(braid_open(nullptr, &second), BRAID_OK) << braid_last_error();
  constexpr uint64_t kLarge = 5 << 20;  // above the default threshold too
  std::vector<std::thread> threads;
  for (braid_engine* engine : {engine_, second, engine_, second})
    threads.emplace_back([this, engine, seed = threads.size()] {
      use_gpu(0);
      HostBuffer host(driver(), kLarge);
      DeviceBuffer device(driver(), kLarge);
      host.fill_random(seed);
      EXPECT_EQ(
          braid_copy(engine, at(device), host.data(), kLarge, CU_STREAM_PER_THREAD, 0, nullptr),
          BRAID_OK);
      synchronize(CU_STREAM_PER_THREAD);
      EXPECT_EQ(read(device, kLarge), bytes(host));
    });
  for (std::thread& thread : threads) thread.join();
  braid_close(second);
}

TEST_F(CopyTest, ClosingWaitsForWhatIsInFlight) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  host.fill_random(7);
  ASSERT_EQ(braid_copy(engine_, at(device), host.data(), kSize, stream_, 0, nullptr), BRAID_OK);
  braid_close(engine_);
  engine_ = nullptr;
  synchronize(stream_);
  EXPECT_EQ(read(device, kSize), bytes(host));
}

TEST_F(CopyTest, StatisticsAreThoseOfThePreloadLibrarysShape) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  for (const uint64_t size_bytes : {kSize, kSize, uint64_t{10}})
    ASSERT_EQ(braid_copy(engine_, at(device), host.data(), size_bytes, stream_, 0, nullptr),
              BRAID_OK);
  synchronize(stream_);
  size_t needed = 0;
  ASSERT_EQ(braid_stats_json(engine_, nullptr, 0, &needed), BRAID_OK);
  std::string text(needed, '\0');
  EXPECT_EQ(braid_stats_json(engine_, text.data(), 5, &needed), BRAID_ERROR_ARGUMENT);
  const auto all = statistics();
  const auto& copies = all.at("entry_points").at("braid_copy");
  EXPECT_EQ(copies.at("accelerated").at("calls"), 2);
  EXPECT_EQ(copies.at("accelerated").at("bytes"), 2 * kSize);
  EXPECT_EQ(copies.at("below_threshold").at("bytes"), 10);
  EXPECT_EQ(all.at("movers").at("copy_engine").at("bytes"), 2 * kSize) << all;
  EXPECT_EQ(all.at("movers").at("native").at("bytes"), 10);
  uint64_t carried = 0;
  for (const auto& path : all.at("paths")) {
    EXPECT_EQ(path.at("mover"), "copy_engine");
    carried += path.at("bytes").get<uint64_t>();
  }
  EXPECT_EQ(carried, 2 * kSize);
  EXPECT_TRUE(all.at("problems").empty()) << all;
}

}  // namespace
}  // namespace braid::test
