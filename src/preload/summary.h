// The first line of the report for people: what happened, and what to try.
#pragma once

#include "base/text_writer.h"
#include "preload/report.h"
#include "preload/statistics.h"

namespace braid::preload {

/// One line. Of the reasons why copies stayed native it names one that many bytes had, with its
/// remedy if there is one. Allocates nothing.
void write_summary(const ReportedProcess& process, const Statistics& statistics, TextWriter& out);

}  // namespace braid::preload
