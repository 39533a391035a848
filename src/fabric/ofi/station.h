// The libfabric objects of one entrance: a libfabric domain with a queue and an endpoint. Keys of
// memory hold within a libfabric domain, so a key for one entrance is not valid at another.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/guard.h"
#include "fabric/ofi/library.h"
#include "fabric/ofi/offers.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

/// Closes an object of libfabric's.
struct Close {
  template <typename Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close>;

/// A provider at an address of the host. All stations of a domain are opened from it, and have its
/// guard.
struct Provider {
  const Library& libfabric;
  const Quirks& quirks;
  Info info;
  Owned<fid_fabric> fabric;
  SharedGuard guard;

  static Result<Provider> open(const Quirks& quirks, const std::string& host_address,
                               Admits admits = Admits::kThisUser);
  Status failure(const char* what, int64_t answer) const;
  /// True: braid chooses the keys of memory. False: the provider does.
  bool chooses_keys() const { return (memory_mode() & FI_MR_PROV_KEY) == 0; }
  uint32_t memory_mode() const { return static_cast<uint32_t>(info->domain_attr->mr_mode); }
};

struct Station {
  Guarded guarded;  ///< while the endpoint listens
  Owned<fid_domain> own_domain;
  fid_domain* domain = nullptr;  ///< its own, or another station's
  Owned<fid_av> addresses;
  Owned<fid_cq> queue;
  Owned<fid_ep> endpoint;
  std::vector<std::byte> name;  ///< of the endpoint, as fi_getname gives it
  int wait_descriptor = -1;     ///< of the queue, where the provider has one

  /// Opens it in this libfabric domain, which outlives it; null: in one of its own.
  static Result<Station> open(const Provider& provider, fid_domain* domain);
  /// Opens another endpoint with the same queue. `is_written_to`: by peers.
  Result<Owned<fid_ep>> open_endpoint(const Provider& provider, bool is_written_to) const;

 private:
  Status open_queue(const Provider& provider);
};

/// The endpoint's name, as fi_getname gives it.
Result<std::vector<std::byte>> name_of(const Provider& provider, fid_ep& endpoint);

struct Registration {
  Owned<fid_mr> memory;
  RemoteRange range;
};

/// `key`: that of another registration of the same memory; none: a random one.
Result<Registration> register_memory(const Provider& provider, fid_domain& domain,
                                     MutableBytes memory, uint64_t rights,
                                     std::optional<uint64_t> key = std::nullopt);

/// The data that comes with a write, if the provider has room for more than an immediate. The low
/// 32 bits are the immediate; kNoImmediate is set if there is none. The bits from kSlicesShift on
/// are the number of the write's slices beyond the first.
inline constexpr uint64_t kNoImmediate = uint64_t{1} << 32;
inline constexpr int kSlicesShift = 33;

/// The completion for a peer's write; none: the entry is for a posting of our own.
std::optional<Completion> arrival_of(const fi_cq_data_entry& entry);

}  // namespace braid::fabric::ofi
