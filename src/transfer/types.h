// Plain data of requests to an engine and of their outcomes. Sizes are in bytes, times in
// nanoseconds of the caller's clock.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "transfer/codec.h"

namespace braid::transfer {

/// Identifies an engine: 128 random bits, which no other engine has or has had.
using Incarnation = std::array<uint64_t, 2>;

enum class Operation : uint8_t { kRead, kWrite };  ///< from the segment, or to it

/// What peers may do with memory or files: bits.
using Rights = uint8_t;
inline constexpr Rights kNoRights = 0;
inline constexpr Rights kMayRead = 1;
inline constexpr Rights kMayWrite = 2;

/// Why a request has failed. Each kind of bad input has its own cause, and fails only its own
/// request.
enum class Cause : uint8_t {
  kNone,
  kNoSegment,     ///< there is no such segment (any more)
  kLocalMemory,   ///< the caller's side is not within one registered buffer
  kOutside,       ///< the far side is not within one buffer, or one file
  kNotAllowed,    ///< the owner has not given this right there
  kNoFile,        ///< no such file within the exported folder
  kFileError,     ///< the owner's storage refused
  kDeadline,      ///< its deadline has passed
  kCancelled,     ///< the caller has cancelled it
  kPeerLost,      ///< the owner has ended, or cannot be reached by any way
  kTooMuch,       ///< beyond a limit of this engine or the owner's
  kOtherVersion,  ///< the owner, or each rail that leads there, speaks no version known here
  kPathFailed,    ///< of a slice only: the way broke, another one may work
  kGpuError,      ///< the driver of a GPU refused
  kNoWay,         ///< no rail leads from the one memory to the other
  kOtherWay,      ///< of a slice only: the owner's rail does not reach this memory
  kOtherSecret,   ///< the owner has another secret
  kNoStore,       ///< the store of names does not answer
  kNoSpace,       ///< the owner's storage is full, or its user's part of it
  kReadOnly,      ///< the owner's storage cannot be written
  kDeviceError,   ///< the owner's storage is broken
  kStoreRefuses,  ///< the store of names wants a password, refuses it, or denies a command
};
/// Owners say those up to this one, and from version 3 on the three of storage.
inline constexpr Cause kLastCause = Cause::kOtherWay;
constexpr bool is_of_storage(Cause cause) {
  return cause >= Cause::kNoSpace && cause <= Cause::kDeviceError;
}

constexpr const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kNone: return "done";
    case Cause::kNoSegment: return "no such segment";
    case Cause::kLocalMemory: return "local memory is not registered";
    case Cause::kOutside: return "outside what the owner has registered";
    case Cause::kNotAllowed: return "the owner has not given this right";
    case Cause::kNoFile: return "no such file in the exported folder";
    case Cause::kFileError: return "the owner's storage refused";
    case Cause::kDeadline: return "the deadline has passed";
    case Cause::kCancelled: return "cancelled";
    case Cause::kPeerLost: return "the owner is lost";
    case Cause::kTooMuch: return "beyond a limit";
    case Cause::kOtherVersion: return "the owner speaks another version";
    case Cause::kPathFailed: return "the way has failed";
    case Cause::kGpuError: return "the GPU's driver refused";
    case Cause::kNoWay: return "no way leads there from that memory";
    case Cause::kOtherWay: return "not by this way";
    case Cause::kOtherSecret: return "the owner has another secret";
    case Cause::kNoStore: return "the store does not answer";
    case Cause::kNoSpace: return "no space is left on the owner's storage, or of its quota";
    case Cause::kReadOnly: return "the owner's storage is read-only";
    case Cause::kDeviceError: return "the owner's storage has an input/output error";
    case Cause::kStoreRefuses: return "the store refuses";
  }
  return "unknown";
}

}  // namespace braid::transfer
