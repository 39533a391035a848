#include "fabric/ofi/shm_room.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <string>

namespace braid::fabric::ofi {
namespace {

constexpr uint64_t kOfCpuMib = 16;
constexpr uint64_t kAmpleMib = 8192;  // an engine has up to 100 further files

}  // namespace

ShmRoom shm_room() {
  ShmRoom room;
  struct statvfs found {};
  room.is_there = statvfs("/dev/shm", &found) == 0;
  room.free_mib = uint64_t{found.f_bavail} * found.f_bsize >> 20;
  room.wanted_mib = kOfCpuMib * static_cast<uint64_t>(sysconf(_SC_NPROCESSORS_ONLN));
  return room;
}

bool is_ample(const ShmRoom& room) { return room.is_there && room.free_mib >= kAmpleMib; }

Status check(const ShmRoom& room) {
  if (!room.is_there) return Status::error("missing, so shm cannot work", "Mount a tmpfs there");
  if (room.free_mib >= room.wanted_mib) return {};
  return Status::error(
      std::to_string(room.free_mib) + " MiB free, too little for shm, which wants " +
          std::to_string(kOfCpuMib) +
          " MiB free for each CPU of the host: " + std::to_string(room.wanted_mib) + " MiB here",
      "Remove files there, or make it larger (mount -o remount,size=...; containers: --shm-size)");
}

}  // namespace braid::fabric::ofi
