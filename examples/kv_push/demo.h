// All of it on this host: prefillers are processes that join, leave and are killed, while this one
// decodes.
#pragma once

#include "decoder.h"

namespace kv_push {

struct DemoOptions {
  bool has_gpu = false;
  bool corrupts = false;  // a prefiller writes a wrong byte: the program has to end with 1
};

/// Ends the program with 1 if anything is not as it should be.
void run_demo(Fabric& fabric, Device& device, const DemoOptions& options);

std::string to_hex(const Bytes& bytes);
Bytes from_hex(const std::string& text);

}  // namespace kv_push
