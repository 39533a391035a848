// Resolves a name to the description that its engine gives of itself. Blocks the caller's thread
// until the limit at most, and touches no engine.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/seal.h"
#include "transfer/description.h"
#include "transfer/directory/names.h"
#include "transfer/directory/socket.h"

namespace braid::transfer {

/// `end_ns` of CLOCK_MONOTONIC. `store`: the URL of a store for bare names that no process of this
/// host has; empty: none.
Result<Description> resolve(const Name& name, const std::string& store,
                            const fabric::Secret& secret, uint64_t end_ns);

/// What the engine there says of itself, or why it does not.
Result<Description> ask_for_description(const Name& engine, const fabric::Secret& secret,
                                        uint64_t end_ns);
/// The engine of a store's record. An error: the value is no address of one engine.
Result<Name> engine_of_record(const std::string& value);

/// Where an engine of this name listens: the name itself, or the store's record of it.
Result<Name> find_engine(const Name& name, const std::string& store, uint64_t end_ns);
/// Whether it is certain that this engine has ended: nobody listens at its address, or another
/// engine does. Whoever is silent, closes or resets connections, or cannot be reached may live.
/// Blocks until the limit at most.
bool has_ended(const Name& engine, const fabric::Secret& secret, uint64_t end_ns);
/// Without a secret, who listens at an address of this host is a process of this user, or it is an
/// error (host/same_user.h).
Result<Descriptor> connect_to_engine(const Name& name, const fabric::Secret& secret,
                                     uint64_t end_ns);

}  // namespace braid::transfer
