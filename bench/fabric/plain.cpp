#include "bench/fabric/plain.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "fabric/ofi/library.h"

namespace braid::bench {
namespace {

constexpr size_t kSegmentsMax = 8;
constexpr uint64_t kPostingBytesMax = 256 << 10;

void must(const char* what, int64_t answer) {
  if (answer >= 0) return;
  std::fprintf(stderr, "plain: %s: %lld\n", what, static_cast<long long>(answer));
  std::exit(1);
}

}  // namespace

struct Plain::State {
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    Target target;
  };
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* queue = nullptr;
  fid_ep* endpoint = nullptr;
  fid_mr* exposed = nullptr;
  fid_mr* read = nullptr;  // where sources are registered too
  std::span<const std::byte> source;
  std::vector<Peer> peers;
  std::deque<fi_context> contexts;  // of writes, used again and again
  std::vector<fi_context*> free;
  uint64_t immediates = 0;  // that nobody has been told of

  void open_endpoint();
};

/// A killed process of the same number may have left a file of the same name in /dev/shm. The next
/// endpoint has another name.
void Plain::State::open_endpoint() {
  constexpr int kNamesMax = 16;
  int answer = -FI_EBUSY;
  for (int name = 0; name < kNamesMax && answer == -FI_EBUSY; ++name) {
    if (endpoint != nullptr) fi_close(&endpoint->fid);
    must("fi_endpoint", fi_endpoint(domain, info, &endpoint, nullptr));
    must("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
    must("fi_ep_bind", fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV));
    answer = fi_enable(endpoint);
  }
  must("fi_enable", answer);
}

Plain::Plain(const fabric::ofi::Quirks& quirks) : state_(std::make_unique<State>()) {
  const fabric::ofi::Library& library = *fabric::ofi::library().value();
  State& s = *state_;
  fi_info* hints = library.dupinfo(nullptr);
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(quirks.provider);
  must("fi_getinfo",
       library.getinfo(FI_VERSION(1, 9), quirks.listens_at_address ? "127.0.0.1" : nullptr, nullptr,
                       quirks.listens_at_address ? FI_SOURCE : 0, hints, &s.info));
  library.freeinfo(hints);
  must("fi_fabric", library.fabric(s.info->fabric_attr, &s.fabric, nullptr));
  must("fi_domain", fi_domain(s.fabric, s.info, &s.domain, nullptr));
  fi_av_attr addresses{};
  addresses.type = FI_AV_TABLE;
  must("fi_av_open", fi_av_open(s.domain, &addresses, &s.addresses, nullptr));
  fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_DATA;
  must("fi_cq_open", fi_cq_open(s.domain, &queue, &s.queue, nullptr));
  s.open_endpoint();
}

Plain::Plain(Plain&&) noexcept = default;

Plain::~Plain() {
  if (state_ == nullptr) return;
  State& s = *state_;
  fi_close(&s.endpoint->fid);
  if (s.exposed != nullptr) fi_close(&s.exposed->fid);
  if (s.read != nullptr) fi_close(&s.read->fid);
  fi_close(&s.queue->fid);
  fi_close(&s.addresses->fid);
  fi_close(&s.domain->fid);
  fi_close(&s.fabric->fid);
  fabric::ofi::library().value()->freeinfo(s.info);
}

std::vector<std::byte> Plain::address() const {
  std::vector<std::byte> bytes(128);
  size_t size_bytes = bytes.size();
  must("fi_getname", fi_getname(&state_->endpoint->fid, bytes.data(), &size_bytes));
  bytes.resize(size_bytes);
  return bytes;
}

