// An object that a thread keeps between calls, so that calls do not allocate. It ends with the
// thread; but the program's own thread_local objects may end later, and still call braid as they
// do.
#pragma once

namespace braid {

/// This thread's T, made by the first call; null when it has been destroyed. One for each T.
template <typename T>
T* kept_by_thread() {
  static thread_local bool is_over = false;  // without a destructor, so it is readable to the end
  struct Kept {
    T object;
    ~Kept() { is_over = true; }
  };
  if (is_over) return nullptr;
  static thread_local Kept kept;
  return &kept.object;
}

}  // namespace braid
