// The identity of a GPU as CUDA and nvidia-smi write it:
// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6". CUDA_VISIBLE_DEVICES also takes a beginning of it
// that is unique.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace braid {

/// The 16 bytes of a CUuuid as text.
std::string format_gpu_uuid(std::span<const char, 16> bytes);

/// True when `text`, an entry of CUDA_VISIBLE_DEVICES, is `uuid` or its beginning ("GPU-89").
bool names_gpu(std::string_view text, std::string_view uuid);

}  // namespace braid
