#include "serving/virtual_lag.h"

#include <cmath>
#include <string>

namespace braid::serving {
namespace {

// Beyond it a lag may be infinite, and 0 times that no number: requests would have no order.
constexpr double kMost = 1e9;

double positive_part(double value) { return value > 0 ? value : 0; }

Status refuse(const char* name, double value, const char* rule) {
  return Status::error(std::string(name) + " is " + std::to_string(value), rule);
}

}  // namespace

Status check(const LagParameters& parameters) {
  if (!(parameters.alpha >= 0 && parameters.alpha <= kMost))
    return refuse("alpha", parameters.alpha,
                  "It weighs one lag against another: give 0 or more, and at most 1e9");
  if (!(std::abs(parameters.beta_tbt) <= kMost))
    return refuse("beta_tbt", parameters.beta_tbt, "Give a number between -1e9 and 1e9");
  if (!(std::abs(parameters.beta_ttft) <= kMost))
    return refuse("beta_ttft", parameters.beta_ttft, "Give a number between -1e9 and 1e9");
  return {};
}

double virtual_lag_us(const RequestView& request, int64_t now_us, const LagParameters& parameters) {
  switch (request.state) {
    case RequestState::kRunning: return -static_cast<double>(now_us - request.running_since_us);
    case RequestState::kLoading: return 0;
    case RequestState::kWaiting:
    case RequestState::kRotary: break;
  }
  if (request.last_token_us == kNoToken)
    return positive_part(static_cast<double>(now_us - request.arrival_us) -
                         parameters.beta_ttft * static_cast<double>(request.slo.ttft_us));
  return parameters.alpha *
         positive_part(static_cast<double>(now_us - request.last_token_us) -
                       parameters.beta_tbt * static_cast<double>(request.slo.tbt_us));
}

std::vector<Ranked> lags(const View& view, const LagParameters& parameters) {
  std::vector<Ranked> all;
  all.reserve(view.requests.size());
  for (const RequestView& request : view.requests)
    if (request.state != RequestState::kLoading)
      all.push_back({virtual_lag_us(request, view.now_us, parameters), request.arrival_us,
                     request.id, &request});
  return all;
}

}  // namespace braid::serving
