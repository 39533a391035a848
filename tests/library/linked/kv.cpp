#include <braid/kv.h>

int main() {
  const braid::Rotation::Model model = {2, 8, 128, 2, 16};
  return braid::Rotation::segments(model, braid::Rotation::GpuOrder::kBlockFirst, 4).ok() ? 0 : 1;
}
