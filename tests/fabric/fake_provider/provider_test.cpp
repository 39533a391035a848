// The fake providers themselves: each line of README.md.
#include "fabric/fake_provider/provider_pair.h"

namespace braid::fabric {
namespace {

using test::Ended;
using test::eventually;
using test::Info;
using test::kDuties;
using test::offer;
using test::ProviderTest;

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kLocalProtection = 4, kRemoteAccess = 10;  // of ibv_wc_status

TEST_P(ProviderTest, ItAsksForWhatTheRealOneAsksFor) {
  const fi_info& info = *writer_->info;
  EXPECT_EQ(info.domain_attr->mr_mode, static_cast<int>(kDuties));
  EXPECT_EQ(info.domain_attr->cq_data_size, 4u);
  EXPECT_EQ(info.domain_attr->mr_key_size, 4u);
  EXPECT_EQ(info.tx_attr->rma_iov_limit, 1u);
  EXPECT_EQ(info.ep_attr->type, is_verbs() ? FI_EP_MSG : FI_EP_RDM);
  EXPECT_EQ(info.addr_format, is_verbs() ? static_cast<uint32_t>(FI_SOCKADDR_IN)
                                         : static_cast<uint32_t>(FI_ADDR_EFA));
  const Info without = offer(GetParam(), kDuties & ~static_cast<uint32_t>(FI_MR_LOCAL));
  EXPECT_EQ(without == nullptr, is_verbs()) << "efa can do without FI_MR_LOCAL";
  EXPECT_EQ(offer(GetParam(), FI_MR_LOCAL), nullptr) << "its keys are its own";
}

TEST_P(ProviderTest, PiecesLandInAnyOrder) {
  auto source = some_bytes(8 << 20);
  std::vector<std::byte> memory(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  const auto is_there = [&](size_t at) {
    return *const_cast<volatile std::byte*>(&memory[at]) != std::byte{0};
  };
  // A later place has its bytes while an earlier one has not. On a busy machine all of a write may
  // land between two looks.
  const auto has_gap = [&] {
    const size_t step = memory.size() / 64;
    size_t first_gap = 0;
    while (first_gap < memory.size() && is_there(first_gap)) first_gap += step;
    for (size_t at = first_gap; at < memory.size(); at += step)
      if (is_there(at)) return true;
    return false;
  };
  bool had_gap = false;
  const auto end = Clock::now() + kPatience;
  for (size_t number = 1; !had_gap && Clock::now() < end; ++number) {
    std::fill(memory.begin(), memory.end(), std::byte{0});
    ASSERT_EQ(write(source, from->mem_desc, memory, into->key, number), 0);
    ASSERT_TRUE(eventually([&] {
      poll();
      had_gap = had_gap || has_gap();
      return writer_->ended.size() == number;
    }));
    EXPECT_EQ(writer_->ended.back().error, 0);
    EXPECT_EQ(memory, source);
  }
  EXPECT_TRUE(had_gap);
}

TEST_P(ProviderTest, CompletionsComeInAnyOrderAndAFullQueueSaysSo) {
  auto source = some_bytes(100'000);
  std::vector<std::byte> memory(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  size_t posted = 0;
  ssize_t answer = 0;
  while (posted < 5000 && answer == 0) {
    answer = write(source, from->mem_desc, memory, into->key, posted);
    posted += answer == 0;
  }
  EXPECT_EQ(answer, -FI_EAGAIN);
  EXPECT_GE(posted, writer_->info->tx_attr->size);
  ASSERT_TRUE(has_ended(posted));
  std::vector<size_t> order;
  for (const Ended& ended : writer_->ended) {
    EXPECT_EQ(ended.error, 0);
    order.push_back(reinterpret_cast<size_t>(ended.context));
  }
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < posted; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(ProviderTest, MemoryOfOursNeedsADescriptorThatIsOpen) {
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size());
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  fid_mr* from = add(*writer_, source, FI_WRITE);
  void* closed = from->mem_desc;
  close(from);
  ASSERT_EQ(write(source, closed, memory, into->key, 1), 0);
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, kLocalProtection);
  ASSERT_EQ(write(source, nullptr, memory, into->key, 2), 0);
  ASSERT_TRUE(has_ended(2));
  EXPECT_NE(writer_->ended[1].error, 0);
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
}

TEST_P(ProviderTest, AWrongKeyIsAnErrorAndBreaksAConnection) {
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size()), back(1000);
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key ^ 1, 1), 0);
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, kRemoteAccess);
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key, 2), 0);
  ASSERT_TRUE(has_ended(2));
  EXPECT_EQ(writer_->ended[1].fi_error, is_verbs() ? FI_ECANCELED : 0);
  if (!is_verbs()) return;
  fid_mr* receives = add(*target_, back, FI_RECV);
  ASSERT_EQ(fi_recv(target_->endpoint, back.data(), back.size(), receives->mem_desc, FI_ADDR_UNSPEC,
                    nullptr),
            0);
  ASSERT_TRUE(eventually([&] {
    poll();
    return !target_->ended.empty();
  })) << "the other end is broken too";
  EXPECT_EQ(target_->ended[0].fi_error, FI_ECANCELED);
}

