// An answer with something in every field.
#pragma once

#include "transfer/description.h"

namespace braid::transfer {

inline Answer some_answer() {
  Answer answer;
  answer.nonce = 77;
  answer.description.incarnation = {1, 2};
  answer.description.name = "prefill-0";
  answer.description.rails = {
      {"tcp;ofi_rxm", "10.0.0.7", 12.5, {false, 1, 3, 2}, std::vector<std::byte>(60)}};
  answer.description.places = {{{false, 1, -1, -1}, 1}, {{true, 0, 3, 2}, 2}};
  answer.description.ranges = {{4096, 100, kMayRead, 0}, {8192, 5, kMayWrite, 1}};
  answer.description.exports = {{"kv", kMayRead}};
  answer.description.distances = {{0, 1}, {{10, 21}, {21, 10}}};
  return answer;
}

}  // namespace braid::transfer
