// The profiles that come with braid, for tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "topology/profile.h"

namespace braid::topology {

inline constexpr const char* kShipped[] = {"h20x8", "h200x4"};

inline std::string shipped_path(const std::string& name) {
  return std::string(BRAID_PROFILES) + "/" + name + ".json";
}

inline std::string shipped_text(const std::string& name) {
  std::ifstream file(shipped_path(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Server shipped(const std::string& name) {
  auto server = load_profile(shipped_path(name));
  EXPECT_TRUE(server.ok()) << server.status().message();
  return server.ok() ? std::move(server).value() : Server();
}

}  // namespace braid::topology
