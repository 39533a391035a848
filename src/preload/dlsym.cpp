// braid's `dlsym`: everything a program looks up passes through to the real one, as if braid were
// not there, except the tables' entry points when they are the CUDA driver's or runtime's.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "lending/cudart.h"
#include "loader/libc_dlsym.h"
#include "loader/module.h"
#include "preload/binding.h"
#include "preload/entries.h"
#include "preload/hooks.h"

using braid::loader::libc_dlsym;

// What braid's dlsym decides, in two registers: `is_answer` 0 lets the next dlsym answer.
struct BraidChoice {
  void* answer;
  long is_answer;
};

namespace {

using DlsymFunction = void* (*)(void* handle, const char* name);

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
  void* next = libc_dlsym(RTLD_NEXT, "dlsym");
  braid_next_dlsym.store(reinterpret_cast<DlsymFunction>(next), std::memory_order_release);
  return next != nullptr;
}

}  // namespace

namespace braid::preload {
namespace {

// A name that one of the tables knows.
struct Hooked {
  void* exported;  // braid's own function, which the global scope finds
  void* behind;    // the one that it stands before for this caller; null: there is none
  std::optional<lending::CudartHookId> cudart;

  /// What the program gets when a library's own function of the name is found.
  void* instead_of(void* found) const {
    if (found == nullptr || found == exported) return found;
    if (cudart) return lending::cudart_hook_before(*cudart, found);
    // Another library may define a function of the same name: that one is not the driver's.
    return found == behind ? exported : found;
  }
};

std::optional<Hooked> find_hooked(const char* name, const void* caller) noexcept {
  if (is_driver_name(name)) {
    if (const auto hook = find_symbol(name))
      return Hooked{replacement(*hook), real_function(*hook), std::nullopt};
  } else if (lending::is_cudart_name(name)) {
    if (const auto hook = lending::find_cudart_symbol(name))
      return Hooked{lending::cudart_export(*hook), lending::cudart_behind(*hook, caller), hook};
  }
  return std::nullopt;
}

constexpr BraidChoice kPassOn{nullptr, 0};

// This library stands in for libbraid.so (library/backend.h). Functions of the same name in other
// libraries are left alone.
void* find_library_function(void* handle, const char* name) noexcept {
  if (std::strncmp(name, "braid_", 6) != 0 || handle == RTLD_NEXT) return nullptr;
  void* const found = next_dlsym()(handle, name);
  const link_map* module = found != nullptr ? braid::loader::module_of(found) : nullptr;
  if (module == nullptr || !braid::loader::is_named(*module, "libbraid.so")) return nullptr;
  return libc_dlsym(RTLD_DEFAULT, name);
}

// braid's export must not make a function appear that the program would not find, because its
// library lacks it or is not loaded: without one it gets what follows braid. The last lookup is the
// one whose error the program reads with dlerror; where it finds something there is none.
void* find_for_program(const Hooked& hooked, void* handle, const char* name) noexcept {
  const auto follows = [name] { return libc_dlsym(RTLD_NEXT, name); };
  if (hooked.behind == nullptr && (handle == RTLD_DEFAULT || handle == RTLD_NEXT)) return follows();
  if (handle == RTLD_NEXT) return hooked.instead_of(hooked.behind);
  void* const found = next_dlsym()(handle, name);
  if (found == hooked.exported && hooked.behind == nullptr) return follows();
  return hooked.instead_of(found);
}

BraidChoice choose(const Hooked& hooked, void* handle, const char* name) noexcept {
  // What follows the caller only its own call can find, unless it is nowhere but in its own scope.
  const bool is_ahead = handle == RTLD_NEXT && libc_dlsym(RTLD_NEXT, name) != nullptr;
  if (is_ahead || (handle == RTLD_DEFAULT && hooked.behind != nullptr)) return kPassOn;
  void* const found = find_for_program(hooked, handle, name);
  if (found != nullptr) dlerror();
  return {found, 1};
}

}  // namespace
}  // namespace braid::preload

extern "C" {

__attribute__((visibility("hidden"), used)) BraidChoice braid_choose_symbol(
    void* handle, const char* name, const void* caller) noexcept {
  using namespace braid::preload;
  if (!find_next_dlsym()) return {nullptr, 1};
  if (void* own = name != nullptr ? find_library_function(handle, name) : nullptr) return {own, 1};
  const auto hooked = name != nullptr ? find_hooked(name, caller) : std::nullopt;
  return hooked ? choose(*hooked, handle, name) : kPassOn;
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
    movq 24(%rsp), %rdx
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