TEST_P(ProviderTest, NothingLandsInARegionThatWasClosedInTheMiddle) {
  auto source = some_bytes(16 << 20);
  std::vector<std::byte> memory(source.size());
  const std::vector<std::byte> untouched(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const auto has_begun = [&] {  // at a few places, since more may land while it looks
    for (size_t at = 0; at < memory.size(); at += memory.size() / 64)
      if (*const_cast<volatile std::byte*>(&memory[at]) != std::byte{0}) return true;
    return false;
  };
  int error = 0;  // of a write that had landed whole before
  const auto end = Clock::now() + kPatience;
  for (size_t number = 1; error == 0 && Clock::now() < end; ++number) {
    fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
    ASSERT_EQ(write(source, from->mem_desc, memory, into->key, number), 0);
    ASSERT_TRUE(eventually([&] {
      poll();
      return has_begun();
    }));
    close(into);
    std::fill(memory.begin(), memory.end(), std::byte{0});
    ASSERT_TRUE(has_ended(number));
    error = writer_->ended.back().error;
    EXPECT_EQ(memory, untouched);
  }
  EXPECT_EQ(error, kRemoteAccess);
}

TEST_P(ProviderTest, TheRegistrationCacheOfVerbsKeepsMemoryOpen) {
  TearDown();
  setenv("FI_MR_CACHE_MAX_COUNT", "10", 1);
  prepare();
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  fid_mr* into = target_->add(memory, FI_REMOTE_WRITE);
  fid_mr* again = target_->add(memory, FI_REMOTE_WRITE);
  const uint64_t key = into->key;
  EXPECT_EQ(key == again->key, is_verbs());
  fi_close(&into->fid);
  if (again != into) fi_close(&again->fid);
  ASSERT_EQ(write(source, from->mem_desc, memory, key, 1), 0);
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, is_verbs() ? 0 : kRemoteAccess);
}

TEST_P(ProviderTest, OnlyVerbsLandsWithoutTheTargetsCpu) {
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key, 1), 0);
  const auto has_landed = [&] {
    writer_->poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !writer_->ended.empty();
  };
  if (is_verbs()) {
    EXPECT_TRUE(eventually(has_landed));
  } else {
    for (int look = 0; look < 200; ++look) EXPECT_FALSE(has_landed());
  }
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(memory, source);
}

TEST_P(ProviderTest, AnImmediateHas32BitsAndTakesAReceiveOfVerbs) {
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size()), buffer(100);
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  const fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  fid_mr* receives = add(*target_, buffer, FI_RECV);
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key, 1, 0xfedcba98), 0);
  if (is_verbs()) {
    for (int look = 0; look < 1000; ++look) poll();
    EXPECT_TRUE(target_->ended.empty());
    ASSERT_EQ(fi_recv(target_->endpoint, buffer.data(), buffer.size(), receives->mem_desc,
                      FI_ADDR_UNSPEC, context(7)),
              0);
  }
  ASSERT_TRUE(eventually([&] {
    poll();
    return !target_->ended.empty();
  }));
  EXPECT_EQ(memory, source) << "after all its bytes";
  EXPECT_EQ(target_->ended[0].data, 0xfedcba98u);
  EXPECT_EQ(target_->ended[0].flags, FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(target_->ended[0].context, is_verbs() ? context(7) : nullptr);
}

TEST_P(ProviderTest, MessagesOfVerbsComeInOrder) {
  constexpr size_t kMessages = 60, kSize = 3000;
  std::vector<std::byte> sources(kMessages * kSize), buffers(kMessages * kSize);
  fid_mr* from = add(*writer_, sources, FI_SEND);
  fid_mr* into = add(*target_, buffers, FI_RECV);
  for (size_t i = 0; i < kMessages; ++i) {
    sources[i * kSize] = static_cast<std::byte>(i);
    ASSERT_EQ(fi_recv(target_->endpoint, &buffers[i * kSize], kSize, into->mem_desc, FI_ADDR_UNSPEC,
                      context(i)),
              0);
    ASSERT_EQ(fi_send(writer_->endpoint, &sources[i * kSize], kSize, from->mem_desc, writer_->peer,
                      nullptr),
              0);
  }
  ASSERT_TRUE(eventually([&] {
    poll();
    return target_->ended.size() == kMessages;
  }));
  std::vector<std::byte> order;
  for (size_t i = 0; i < kMessages; ++i) order.push_back(buffers[i * kSize]);
  EXPECT_EQ(std::is_sorted(order.begin(), order.end()), is_verbs());
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < kMessages; ++i) EXPECT_EQ(order[i], static_cast<std::byte>(i));
}

TEST_P(ProviderTest, APeerThatClosesFailsWhatIsPosted) {
  auto source = some_bytes(1000);
  std::vector<std::byte> memory(source.size());
  const fid_mr* from = add(*writer_, source, FI_WRITE);
  fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  const uint64_t key = into->key;
  close(into);
  target_.reset();
  ASSERT_EQ(write(source, from->mem_desc, memory, key, 1), 0);
  ASSERT_TRUE(eventually([&] {
    writer_->poll();
    return !writer_->ended.empty();
  }));
  EXPECT_NE(writer_->ended[0].error, 0);
  if (!is_verbs()) return;
  uint32_t number = 0;
  fi_eq_cm_entry event{};
  ASSERT_GT(fi_eq_sread(writer_->events, &number, &event, sizeof event, 5000, 0), 0);
  EXPECT_EQ(number, static_cast<uint32_t>(FI_SHUTDOWN));
}

TEST_P(ProviderTest, ReadsBringTheBytes) {
  auto memory = some_bytes(300'000);
  std::vector<std::byte> into(memory.size());
  fid_mr* local = add(*writer_, into, FI_READ);
  const fid_mr* remote = add(*target_, memory, FI_REMOTE_READ);
  ASSERT_EQ(fi_read(writer_->endpoint, into.data(), into.size(), local->mem_desc, writer_->peer,
                    reinterpret_cast<uint64_t>(memory.data()), remote->key, nullptr),
            0);
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, 0);
  EXPECT_EQ(into, memory);
}

INSTANTIATE_TEST_SUITE_P(Fake, ProviderTest, testing::Values("verbs", "efa"),
                         [](const auto& provider) { return std::string(provider.param); });

}  // namespace
}  // namespace braid::fabric
