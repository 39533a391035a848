// One number of a report that is text, JSON and Prometheus's format.
#pragma once

#include "base/prometheus.h"

namespace braid {

/// `Value` gets it from what is reported: a function or a member.
template <typename Value>
struct Metric {
  const char* key;   ///< in text and JSON
  const char* name;  ///< Prometheus's
  const char* type;  ///< as `write_head` takes it
  const char* help;
  Value value;
};

template <typename Value>
void write_head(const Metric<Value>& metric, TextWriter& out) {
  write_head(metric.name, metric.type, metric.help, out);
}

}  // namespace braid
