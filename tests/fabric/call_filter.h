// Makes the kernel refuse some system calls to the calling thread and to those that it starts, as
// an older kernel or a container's limits do.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::fabric::test {

inline constexpr sock_filter load(size_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
}
inline constexpr sock_filter load_number() { return load(offsetof(seccomp_data, nr)); }
/// The low half of an argument.
inline constexpr sock_filter load_argument(size_t index) {
  return load(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
}
inline constexpr sock_filter skip_unless(uint32_t value, uint8_t steps) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, steps, value};
}
inline constexpr sock_filter skip_unless_bit(uint32_t bit, uint8_t steps) {
  return {BPF_JMP | BPF_JSET | BPF_K, 0, steps, bit};
}
inline constexpr sock_filter refuse(int error) {
  return {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)};
}
inline constexpr sock_filter allow() { return {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}; }

/// For good. False: the kernel does not let calls be filtered.
inline bool filter_calls(std::vector<sock_filter> steps) {
  const sock_fprog program{static_cast<unsigned short>(steps.size()), steps.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace braid::fabric::test
