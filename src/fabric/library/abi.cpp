// The C interface of include/braid/fabric_abi.h: an engine itself.
#include "fabric/library/abi.h"

#include <algorithm>
#include <cstddef>
#include <utility>

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;
using braid::Status;

static_assert(BRAID_FABRIC_MESSAGE_BYTES == kPayloadBytesMax);
static_assert(BRAID_FABRIC_DONE == static_cast<int>(TicketState::kDone));
static_assert(BRAID_FABRIC_FAILED == static_cast<int>(TicketState::kFailed));
static_assert(BRAID_FABRIC_QUARANTINED == static_cast<int>(TicketState::kQuarantined));
static_assert(BRAID_FABRIC_FENCED == static_cast<int>(Fence::kFenced));
static_assert(BRAID_FABRIC_MEMORY_QUARANTINED == static_cast<int>(Fence::kQuarantined));

braid_status braid_fabric_open(const braid_fabric_options* options, braid_fabric** fabric) {
  return guarded([&] {
    if (fabric == nullptr) return report(BRAID_ERROR_ARGUMENT, "there is no place for the engine");
    *fabric = nullptr;
    braid_fabric_options given{};
    if (const braid_status wrong = read_struct(options, "braid_fabric_options", given);
        wrong != BRAID_OK)
      return wrong;
    for (size_t i = 0; i < given.address_count; ++i)
      if (given.addresses == nullptr || given.addresses[i] == nullptr)
        return report(BRAID_ERROR_ARGUMENT, "an address is null, and address_count counts it");
    ServiceOptions wanted;
    if (given.provider != nullptr) wanted.provider = given.provider;
    if (given.nics != nullptr) wanted.nics = given.nics;
    wanted.addresses.assign(given.addresses, given.addresses + given.address_count);
    if (given.secret_file != nullptr) wanted.secret_file = given.secret_file;
    wanted.allows_unauthenticated = given.allow_unauthenticated != 0;
    wanted.is_pinned = given.is_unpinned == 0;
    wanted.has_gpu_memory = given.gpu_memory != 0;
    Result<std::unique_ptr<Service>> service =
        Service::open(wanted, braid::topology::Machine(), braid::topology::host_nics());
    if (!service.ok()) return report(service.status(), BRAID_ERROR_UNAVAILABLE);
    auto opened = std::make_unique<braid_fabric>();
    opened->service = std::move(service).value();
    *fabric = opened.release();  // owner: the caller, until braid_fabric_close
    return BRAID_OK;
  });
}

void braid_fabric_close(braid_fabric* fabric) {
  // In a child process the engine's thread does not exist, and its memory is the parent's.
  if (fabric != nullptr && !fabric->process.is_this()) return;
  const std::unique_ptr<braid_fabric> closed(fabric);
}

braid_status braid_fabric_address(braid_fabric* fabric, void* buffer, size_t buffer_bytes,
                                  size_t* needed_bytes) {
  return guarded(fabric, [&](Service& service) {
    const auto bytes =
        service.with([](Engine& engine) { return encode(engine.address(), engine.secret()); });
    return hand_out(bytes.data(), bytes.size(), buffer, buffer_bytes, needed_bytes);
  });
}

const char* braid_fabric_last_error() { return braid::fabric::abi::last_error(); }
