#include "preload/dlsym.h"

#include <dlfcn.h>

#include <atomic>

#include "preload/entries.h"
#include "preload/hooks.h"
#include "preload/runtime.h"

// What braid's dlsym decides, in two registers: `is_answer` 0 lets the next dlsym answer.
struct BraidChoice {
  void* answer;
  long is_answer;
};

namespace {

using DlsymFunction = void* (*)(void* handle, const char* name);

// dlsym may be called before any constructor has run, so both are found at first use; two threads
// that race store the same value.
constinit std::atomic<DlsymFunction> libc_function{nullptr};

DlsymFunction libc_dlsym_function() noexcept {
  DlsymFunction found = libc_function.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  // glibc 2.34 moved dlsym into libc; the first version's name depends on the architecture.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5"}) {
    found = reinterpret_cast<DlsymFunction>(dlvsym(RTLD_NEXT, "dlsym", version));
    if (found == nullptr) continue;
    libc_function.store(found, std::memory_order_release);
    return found;
  }
  return nullptr;
}

}  // namespace

extern "C" {

// The dlsym that the program would have called without braid: another preloaded library's, or
// libc's.
__attribute__((visibility("hidden"), used)) constinit std::atomic<DlsymFunction> braid_next_dlsym{
    nullptr};

}  // extern "C"

namespace {

DlsymFunction next_dlsym() noexcept { return braid_next_dlsym.load(std::memory_order_acquire); }

bool find_next_dlsym() noexcept {
  if (next_dlsym() != nullptr) return true;
  const DlsymFunction real = libc_dlsym_function();
  if (real == nullptr) return false;
  void* next = real(RTLD_NEXT, "dlsym");
  braid_next_dlsym.store(next != nullptr ? reinterpret_cast<DlsymFunction>(next) : real,
                         std::memory_order_release);
  return true;
}

}  // namespace

extern "C" {

__attribute__((visibility("hidden"), used)) BraidChoice braid_choose_symbol(
    void* handle, const char* name) noexcept {
  using namespace braid::preload;
  constexpr BraidChoice kPassOn{nullptr, 0};
  if (!find_next_dlsym()) return {nullptr, 1};
  // After RTLD_NEXT comes what follows the caller; only the caller's own call can find that.
  if (handle == RTLD_NEXT || name == nullptr || !is_driver_name(name)) return kPassOn;
  const std::optional<HookId> hook = find_symbol(name);
  if (!hook) return kPassOn;
  void* const drivers_own = real_function(*hook);
  // The global scope finds braid's export, which must not make a function appear that the driver
  // lacks, or a driver where none is loaded.
  if (handle == RTLD_DEFAULT && drivers_own != nullptr) return kPassOn;
  void* found = handle == RTLD_DEFAULT ? replacement(*hook) : next_dlsym()(handle, name);
  if (found == replacement(*hook) && drivers_own == nullptr)
    return {libc_dlsym(RTLD_NEXT, name), 1};
  // Another library may define a function of the same name: that one is not the driver's.
  if (found != nullptr && found == drivers_own) found = replacement(*hook);
  return {found, 1};
}

}  // extern "C"

// The pass-through is a jump, so that the next dlsym sees the program's return address: RTLD_NEXT
// and RTLD_DEFAULT are answered by who asks.
#if !defined(__x86_64__)
#error "braid's dlsym is written for x86-64"
#endif
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
    .balign 16
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call braid_choose_symbol
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jne 1f
    movq braid_next_dlsym(%rip), %rax
    jmp *%rax
1:  ret
    .cfi_endproc
    .size dlsym, . - dlsym
)");

namespace braid::preload {

void* libc_dlsym(void* handle, const char* name) noexcept {
  const DlsymFunction real = libc_dlsym_function();
  return real == nullptr ? nullptr : real(handle, name);
}

}  // namespace braid::preload
