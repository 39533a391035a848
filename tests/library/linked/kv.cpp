#include <braid/kv.h>

// Without a braid::Engine it needs no other library of braid.
int main() {
  const braid::Rotation::Model model = {2, 8, 128, 2, 16};
  const auto segments = braid::Rotation::segments(model, braid::Rotation::GpuOrder::kBlockFirst, 4);
  if (!segments.ok()) return 1;
  return braid::Rotation::open({segments.value(), 4, 4, {}}).ok() ? 1 : 0;  // no rank
}
