// The modules that the loader has loaded: the program and its libraries. Every function takes the
// loader's own lock, so none may be used in a copy's path or under a lock of braid's.
#pragma once

#include <link.h>

#include <span>
#include <string>

namespace braid::loader {

/// The program or library that holds this address; null when none does.
const link_map* module_of(const void* address) noexcept;

/// Whether its file name, without the folders, begins with `prefix`.
bool is_named(const link_map& module, const char* prefix) noexcept;

/// The first loaded library, in the order of loading, whose file name begins with `prefix`; null:
/// none.
const link_map* module_named(const char* prefix) noexcept;

/// The symbol as dlsym finds it, in the module or its dependencies; null: there is none.
void* find_in(const link_map& module, const char* symbol) noexcept;

/// Keeps the module from ever being unloaded.
void keep_loaded(const link_map& module) noexcept;

/// Whether the bytes lie in the module's constants. Reads all of them.
bool has_constant(const link_map& module, std::span<const unsigned char> bytes) noexcept;

/// The path of its file.
std::string path_of(const link_map& module);

}  // namespace braid::loader
