// Sums and products of a program's numbers. Drivers refuse copies whose numbers wrap; wrapped, they
// would name other memory.
#pragma once

#include <cstdint>

namespace braid::preload {

/// An unsigned number that knows whether it has wrapped on the way.
class Checked {
 public:
  explicit Checked(uint64_t value) : value_(value) {}

  friend Checked operator+(Checked left, Checked right) {
    Checked sum(0);
    sum.is_exact_ = !__builtin_add_overflow(left.value_, right.value_, &sum.value_) &&
                    left.is_exact_ && right.is_exact_;
    return sum;
  }
  friend Checked operator*(Checked left, Checked right) {
    Checked product(0);
    product.is_exact_ = !__builtin_mul_overflow(left.value_, right.value_, &product.value_) &&
                        left.is_exact_ && right.is_exact_;
    return product;
  }
  friend Checked operator+(Checked left, uint64_t right) { return left + Checked(right); }
  friend Checked operator*(Checked left, uint64_t right) { return left * Checked(right); }

  bool is_exact() const { return is_exact_; }
  bool is_at_most(uint64_t most) const { return is_exact_ && value_ <= most; }
  /// Means nothing unless it is exact.
  uint64_t value() const { return value_; }

 private:
  uint64_t value_;
  bool is_exact_ = true;
};

}  // namespace braid::preload
