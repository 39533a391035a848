// Primary contexts are counted: a GPU's lives while anybody holds it, and braid holds those of its
// relays and targets. The program sees the count as if braid held none: its last release ends the
// context, what it does not hold is inactive, and what it has not retained it cannot release.
#pragma once

#include <mutex>

namespace braid::preload {

/// Before braid holds any: contexts that are active by now are held by somebody other than braid,
/// whether the program was seen to retain them or not. Call it inside braid, with a driver, holding
/// `hold_primaries`.
void note_primaries() noexcept;

/// While this is held no primary context ends: hold it to open the engine, and to adopt those that
/// are active, or one might be adopted between braid's forgetting it and its end, or end while the
/// engine that holds it cannot be told. Taken before any other lock.
std::unique_lock<std::mutex> hold_primaries();

}  // namespace braid::preload
