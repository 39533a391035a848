#include "fabric/ofi/station.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "fabric/ofi/opening.h"
#include "fabric/ofi/shm_region.h"
#include "fabric/seal.h"
#include "host/random_number.h"

namespace braid::fabric::ofi {
namespace {

uint64_t random_key(size_t size_bytes) {
  const uint64_t key = random_number();
  return size_bytes < sizeof key ? key & ((uint64_t{1} << 8 * size_bytes) - 1) : key;
}

/// Where connections can be looked at, or need not be.
Status check_guard(const Library& libfabric, const Quirks& quirks, Admits admits) {
  if (admits == Admits::kAnybody || !quirks.connects_by_tcp || libfabric.has_guards) return {};
  return Status::error(std::string(quirks.provider) +
                           ": with this build of libfabric nobody can keep other users of this "
                           "host out of an engine that has no secret",
                       "Give the engines a secret (BRAID_FABRIC_SECRET_FILE)");
}

/// Of shm alone: elsewhere an endpoint is no file.
Status allocate(const Provider& provider, fid_ep& endpoint, bool is_written_to) {
  if (!provider.quirks.shares_locks || !provider.libfabric.has_stand_ins) return {};
  BRAID_LET(name, name_of(provider, endpoint));
  return allocate_region(name, is_written_to);
}

}  // namespace

Status Provider::failure(const char* what, int64_t answer) const {
  return Status::error(std::string(quirks.provider) + ": " + what + ": " +
                       libfabric.describe(answer));
}

Result<Provider> Provider::open(const Quirks& quirks, const std::string& host_address,
                                Admits admits) {
  const Result<const Library*> loaded = ofi::library();
  if (!loaded.ok()) return loaded.status();
  BRAID_TRY(check_guard(*loaded.value(), quirks, admits));
  Provider provider{*loaded.value(), quirks, nullptr, nullptr, std::make_shared<Guard>(admits)};
  Result<Info> offer = find_offer(quirks, host_address);
  if (!offer.ok()) return offer.status();
  provider.info = std::move(offer).value();
  fid_fabric* fabric = nullptr;
  const int answer = provider.libfabric.fabric(provider.info->fabric_attr, &fabric, nullptr);
  if (answer != 0) return provider.failure("fi_fabric", answer);
  provider.fabric.reset(fabric);
  return provider;
}

Result<std::vector<std::byte>> name_of(const Provider& provider, fid_ep& endpoint) {
  size_t size_bytes = kAddressBytesMax;
  std::vector<std::byte> name(size_bytes);
  const int answer = fi_getname(&endpoint.fid, name.data(), &size_bytes);
  if (answer != 0) return provider.failure("fi_getname", answer);
  name.resize(size_bytes);
  return name;
}

Result<Station> Station::open(const Provider& provider, fid_domain* domain) {
  const Opening opening;
  if (!opening.may_go_on())
    return Status::error(std::string(provider.quirks.provider) + ": the process exits");
  Station station;
  int answer = 0;
  if (domain == nullptr) {
    answer = fi_domain(provider.fabric.get(), provider.info.get(), &domain, nullptr);
    if (answer != 0) return provider.failure("fi_domain", answer);
    station.own_domain.reset(domain);
  }
  station.domain = domain;

  fi_av_attr address_attributes{};
  address_attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  answer = fi_av_open(domain, &address_attributes, &addresses, nullptr);
  if (answer != 0) return provider.failure("fi_av_open", answer);
  station.addresses.reset(addresses);

  if (Status failed = station.open_queue(provider); !failed.ok()) return failed;
  Listening listening(provider.guard);
  Result<Owned<fid_ep>> endpoint = station.open_endpoint(provider, true);
  station.guarded = listening.take();
  if (!endpoint.ok()) return endpoint.status();
  station.endpoint = std::move(endpoint).value();
  Result<std::vector<std::byte>> name = name_of(provider, *station.endpoint);
  if (!name.ok()) return name.status();
  station.name = std::move(name).value();
  return station;
}

Status Station::open_queue(const Provider& provider) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = provider.quirks.has_wait_descriptor ? FI_WAIT_FD : FI_WAIT_NONE;
  attributes.size = provider.info->tx_attr->size + provider.info->rx_attr->size;
  fid_cq* opened = nullptr;
  int answer = fi_cq_open(domain, &attributes, &opened, nullptr);
  if (answer != 0) return provider.failure("fi_cq_open", answer);
  queue.reset(opened);
  if (attributes.wait_obj != FI_WAIT_FD) return {};
  answer = fi_control(&opened->fid, FI_GETWAIT, &wait_descriptor);
  return answer == 0 ? Status() : provider.failure("FI_GETWAIT", answer);
}

Result<Owned<fid_ep>> Station::open_endpoint(const Provider& provider, bool is_written_to) const {
  // A killed process leaves files of shm behind. If this process has the same number, libfabric
  // takes such a file's name for one in use, removes the file, and gives the next endpoint a new
  // name.
  constexpr int kTriesMax = 64;
  int answer = -FI_EBUSY;
  for (int tries = 0; answer == -FI_EBUSY && tries < kTriesMax; ++tries) {
    fid_ep* opened = nullptr;
    answer = fi_endpoint(domain, provider.info.get(), &opened, nullptr);
    if (answer != 0) return provider.failure("fi_endpoint", answer);
    Owned<fid_ep> another(opened);
    answer = fi_ep_bind(opened, &addresses->fid, 0);
    if (answer == 0) answer = fi_ep_bind(opened, &queue->fid, FI_TRANSMIT | FI_RECV);
    if (answer == 0) answer = fi_enable(opened);
    if (answer != 0) continue;
    BRAID_TRY(allocate(provider, *another, is_written_to));
    return another;
  }
  return provider.failure("fi_enable", answer);
}

Result<Registration> register_memory(const Provider& provider, fid_domain& domain,
                                     MutableBytes memory, uint64_t rights,
                                     std::optional<uint64_t> key) {
  Registration made;
  const bool chooses_key = provider.chooses_keys();
  for (int answer = -FI_ENOKEY; answer != 0;) {
    const uint64_t wanted =
        !chooses_key ? 0 : key.value_or(random_key(provider.info->domain_attr->mr_key_size));
    fid_mr* registered = nullptr;
    answer = fi_mr_reg(&domain, memory.data(), memory.size(), rights, 0, wanted, 0, &registered,
                       nullptr);
    if (answer == -FI_ENOKEY && chooses_key && !key) continue;  // taken: another number
    if (answer != 0) return provider.failure("memory cannot be registered", answer);
    made.memory.reset(registered);
  }
  made.range.key = fi_mr_key(made.memory.get());
  if ((provider.memory_mode() & FI_MR_VIRT_ADDR) != 0)
    made.range.base = reinterpret_cast<uint64_t>(memory.data());
  return made;
}

std::optional<Completion> arrival_of(const fi_cq_data_entry& entry) {
  if ((entry.flags & FI_REMOTE_CQ_DATA) == 0) return std::nullopt;
  if ((entry.data & kNoImmediate) != 0) return Completion{Event::kLanded};
  Completion arrival{Event::kImmediate};
  arrival.immediate = static_cast<uint32_t>(entry.data);
  arrival.slices = static_cast<uint32_t>(entry.data >> kSlicesShift) + 1;
  return arrival;
}

}  // namespace braid::fabric::ofi
