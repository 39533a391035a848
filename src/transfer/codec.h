// The codec of data that crosses between processes: names, descriptions of engines, and messages of
// rails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_codec.h"

namespace braid::transfer {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

using Writer = ByteWriter<uint32_t>;
using Reader = ByteReader<uint32_t>;

}  // namespace braid::transfer
