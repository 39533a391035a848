// What the loader has loaded: the program and its libraries. Every function takes the loader's own
// lock, so none is for a copy's path, nor for use under a lock of braid's.
#pragma once

#include <link.h>

#include <span>
#include <string>

namespace braid::loader {

/// The program or library that holds this address; null when none does.
const link_map* module_of(const void* address) noexcept;

/// Whether its file name, without the folders, begins so.
bool is_named(const link_map& module, const char* prefix) noexcept;

/// The first loaded library, in the order of loading, whose file name begins so; null: none.
const link_map* module_named(const char* prefix) noexcept;

/// As dlsym finds it, in the module or in what it depends on; null: it has none.
void* find_in(const link_map& module, const char* symbol) noexcept;

/// The module is never unloaded.
void keep_loaded(const link_map& module) noexcept;

/// Whether the bytes lie in the module's constants. Reads all of them.
bool has_constant(const link_map& module, std::span<const unsigned char> bytes) noexcept;

/// The path of its file.
std::string path_of(const link_map& module);

}  // namespace braid::loader
