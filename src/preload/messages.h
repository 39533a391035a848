// Braid's messages to the user of a program: on stderr, each message once.
#pragma once

namespace braid::preload {

/// One line on stderr, "braid: <message>", unless the process has said the same before.
void say_once(const char* message) noexcept;

}  // namespace braid::preload
