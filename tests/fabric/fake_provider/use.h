// Lets libfabric find the fake providers in this process and in those that it starts.
#pragma once

namespace braid::fabric::test {

/// Before libfabric is used: it looks for providers once.
void use_fake_providers();

}  // namespace braid::fabric::test
