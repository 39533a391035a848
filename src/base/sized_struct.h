// Structs that callers of the C interfaces fill in. Each begins with its own size, `struct_bytes`,
// so that a program and a library of another version understand each other. `name` is that of the
// type, for the message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/status.h"

namespace braid {

inline Status wrong_struct_size(size_t struct_bytes, const std::string& name) {
  return Status::error(name + ": struct_bytes is " + std::to_string(struct_bytes),
                       "Set it to sizeof(" + name + ")");
}

/// Checks a struct that must have all that is known here.
template <typename Struct>
Status check_sized(const Struct* given, const std::string& name) {
  if (given == nullptr) return Status::error(name + " is null");
  return given->struct_bytes < sizeof(Struct) ? wrong_struct_size(given->struct_bytes, name)
                                              : Status();
}

/// Reads options. Those of an older program are shorter, and ask for nothing more; but a struct
/// with nothing besides its size is a mistake: the size of a pointer. Those of a newer program are
/// longer: an error, unless all that is not known here is zero. Null: all options are zero.
template <typename Options>
Status read_sized(const Options* given, const std::string& name, Options& read) {
  constexpr size_t kMostBytes = 4096;  // more was not set by anybody
  if (given == nullptr) return {};
  const size_t size_bytes = given->struct_bytes;
  if (size_bytes <= sizeof size_bytes || size_bytes > kMostBytes)
    return wrong_struct_size(size_bytes, name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size_bytes > sizeof(Options) && std::any_of(bytes + sizeof(Options), bytes + size_bytes,
                                                  [](unsigned char byte) { return byte != 0; }))
    return Status::error(name + ": the program sets fields that this library does not know",
                         "Install the version that the program was built with");
  std::memcpy(&read, given, std::min(size_bytes, sizeof read));
  return {};
}

}  // namespace braid
