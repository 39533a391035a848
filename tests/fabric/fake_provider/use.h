// Lets libfabric find the fake providers in this process and in those that it starts.
#pragma once

#include <string>

namespace braid::fabric::test {

/// Before libfabric is used: it looks for providers once.
void use_fake_providers();

/// All connections of the fake verbs from or to this address of this process break, as when a link
/// fails. Returns how many.
int break_fake_connections(const std::string& address);

}  // namespace braid::fabric::test
