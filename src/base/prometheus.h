// Parts of Prometheus's text exposition format. They allocate nothing.
#pragma once

#include <string_view>

#include "base/text_writer.h"

namespace braid {

/// A label's value, without its quotes.
void write_escaped(std::string_view text, TextWriter& out);

/// The two lines before a metric's series. `type`: "counter", "gauge" or "summary".
void write_head(std::string_view name, std::string_view type, std::string_view help,
                TextWriter& out);

}  // namespace braid
