// Makes the call that a Copy or a Mistake describes.
#pragma once

#include <functional>

#include "stress/calls.h"
#include "stress/program.h"

namespace braid::stress {

/// Where a region lies, for host regions too.
using AddressOf = std::function<CUdeviceptr(int region)>;

/// `stream` is what an asynchronous call is given. For a batch of CUDA 12.8's form that fails,
/// `fail_index` is the entry that it blames.
CUresult make_copy(const Calls& calls, const Copy& copy, CUstream stream, const AddressOf& address,
                   size_t& fail_index);

/// Memory of its own that mistakes are made with.
struct Victim {
  CUdeviceptr device;
  uint8_t* host;
  uint64_t size_bytes;
};
CUresult make_mistake(const Calls& calls, Mistake mistake, CUstream stream, const Victim& victim,
                      size_t& fail_index);

}  // namespace braid::stress
