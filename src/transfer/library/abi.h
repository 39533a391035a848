// Shared by the files of the C interface (abi_*.cpp).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "abi/call.h"
#include "braid/transfer_abi.h"
#include "host/allocation.h"
#include "transfer/failure.h"
#include "transfer/library/service.h"

struct braid_transfer {
  std::map<uint64_t, braid::MappedPages> allocations;  // by buffer; after the service
  std::set<uint64_t> retired;  // buffers that were still in use when unregister returned
  std::mutex mutex;            // of `allocations` and `retired`
  std::unique_ptr<braid::transfer::Service> service;
  braid::abi::Process process;
};

namespace braid::transfer::abi {

using braid::abi::guarded;
using braid::abi::hand_out;
using braid::abi::read_struct;
using braid::abi::report;

/// Whether none of the texts is null.
bool is_list(const char* const* texts, size_t count);
std::vector<std::string> list_of(const char* const* texts, size_t count);

/// An error: the operation or the urgency is invalid.
Status check_request(const braid_transfer_request& given);
inline bool is_urgency(int urgency) {
  return urgency == BRAID_TRANSFER_BULK || urgency == BRAID_TRANSFER_URGENT;
}
Request request_of(const braid_transfer_request& given);

inline constexpr const char* kWrongRights = "rights are bits: may read, may write";
inline bool are_rights(int rights) { return (rights & ~(kMayRead | kMayWrite)) == 0; }

/// Copies text out as braid_transfer_name describes.
inline braid_status hand_out(const std::string& text, char* buffer, size_t buffer_bytes,
                             size_t* needed_bytes) {
  return hand_out(text.c_str(), text.size() + 1, buffer, buffer_bytes, needed_bytes);
}

}  // namespace braid::transfer::abi
