#include "emulator/model/gpu_uuid.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace braid::emulator {

CUuuid gpu_uuid(const topology::Server& server, int gpu) {
  CUuuid uuid{};
  const std::string text = "braid" + server.name;
  std::memcpy(uuid.bytes, text.data(), std::min<size_t>(text.size(), 15));
  uuid.bytes[15] = static_cast<char>(gpu);
  return uuid;
}

}  // namespace braid::emulator
