// Virtual lag time: how far a request is behind its objectives, in microseconds. Positive: behind,
// so run it. Negative: ahead, so it may be preempted. SuperInfer section 4.2.2.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "serving/request_state.h"

namespace braid::serving {

/// Defaults: section 5.2. None is beyond 1e9, which keeps every lag a number.
struct LagParameters {
  double alpha = 3;     ///< weight of the gap between tokens against the wait for the first; >= 0
  double beta_tbt = 0;  ///< beta_B: share of the TBT objective that is tolerated
  double beta_ttft = 0.5;  ///< beta_F: share of the TTFT objective that is tolerated
};

/// An error names the parameter.
Status check(const LagParameters& parameters);

///   rotary    alpha * max(0, now - last token - beta_B * S_B)
///   waiting           max(0, now - arrival    - beta_F * S_F)
///   running           -(now - running since)
/// S_B is the objective of TBT and S_F that of TTFT, as section 5.3 uses them; a sentence of 4.2.2
/// names them the other way round. A rotary request without a token counts like a waiting one; a
/// waiting one with tokens, to be computed again, like a rotary one. A loading request has no lag:
/// it has been admitted.
double virtual_lag_us(const RequestView& request, int64_t now_us, const LagParameters& parameters);

/// Order: the largest lag first, then the earliest arrival, then the lowest id. It is a total
/// order, so the order of the requests in a view does not matter.
struct Ranked {
  double lag_us;
  int64_t arrival_us;
  RequestId id;
  const RequestView* request;

  friend bool operator<(const Ranked& a, const Ranked& b) {
    if (a.lag_us != b.lag_us) return a.lag_us > b.lag_us;
    return a.arrival_us != b.arrival_us ? a.arrival_us < b.arrival_us : a.id < b.id;
  }
};

/// All requests of the view except loading ones, in no order.
std::vector<Ranked> lags(const View& view, const LagParameters& parameters);

}  // namespace braid::serving
