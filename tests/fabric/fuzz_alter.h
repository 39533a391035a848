// Bytes that nobody should have sent: valid ones, altered, cut and spliced, from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "fabric/sim/random.h"

namespace braid::fabric::test {

using Input = std::vector<uint8_t>;

/// `all`: others to take parts of.
inline void alter(Input& input, const std::vector<Input>& all, sim::Random& random) {
  const auto place = [&] { return random.below(input.size()); };
  static constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
  switch (random.below(7)) {
    case 0: input[place()] ^= static_cast<uint8_t>(1u << random.below(8)); break;
    case 1: input[place()] = static_cast<uint8_t>(random.next()); break;
    case 2: input[place()] = kEdges[random.below(std::size(kEdges))]; break;
    case 3: input.resize(1 + place()); break;
    case 4: input.insert(input.end(), random.below(40), static_cast<uint8_t>(random.next())); break;
    case 5: {
      const Input& other = all[random.below(all.size())];
      const size_t from = random.below(other.size());
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(place()),
                   other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
    default: {
      const size_t first = place();
      for (size_t i = first; i < std::min(first + 8, input.size()); ++i)
        input[i] = static_cast<uint8_t>(random.next());
    }
  }
}

}  // namespace braid::fabric::test
