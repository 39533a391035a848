// cuMemcpyBatchAsync in both its forms: every byte, every error and which entry it belongs to.
#include <cstring>

#include "batch.h"

namespace braid::emulator_test {
namespace {

// Pieces of one memory go to shuffled places of another; what lies between stays.
TEST_F(Batch, EveryByteArrivesBetweenMemoriesOfAllKinds) {
  constexpr size_t kRoom = 1 << 20;
  constexpr size_t kSlot = 4096;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  CUcontext other = server.use(1);
  const CUdeviceptr on_other = server.device_memory(kRoom);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_NE(other, context);
  std::vector<uint8_t> pageable[2] = {std::vector<uint8_t>(kRoom), std::vector<uint8_t>(kRoom)};
  const std::vector<CUdeviceptr> memories = {
      server.device_memory(kRoom),         server.device_memory(kRoom), on_other,
      number(server.pinned_memory(kRoom)), number(pageable[0].data()),  number(pageable[1].data())};
  const auto any = server.symbol<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>("cuMemcpy");
  for (const CUdeviceptr from : memories)
    for (const CUdeviceptr to : memories) {
      if (from == to) continue;
      const auto sent = random_bytes(kRoom, random());
      auto expected = random_bytes(kRoom, random());
      ASSERT_EQ(any(from, number(sent.data()), kRoom), CUDA_SUCCESS);
      ASSERT_EQ(any(to, number(expected.data()), kRoom), CUDA_SUCCESS);
      ASSERT_EQ(server.cu.cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
      std::vector<size_t> slots(kRoom / kSlot);
      for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
      std::shuffle(slots.begin(), slots.end(), random);
      Arguments with;
      for (size_t i = 0; i < slots.size(); ++i) {
        const size_t at = i * kSlot + random() % 64;
        const size_t target = slots[i] * kSlot + random() % 64;
        const size_t size = 1 + random() % (kSlot - 64);
        with.add(to + target, from + at, size);
        std::memcpy(expected.data() + target, sent.data() + at, size);
      }
      const bool old_form = random() % 2 == 0;
      ASSERT_EQ(old_form ? call_first(with, stream) : call_second(with, stream), CUDA_SUCCESS);
      synchronize();
      std::vector<uint8_t> got(kRoom);
      ASSERT_EQ(any(number(got.data()), to, kRoom), CUDA_SUCCESS);
      ASSERT_TRUE(got == expected);
    }
}

TEST_F(Batch, TheLegacyStreamIsRefused) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* host = server.pinned_memory(64);
  Arguments with;
  with.add(device, number(host), 64);
  for (const CUstream legacy : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
    EXPECT_EQ(call_first(with, legacy), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(fail_index, kNoEntry);
    EXPECT_EQ(call_second(with, legacy), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(call_first(with, reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  // The per-thread stream is a stream like others, whichever way it is named.
  for (const uint8_t value : {1, 2, 3, 4}) {
    std::memset(host, value, 64);
    if (value == 1) {
      EXPECT_EQ(call_first(with, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    }
    if (value == 2) {
      EXPECT_EQ(call_second(with, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    }
    constexpr cuuint64_t kThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (value == 3) {
      first = find<First>(12080, kThread);
      EXPECT_EQ(call_first(with, nullptr), CUDA_SUCCESS);
      EXPECT_EQ(fail_index, kUntouched);
    }
    if (value == 4) {
      second = find<Second>(13000, kThread);
      EXPECT_EQ(call_second(with, nullptr), CUDA_SUCCESS);
    }
    ASSERT_EQ(server.cu.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EXPECT_EQ(download(device, 64), std::vector<uint8_t>(64, value));
  }
}

TEST_F(Batch, AttributesAreChecked) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* host = server.pinned_memory(64);
  Arguments good;
  for (size_t i = 0; i < 4; ++i) good.add(device + 16 * i, number(host + 16 * i), 16);
  good.attrs.assign(2, good.attrs[0]);
  good.first = {0, 2};
  EXPECT_EQ(call_first(good, stream), CUDA_SUCCESS);
  const auto broken = [&](const char* why, size_t entry, auto change) {
    Arguments with = good;
    change(with);
    refused(with, entry, why);
  };
  broken("none", kNoEntry, [](Arguments& with) { with.attrs.clear(); });
  broken("more than entries", kNoEntry, [](Arguments& with) {
    with.attrs.assign(5, with.attrs[0]);
    with.first = {0, 1, 2, 3, 4};
  });
  broken("the first is not 0", kNoEntry, [](Arguments& with) { with.first = {1, 2}; });
  broken("twice the same", kNoEntry, [](Arguments& with) { with.first = {0, 0}; });
  broken("beyond the last", kNoEntry, [](Arguments& with) { with.first = {0, 4}; });
  broken("falling", kNoEntry, [](Arguments& with) {
    with.attrs.assign(3, with.attrs[0]);
    with.first = {0, 3, 2};
  });
  broken("no order", 2, [](Arguments& with) {
    with.attrs[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  });
  broken("unknown order", 0, [](Arguments& with) {
    with.attrs[0].srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(4);
  });
  broken("unknown flag", 2, [](Arguments& with) { with.attrs[1].flags = 2; });
  good.attrs[1].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  EXPECT_EQ(call_second(good, stream), CUDA_SUCCESS);
  Arguments nothing;
  refused(nothing, kNoEntry, "no entries");
  for (int missing = 0; missing < 5; ++missing) {
    EXPECT_EQ(
        first(missing == 0 ? nullptr : good.to.data(), missing == 1 ? nullptr : good.from.data(),
              missing == 2 ? nullptr : good.sizes.data(), 4,
              missing == 3 ? nullptr : good.attrs.data(),
              missing == 4 ? nullptr : good.first.data(), 2, &fail_index, stream),
        CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(fail_index, kNoEntry);
  }
  EXPECT_EQ(first(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr, stream),
            CUDA_ERROR_INVALID_VALUE);
  synchronize();
}

TEST_F(Batch, AnEntryOfNoBytesIsWrong) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* host = server.pinned_memory(64);
  Arguments with;
  for (size_t i = 0; i < 3; ++i) with.add(device + 16 * i, number(host + 16 * i), i == 1 ? 0 : 16);
  refused(with, 1, "no bytes");
}

TEST_F(Batch, OneWrongEntryAndNothingMoves) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* host = server.pinned_memory(64);
  std::memset(host, 7, 64);
  ASSERT_EQ(server.cu.cuMemsetD8(device, 1, 64), CUDA_SUCCESS);
  const std::pair<CUdeviceptr, CUdeviceptr> wrong[] = {{device + 49, number(host)},
                                                       {device, number(host + 49)},
                                                       {0, number(host)},
                                                       {device, 0},
                                                       {device, 0x10},
                                                       {device + 64, number(host)}};
  for (const auto& [to, from] : wrong)
    for (size_t entry = 0; entry < 3; ++entry) {
      Arguments with;
      for (size_t i = 0; i < 3; ++i)
        with.add(i == entry ? to : device + 16 * i, i == entry ? from : number(host), 16);
      refused(with, entry, "a range outside its memory");
    }
  synchronize();
  EXPECT_EQ(download(device, 64), std::vector<uint8_t>(64, 1));
}

}  // namespace
}  // namespace braid::emulator_test
