// The C interface of include/braid/transfer_abi.h: an engine itself, and its memory.
#include "transfer/library/abi.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

using namespace braid::transfer;
using namespace braid::transfer::abi;
using braid::Result;
using braid::Status;

static_assert(BRAID_TRANSFER_MAY_READ == kMayRead && BRAID_TRANSFER_MAY_WRITE == kMayWrite);
static_assert(BRAID_TRANSFER_WRITE == static_cast<int>(Operation::kWrite));
static_assert(BRAID_TRANSFER_URGENT == static_cast<int>(Urgency::kUrgent));
static_assert(BRAID_TRANSFER_WAYS_FAILED == static_cast<int>(Cause::kPathFailed));
static_assert(BRAID_TRANSFER_NO_STORE == static_cast<int>(Cause::kNoStore));
static_assert(BRAID_TRANSFER_DEVICE_ERROR == static_cast<int>(Cause::kDeviceError));
static_assert(BRAID_TRANSFER_STORE_REFUSES == static_cast<int>(Cause::kStoreRefuses));
static_assert(BRAID_TRANSFER_NO_WAY == static_cast<int>(Cause::kNoWay));
static_assert(BRAID_TRANSFER_NOTIFICATION_BYTES == kNotificationBytesMax);

namespace {

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

/// Ends the engine before its memory is unmapped, since peers may write there until then.
void close_now(std::unique_ptr<braid_transfer> transfer) { transfer->service.reset(); }

}  // namespace

namespace braid::transfer::abi {

bool is_list(const char* const* texts, size_t count) {
  return count == 0 ||
         (texts != nullptr && std::find(texts, texts + count, nullptr) == texts + count);
}

std::vector<std::string> list_of(const char* const* texts, size_t count) {
  return {texts, texts + count};
}

}  // namespace braid::transfer::abi

braid_status braid_transfer_open(const braid_transfer_options* options, braid_transfer** transfer) {
  return guarded([&]() -> braid_status {
    if (transfer == nullptr)
      return report(BRAID_ERROR_ARGUMENT, "there is no place for the engine");
    *transfer = nullptr;
    braid_transfer_options given{};
    if (const braid_status wrong = read_struct(options, "braid_transfer_options", given);
        wrong != BRAID_OK)
      return wrong;
    if (!is_list(given.addresses, given.address_count) ||
        !is_list(given.providers, given.provider_count))
      return report(BRAID_ERROR_ARGUMENT, "addresses or providers are null, or one of them is");
    OpenOptions wanted;
    wanted.name = text_of(given.name);
    wanted.listen = text_of(given.listen);
    wanted.addresses = list_of(given.addresses, given.address_count);
    wanted.nics = text_of(given.nics);
    wanted.providers = list_of(given.providers, given.provider_count);
    wanted.secret_file = text_of(given.secret_file);
    wanted.allows_unauthenticated = given.allow_unauthenticated != 0;
    wanted.is_pinned = given.is_unpinned == 0;
    wanted.store = text_of(given.store);
    wanted.has_gpu_memory = given.gpu_memory != 0;
    auto service = Service::open(wanted, braid::topology::Machine(), braid::topology::host_nics());
    if (!service.ok()) return report(service.status(), BRAID_ERROR_UNAVAILABLE);
    auto opened = std::make_unique<braid_transfer>();
    opened->service = std::move(service).value();
    *transfer = opened.release();  // owner: the caller, until braid_transfer_close
    return BRAID_OK;
  });
}

void braid_transfer_close(braid_transfer* transfer) {
  // In a child process the engine's thread does not exist, and its memory is the parent's.
  if (transfer == nullptr || !transfer->process.is_this()) return;
  close_now(std::unique_ptr<braid_transfer>(transfer));
}

braid_status braid_transfer_name(braid_transfer* transfer, char* buffer, size_t buffer_bytes,
                                 size_t* needed_bytes) {
  return guarded(transfer, [&](Service& service) {
    return hand_out(service.name(), buffer, buffer_bytes, needed_bytes);
  });
}

braid_status braid_transfer_register_memory(braid_transfer* transfer, void* memory,
                                            size_t size_bytes, int rights, uint64_t* buffer) {
  return guarded(
      transfer,
      [&](Service& service) {
        if (!are_rights(rights)) return report(BRAID_ERROR_ARGUMENT, kWrongRights);
        const MutableBytes bytes(static_cast<std::byte*>(memory), size_bytes);
        return hand_out(service.with_here([&](Engine& engine) {
          return engine.add_buffer(bytes, static_cast<Rights>(rights));
        }),
                        buffer);
      },
      buffer);
}

braid_status braid_transfer_allocate_memory(braid_transfer* transfer, size_t size_bytes, int rights,
                                            void** memory, uint64_t* buffer) {
  return guarded(
      transfer,
      [&](Service& service) {
        if (!are_rights(rights)) return report(BRAID_ERROR_ARGUMENT, kWrongRights);
        const auto peers = static_cast<Rights>(rights);
        const int node = service.numa_node();
        const bool is_shared = service.shares() && Sharing::can_share(peers);
        auto made = is_shared ? braid::allocate_shared(size_bytes,
                                                       shared_kind((peers & kMayWrite) != 0, node))
                              : braid::allocate_privately(size_bytes, node);
        if (!made.ok()) return report(made.status(), BRAID_ERROR_MEMORY);
        braid::Allocation& allocation = made.value();
        void* const first = allocation.pages.memory();
        const braid_status added = hand_out(service.with_here([&](Engine& engine) {
          return engine.add_buffer(allocation.pages.bytes(), peers, std::move(allocation.file));
        }),
                                            buffer);
        if (added != BRAID_OK) return added;
        const std::lock_guard lock(transfer->mutex);
        transfer->allocations.emplace(*buffer, std::move(allocation.pages));
        *memory = first;
        return BRAID_OK;
      },
      memory, buffer);
}

braid_status braid_transfer_unregister_memory(braid_transfer* transfer, uint64_t buffer,
                                              uint64_t limit_us) {
  return guarded(transfer, [&](Service& service) {
    const auto is_retired = [&] {
      const std::lock_guard lock(transfer->mutex);
      return transfer->retired.contains(buffer);
    };
    if (!is_retired()) {
      const Status wrong = service.remove_buffer(buffer);
      if (!wrong.ok()) return report(wrong);
    }
    const Status held = service.wait_until_free(buffer, limit_us);
    const std::lock_guard lock(transfer->mutex);
    if (!held.ok()) {
      transfer->retired.insert(buffer);
      return report(held, BRAID_ERROR_UNAVAILABLE);
    }
    transfer->retired.erase(buffer);
    transfer->allocations.erase(buffer);
    return BRAID_OK;
  });
}

const char* braid_transfer_last_error() { return braid::abi::last_error(); }

int braid_transfer_last_cause() {
  const int cause = braid::abi::last_cause();
  return cause == static_cast<int>(Cause::kNone) ? BRAID_TRANSFER_NO_CAUSE : cause;
}
