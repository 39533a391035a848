// The fake providers themselves: each line of README.md, by libfabric's interface alone.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "fabric/fake_provider/use.h"

namespace braid::fabric {
namespace {

constexpr int kLocalProtection = 4, kRemoteAccess = 10;  // of ibv_wc_status

bool eventually(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_so())
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

Info offer(const char* provider, uint32_t mr_mode) {
  const Info hints(fi_allocinfo());
  hints->mode = FI_RX_CQ_DATA;
  hints->domain_attr->mr_mode = static_cast<int>(mr_mode);
  hints->fabric_attr->prov_name = strdup(provider);
  const bool is_verbs = std::strcmp(provider, "verbs") == 0;
  hints->ep_attr->type = is_verbs ? FI_EP_MSG : FI_EP_RDM;
  fi_info* found = nullptr;
  const int answer = fi_getinfo(FI_VERSION(1, 9), is_verbs ? "127.0.0.1" : nullptr, nullptr,
                                is_verbs ? FI_SOURCE : 0, hints.get(), &found);
  return Info(answer == 0 ? found : nullptr);
}

constexpr uint32_t kDuties = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

struct Ended {
  void* context;
  int error;  // of the provider; 0: it has ended well
  int fi_error;
  uint64_t flags;
  uint64_t data;
};

/// One endpoint of one NIC.
struct End {
  Info info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* queue = nullptr;
  fid_eq* events = nullptr;
  fid_av* addresses = nullptr;
  fid_ep* endpoint = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  std::vector<Ended> ended;

