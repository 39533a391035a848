// What this process's program is called, in reports and in tables of processes.
#pragma once

#include <string_view>

namespace braid {

/// `ps` shows this name when the program has cleared its own, as setproctitle does; it is then in
/// `buffer`. A signal handler may call this.
std::string_view program_name(char (&buffer)[16]) noexcept;

}  // namespace braid
