// What libfabric opens for one way in: a domain of its own with a queue and an endpoint. Keys of
// memory hold within a domain, so what was granted for one way in leads nowhere at another.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/library.h"
#include "fabric/ofi/offers.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

/// Closes what libfabric has opened.
struct Close {
  template <typename Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close>;

/// A provider at an address of the host: what all stations of a domain are opened from.
struct Provider {
  const Library& libfabric;
  const Quirks& quirks;
  Info info;
  Owned<fid_fabric> fabric;

  static Result<Provider> open(const Quirks& quirks, const std::string& host_address);
  Status failure(const char* what, int64_t answer) const;
  /// We choose the keys of memory. Otherwise the provider does.
  bool chooses_keys() const { return (memory_mode() & FI_MR_PROV_KEY) == 0; }
  uint32_t memory_mode() const { return static_cast<uint32_t>(info->domain_attr->mr_mode); }
};

struct Station {
  Owned<fid_domain> own_domain;
  fid_domain* domain = nullptr;  ///< its own, or another station's
  Owned<fid_av> addresses;
  Owned<fid_cq> queue;
  Owned<fid_ep> endpoint;
  std::vector<std::byte> name;  ///< of the endpoint, as fi_getname gives it
  int wait_descriptor = -1;     ///< of the queue, where the provider has one

  /// In this domain, which stays as long; null: in one of its own.
  static Result<Station> open(const Provider& provider, fid_domain* domain);
  /// Another one, with the same queue.
  Result<Owned<fid_ep>> open_endpoint(const Provider& provider) const;

 private:
  Status open_queue(const Provider& provider);
};

/// As fi_getname gives it.
Result<std::vector<std::byte>> name_of(const Provider& provider, fid_ep& endpoint);

struct Registration {
  Owned<fid_mr> memory;
  RemoteRange range;
};

/// `key`: a registration of the same memory elsewhere has it; none: a random one.
Result<Registration> register_memory(const Provider& provider, fid_domain& domain,
                                     MutableBytes memory, uint64_t rights,
                                     std::optional<uint64_t> key = std::nullopt);

/// What comes with a write, where the provider has room for more than an immediate: the immediate
/// in the low 32 bits, or kNoImmediate; above that how many slices the write has beyond the first.
inline constexpr uint64_t kNoImmediate = uint64_t{1} << 32;
inline constexpr int kSlicesShift = 33;

/// What a peer's write has brought; none: the entry is of a posting of our own.
std::optional<Completion> arrival_of(const fi_cq_data_entry& entry);

}  // namespace braid::fabric::ofi
