// Two endpoints of a fake provider, by libfabric's interface alone.
#pragma once

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

namespace braid::fabric::test {

inline bool eventually(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_so())
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

inline Info offer(const char* provider, uint32_t mr_mode) {
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

inline constexpr uint32_t kDuties =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

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
    use_fake_providers();
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

}  // namespace braid::fabric::test
