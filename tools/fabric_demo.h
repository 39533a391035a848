// `braid fabric demo`: four rails of this host, one of which is killed, and a peer that stops.
#pragma once

#include <string>

namespace braid::tools {

struct FabricDemoOptions {
  int seconds = 40;
  std::string svg_file = "fabric-demo.svg";
  bool corrupts = false;  ///< one write has wrong bytes, to see that they are found
};

/// To be called by a process of one thread that has not loaded libfabric: it forks. Returns the
/// exit code: 1 for wrong bytes, if what should go on does not, or if the plot cannot be written.
int fabric_demo(const FabricDemoOptions& options);

}  // namespace braid::tools