  explicit End(const char* provider) : info(offer(provider, kDuties)) {
    fi_fabric(info->fabric_attr, &fabric, nullptr);
    fi_domain(fabric, info.get(), &domain, nullptr);
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_DATA;
    attributes.wait_obj = FI_WAIT_NONE;
    fi_cq_open(domain, &attributes, &queue, nullptr);
    fi_eq_attr event_attributes{};
    fi_eq_open(fabric, &event_attributes, &events, nullptr);
  }
  ~End() {
    for (fid* object : {endpoint != nullptr ? &endpoint->fid : nullptr, &queue->fid,
                        addresses != nullptr ? &addresses->fid : nullptr, &events->fid,
                        &domain->fid, &fabric->fid})
      if (object != nullptr) fi_close(object);
  }
  void open(fi_info* with) {
    fi_endpoint(domain, with, &endpoint, nullptr);
    fi_av_attr attributes{};
    attributes.type = FI_AV_TABLE;
    if (fi_av_open(domain, &attributes, &addresses, nullptr) == 0)
      fi_ep_bind(endpoint, &addresses->fid, 0);
    else
      fi_ep_bind(endpoint, &events->fid, 0);
    fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV);
    ASSERT_EQ(fi_enable(endpoint), 0);
  }
  fid_mr* add(std::vector<std::byte>& memory, uint64_t access) {
    fid_mr* region = nullptr;
    fi_mr_reg(domain, memory.data(), memory.size(), access, 0, 0, 0, &region, nullptr);
    return region;
  }
  void poll() {
    fi_cq_data_entry entry{};
    const ssize_t answer = fi_cq_read(queue, &entry, 1);
    if (answer == 1) ended.push_back({entry.op_context, 0, 0, entry.flags, entry.data});
    if (answer != -FI_EAVAIL) return;
    fi_cq_err_entry error{};
    fi_cq_readerr(queue, &error, 0);
    ended.push_back({error.op_context, error.prov_errno, error.err, error.flags, 0});
  }
};

class ProviderTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    test::use_fake_providers();
    prepare();
  }
  void TearDown() override {
    for (fid_mr* region : regions_) fi_close(&region->fid);
    writer_.reset();
    target_.reset();
  }
  void prepare() {
    ASSERT_NE(offer(GetParam(), kDuties), nullptr);
    writer_ = std::make_unique<End>(GetParam());
    target_ = std::make_unique<End>(GetParam());
    is_verbs() ? connect() : introduce();
  }
  bool is_verbs() const { return std::string(GetParam()) == "verbs"; }

  void introduce() {
    for (End* end : {writer_.get(), target_.get()}) end->open(end->info.get());
    std::byte name[64];
    size_t name_bytes = sizeof name;
    ASSERT_EQ(fi_getname(&target_->endpoint->fid, name, &name_bytes), 0);
    ASSERT_EQ(name_bytes, 32u);
    ASSERT_EQ(fi_av_insert(writer_->addresses, name, 1, &writer_->peer, 0, nullptr), 1);
  }
  void connect() {
    struct {  // fi_eq_cm_entry, with room for data
      fid_t about;
      fi_info* info;
      char data[64];
    } event{};
    uint32_t number = 0;
    fid_pep* listener = nullptr;
    ASSERT_EQ(fi_passive_ep(target_->fabric, target_->info.get(), &listener, nullptr), 0);
    ASSERT_EQ(fi_pep_bind(listener, &target_->events->fid, 0), 0);
    ASSERT_EQ(fi_listen(listener), 0);
    sockaddr_in address{};
    size_t address_bytes = sizeof address;
    ASSERT_EQ(fi_getname(&listener->fid, &address, &address_bytes), 0);
    writer_->open(writer_->info.get());
    ASSERT_EQ(fi_connect(writer_->endpoint, &address, "hello", 6), 0);
    ASSERT_GT(fi_eq_sread(target_->events, &number, &event, sizeof event, 5000, 0), 0);
    ASSERT_EQ(number, static_cast<uint32_t>(FI_CONNREQ));
    EXPECT_STREQ(event.data, "hello");
    target_->open(event.info);
    fi_freeinfo(event.info);
    ASSERT_EQ(fi_accept(target_->endpoint, "welcome", 8), 0);
    for (End* end : {target_.get(), writer_.get()}) {
      ASSERT_GT(fi_eq_sread(end->events, &number, &event, sizeof event, 5000, 0), 0);
      EXPECT_EQ(number, static_cast<uint32_t>(FI_CONNECTED));
    }
    EXPECT_STREQ(event.data, "welcome");
    fi_close(&listener->fid);
  }

  void poll() {
    writer_->poll();
    target_->poll();
  }
  fid_mr* add(End& end, std::vector<std::byte>& memory, uint64_t access) {
    regions_.push_back(end.add(memory, access));
    return regions_.back();
  }
  void close(fid_mr* region) {
    std::erase(regions_, region);
    ASSERT_EQ(fi_close(&region->fid), 0);
  }
  static void* context(size_t number) { return reinterpret_cast<void*>(number); }

  ssize_t write(std::vector<std::byte>& source, void* descriptor, std::vector<std::byte>& target,
                uint64_t key, size_t number, std::optional<uint32_t> immediate = {}) {
    const iovec part{source.data(), source.size()};
    const fi_rma_iov into{reinterpret_cast<uint64_t>(target.data()), source.size(), key};
    const fi_msg_rma message{&part,           &descriptor,          1, writer_->peer, &into, 1,
                             context(number), immediate.value_or(0)};
    return fi_writemsg(writer_->endpoint, &message,
                       FI_COMPLETION | FI_DELIVERY_COMPLETE | (immediate ? FI_REMOTE_CQ_DATA : 0));
  }
  bool has_ended(size_t count) {
    return eventually([&] {
      poll();
      return writer_->ended.size() >= count;
    });
  }
  static std::vector<std::byte> some_bytes(size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>(1 + i % 255);
    return bytes;
  }

  std::vector<fid_mr*> regions_;
  std::unique_ptr<End> writer_, target_;
};

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
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key, 1), 0);
  const auto is_there = [&](size_t at) {
    return *const_cast<volatile std::byte*>(&memory[at]) != std::byte{0};
  };
  // A later place has its bytes while an earlier one has not.
  EXPECT_TRUE(eventually([&] {
    poll();
    const size_t step = memory.size() / 64;
    size_t first_gap = 0;
    while (first_gap < memory.size() && is_there(first_gap)) first_gap += step;
    for (size_t at = first_gap; at < memory.size(); at += step)
      if (is_there(at)) return true;
    return false;
  }));
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, 0);
  EXPECT_EQ(memory, source);
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
  fid_mr* into = add(*target_, memory, FI_REMOTE_WRITE);
  ASSERT_EQ(write(source, from->mem_desc, memory, into->key, 1), 0);
  ASSERT_TRUE(eventually([&] {
    poll();
    return memory != untouched;
  }));
  close(into);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(writer_->ended[0].error, kRemoteAccess);
  EXPECT_EQ(memory, untouched);
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
  for (int look = 0; look < 200 && writer_->ended.empty(); ++look) {
    writer_->poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(is_verbs() ? 10 : 1));
  }
  EXPECT_EQ(writer_->ended.size(), is_verbs() ? 1u : 0u);
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
