// What kv_model does at random.
#pragma once

#include <array>
#include <cstdint>

namespace braid::kv::test {

enum class Kind : uint8_t {
  kStep,
  kCreate,
  kShare,
  kRelease,
  kUse,
  kEndUse,
  kSeal,
  kReopen,
  kSync,
  kLoad,
  kEvict,
  kKeep,
  kDropHost,
  kLose,
  kAdvance,
  kPoll,
  kLoseGpu,
  kLoseAll
};
inline constexpr std::array kNames = {
    "step", "create", "share", "release",   "use",  "end_use", "seal", "reopen",   "sync",
    "load", "evict",  "keep",  "drop_host", "lose", "advance", "poll", "lose_gpu", "lose_all"};
struct Operation {
  Kind kind;
  uint32_t block;   // which of those that live
  uint32_t choice;  // how
};

}  // namespace braid::kv::test
