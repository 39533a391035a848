// An order with its descriptor, as engines send it.
#pragma once

#include <cstring>
#include <vector>

#include "fabric/order.h"
#include "fabric/wire.h"

namespace braid::fabric::test {

inline std::vector<std::byte> message_of(const Order& order, const Descriptor& descriptor) {
  std::vector<std::byte> message(sizeof order);
  std::memcpy(message.data(), &order, sizeof order);
  const std::vector<std::byte> named = encode(descriptor);
  message.insert(message.end(), named.begin(), named.end());
  return message;
}

}  // namespace braid::fabric::test
