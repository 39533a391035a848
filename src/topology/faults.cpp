#include "topology/faults.h"

#include "base/try.h"

namespace braid::topology {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

constexpr const char* kSymbols[] = {
#define BRAID_SYMBOL(name) #name,
#include "cuda_symbols.inc"
#undef BRAID_SYMBOL
};
constexpr const char* kErrors[] = {
#define BRAID_ERROR(name) #name,
#include "cuda_errors.inc"
#undef BRAID_ERROR
};

int read_link(const JsonNode& ends, const Server& server) {
  const std::vector<JsonNode> names = ends.items(2, "the two ends of a link");
  for (size_t i = 0; i < server.links.size() && names.size() == 2; ++i) {
    const std::string& from = server.vertices[static_cast<size_t>(server.links[i].from)].id;
    const std::string& to = server.vertices[static_cast<size_t>(server.links[i].to)].id;
    const std::string one = names[0].text(), other = names[1].text();
    if ((from == one && to == other) || (from == other && to == one)) return static_cast<int>(i);
  }
  ends.refuse("is not a link of the server");
  return 0;
}

}  // namespace

void read_faults(const JsonNode& node, const Server& server, Faults& faults) {
  if (node.json() != nullptr && !node.json()->is_object()) return node.fail("an object");
  node.expect_keys({}, {"calls", "links", "busy", "contexts_fail_alone", "contexts_take_ms",
                        "kernels_take_local_bytes"});
  const auto each = [&](const char* kind) {
    const auto found = node.find(kind);
    return found ? found->items(0, "a list of faults") : std::vector<JsonNode>();
  };
  for (const JsonNode& fault : each("calls")) {
    fault.expect_keys({"name", "nth", "error"});
    faults.calls.push_back({fault["name"].known_name(kSymbols), fault["nth"].whole_number(1, kMost),
                            fault["error"].known_name(kErrors)});
  }
  for (const JsonNode& fault : each("links")) {
    fault.expect_keys({"ends", "factor", "from_us"}, {"to_us"});
    const auto to = fault.find("to_us");
    faults.links.push_back({read_link(fault["ends"], server), fault["factor"].number_above_zero(),
                            fault["from_us"].number_from_zero(),
                            to ? to->number_from_zero() : std::numeric_limits<double>::infinity()});
  }
  for (const JsonNode& fault : each("busy")) {
    fault.expect_keys({"gpu", "from_us", "to_us"});
    faults.busy.push_back({fault["gpu"].whole_number(0, static_cast<int>(server.gpus.size()) - 1),
                           fault["from_us"].number_from_zero(), fault["to_us"].number_from_zero()});
  }
  if (const auto alone = node.find("contexts_fail_alone"))
    faults.contexts_fail_alone = alone->truth();
  if (const auto ms = node.find("contexts_take_ms"))
    faults.contexts_take_ms = ms->whole_number(0, kMost);
  if (const auto bytes = node.find("kernels_take_local_bytes"))
    faults.kernels_take_local_bytes = bytes->whole_number(0, kMost);
}

Status add_faults(std::string_view json, const std::string& origin, const Server& server,
                  Faults& faults) {
  if (json.empty()) return {};
  BRAID_LET(document, parse_json(json, origin));
  JsonErrors errors(origin);
  read_faults(JsonNode(&document, "", &errors), server, faults);
  return errors.first();
}

}  // namespace braid::topology