Plain::Target Plain::expose(std::span<std::byte> memory) {
  must("fi_mr_reg", fi_mr_reg(state_->domain, memory.data(), memory.size(), FI_REMOTE_WRITE, 0,
                              4711, 0, &state_->exposed, nullptr));
  const bool by_address = (state_->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  return {by_address ? reinterpret_cast<uint64_t>(memory.data()) : 0, fi_mr_key(state_->exposed)};
}

void Plain::read_from(std::span<const std::byte> memory) {
  State& s = *state_;
  s.source = memory;
  if ((s.info->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return;
  if (s.read != nullptr) fi_close(&s.read->fid);
  must("fi_mr_reg",
       fi_mr_reg(s.domain, memory.data(), memory.size(), FI_WRITE, 0, 0, 0, &s.read, nullptr));
}

void Plain::connect(const std::vector<std::byte>& address, const Target& target) {
  State::Peer peer{FI_ADDR_UNSPEC, target};
  must("fi_av_insert",
       fi_av_insert(state_->addresses, address.data(), 1, &peer.address, 0, nullptr) - 1);
  state_->peers.push_back(peer);
}

uint64_t Plain::pages_of_posting(uint64_t page_bytes) const {
  const fi_tx_attr& limits = *state_->info->tx_attr;
  return std::clamp<uint64_t>(kPostingBytesMax / page_bytes, 1,
                              std::min({kSegmentsMax, limits.iov_limit, limits.rma_iov_limit}));
}

/// As many runs of bytes, in one posting. False: the queue is full.
bool Plain::post(size_t peer, std::span<const uint64_t> offsets_bytes, uint64_t size_bytes) {
  State& s = *state_;
  if (s.free.empty()) s.free.push_back(&s.contexts.emplace_back());
  const Target& target = s.peers[peer].target;
  std::array<iovec, kSegmentsMax> from;
  std::array<fi_rma_iov, kSegmentsMax> to;
  std::array<void*, kSegmentsMax> descriptors;
  descriptors.fill(s.read != nullptr ? fi_mr_desc(s.read) : nullptr);
  for (size_t i = 0; i < offsets_bytes.size(); ++i) {
    from[i] = {const_cast<std::byte*>(s.source.data()) + offsets_bytes[i], size_bytes};
    to[i] = {target.base + offsets_bytes[i], size_bytes, target.key};
  }
  fi_msg_rma message{};
  message.msg_iov = from.data();
  message.desc = descriptors.data();
  message.iov_count = offsets_bytes.size();
  message.addr = s.peers[peer].address;
  message.rma_iov = to.data();
  message.rma_iov_count = offsets_bytes.size();
  message.context = s.free.back();
  message.data = 1;
  const int64_t answer =
      fi_writemsg(s.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA);
  if (answer == -FI_EAGAIN) return false;
  must("fi_writemsg", answer);
  s.free.pop_back();
  return true;
}

void Plain::progress() {
  fi_cq_data_entry entries[64];
  const int64_t come = fi_cq_read(state_->queue, entries, 64);
  if (come != -FI_EAGAIN) must("fi_cq_read", come);
  for (int64_t i = 0; i < come; ++i) {
    if ((entries[i].flags & FI_REMOTE_CQ_DATA) != 0)
      ++state_->immediates;
    else
      state_->free.push_back(static_cast<fi_context*>(entries[i].op_context));
  }
}

uint64_t Plain::poll() {
  progress();
  return std::exchange(state_->immediates, 0);
}

void Plain::write(const Load& load, uint64_t pages_at_once) {
  const State& s = *state_;
  const auto under_way = [&] { return (s.contexts.size() - s.free.size()) * pages_at_once; };
  const bool is_scatter = load.pattern == Pattern::kScatter;
  std::array<uint64_t, kSegmentsMax> offsets_bytes;
  for (uint64_t posted = 0; posted < load.count || under_way() > 0;) {
    while (posted < load.count && under_way() < load.depth) {
      const uint64_t pages = std::min(pages_at_once, load.count - posted);
      for (uint64_t i = 0; i < pages; ++i)
        offsets_bytes[i] = load.place(posted + i) * load.size_bytes;
      if (!post(is_scatter ? posted % s.peers.size() : 0, std::span(offsets_bytes).first(pages),
                load.size_bytes))
        break;
      posted += pages;
    }
    progress();
  }
}

void Plain::signal(size_t peer) {
  constexpr uint64_t kFirst[] = {0};
  while (!post(peer, kFirst, 1)) progress();
}

}  // namespace braid::bench
