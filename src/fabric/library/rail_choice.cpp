#include "fabric/library/rail_choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "fabric/ofi/quirks.h"
#include "fabric/wire.h"
#include "host/addresses.h"

namespace braid::fabric {
namespace {

using topology::Nic;
using topology::NicState;

constexpr const char* kLoopback = "127.0.0.1";

struct Pattern {
  bool excludes = false;
  bool is_exact = false;
  std::vector<std::string> words;

  bool matches(const std::string& word, const Nic& nic) const {
    return is_exact ? nic.name == word : nic.name.starts_with(word);
  }
};

Pattern parse(std::string_view text) {
  Pattern pattern;
  pattern.excludes = text.starts_with('^');
  if (pattern.excludes) text.remove_prefix(1);
  pattern.is_exact = text.starts_with('=');
  if (pattern.is_exact) text.remove_prefix(1);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) pattern.words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pattern;
}

bool is_usable(const Nic& nic) { return nic.state == NicState::kUp && !nic.addresses.empty(); }

bool is_loopback(const Nic& nic) {
  return !nic.addresses.empty() && braid::is_loopback(nic.addresses.front());
}

/// "eth0 (10.0.0.7), ifb0 (down), eth2 (no address)"
std::string describe(const std::vector<Nic>& nics) {
  std::string text;
  for (const Nic& nic : nics) {
    text += (text.empty() ? "" : ", ") + nic.name + " (";
    text += nic.state != NicState::kUp ? "down"
            : nic.addresses.empty()    ? "no address"
                                       : nic.addresses.front();
    text += ")";
  }
  return text.empty() ? "none" : text;
}

Status unusable(const std::string& what, const std::vector<Nic>& nics) {
  return Status::error(what, "Here are " + describe(nics));
}

Status take(const Pattern& pattern, const std::string& word, const std::vector<Nic>& nics,
            std::vector<const Nic*>& taken) {
  bool is_here = false, is_taken = false;
  for (const Nic& nic : nics) {
    if (!pattern.matches(word, nic)) continue;
    is_here = true;
    if (!is_usable(nic)) continue;
    is_taken = true;
    if (std::find(taken.begin(), taken.end(), &nic) == taken.end()) taken.push_back(&nic);
  }
  if (is_taken) return {};
  const std::string name = "'" + word + "'";
  if (is_here) return unusable("NIC " + name + " is down, or has no address", nics);
  return unusable("no NIC is called " + name + (pattern.is_exact ? "" : ", or begins so"), nics);
}

std::vector<const Nic*> all_but(const Pattern& pattern, const std::vector<Nic>& nics) {
  std::vector<const Nic*> taken;
  for (const Nic& nic : nics) {
    const bool is_excluded =
        std::any_of(pattern.words.begin(), pattern.words.end(),
                    [&](const std::string& word) { return pattern.matches(word, nic); });
    if (is_usable(nic) && !is_loopback(nic) && !is_excluded) taken.push_back(&nic);
  }
  return taken;
}

/// The node of most NICs; among equals the lowest.
int common_node(const std::vector<const Nic*>& nics) {
  std::map<int, int> counts;
  for (const Nic* nic : nics)
    if (nic != nullptr && nic->numa_node >= 0) ++counts[nic->numa_node];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? -1 : most->first;
}

}  // namespace

std::vector<Nic> by_rdma_device(const std::vector<Nic>& nics) {
  std::vector<Nic> with_device;
  for (Nic nic : nics) {
    if (nic.rdma_device.empty()) continue;
    nic.addresses = {nic.rdma_device};
    // An RDMA device without a network interface has no state in the kernel.
    if (nic.state == NicState::kUnknown) nic.state = NicState::kUp;
    with_device.push_back(std::move(nic));
  }
  return with_device;
}

RailChoice rails_at(const std::vector<std::string>& addresses, const std::vector<Nic>& nics) {
  RailChoice choice;
  choice.addresses = addresses;
  std::vector<const Nic*> found;
  for (const std::string& address : addresses) {
    const auto nic = std::find_if(nics.begin(), nics.end(), [&](const Nic& at) {
      return std::find(at.addresses.begin(), at.addresses.end(), address) != at.addresses.end();
    });
    found.push_back(nic == nics.end() ? nullptr : &*nic);
    choice.nics.push_back(nic == nics.end() ? "" : nic->name);
  }
  choice.numa_node = common_node(found);
  return choice;
}

Result<RailChoice> choose_rails(std::string_view text, const std::vector<Nic>& nics) {
  const Pattern pattern = parse(text);
  const std::string quoted = "'" + std::string(text) + "'";
  if (pattern.words.empty() && !pattern.excludes)
    return Status::error(quoted + " names no NIC", "Write eth0,eth1 or ^docker0");
  std::vector<const Nic*> taken;
  if (pattern.excludes) taken = all_but(pattern, nics);
  if (!pattern.excludes)
    for (const std::string& word : pattern.words)
      if (Status wrong = take(pattern, word, nics, taken); !wrong.ok()) return wrong;
  if (taken.empty()) return unusable(quoted + " leaves no NIC that is up and has an address", nics);
  if (taken.size() > kRailsMax)
    return unusable(quoted + " takes " + std::to_string(taken.size()) +
                        " NICs, and an engine has at most " + std::to_string(kRailsMax) + " rails",
                    nics);
  RailChoice choice;
  for (const Nic* nic : taken) {
    choice.addresses.push_back(nic->addresses.front());
    choice.nics.push_back(nic->name);
  }
  choice.numa_node = common_node(taken);
  return choice;
}

Result<RailChoice> rails_for(const ServiceOptions& options, const std::vector<Nic>& here) {
  const ofi::Quirks* quirks = ofi::find_quirks(options.provider);
  const bool takes_device = quirks != nullptr && quirks->takes_device;
  const std::vector<Nic> nics = takes_device ? by_rdma_device(here) : here;
  if (!options.addresses.empty() && !options.nics.empty())
    return Status::error("an engine takes addresses or NICs, not both");
  if (!options.addresses.empty()) return rails_at(options.addresses, nics);
  if (!options.nics.empty()) return choose_rails(options.nics, nics);
  // `local` needs no NIC, whichever the variable gives to all engines of the host.
  if (options.provider == "local") return rails_at({kLoopback}, nics);
  const char* allowed = std::getenv(kNicsVariable);
  if (allowed == nullptr || *allowed == '\0') return rails_at({kLoopback}, nics);
  Result<RailChoice> choice = choose_rails(allowed, nics);
  if (choice.ok()) return choice;
  return Status::error(std::string(kNicsVariable) + ": " + choice.status().message());
}

}  // namespace braid::fabric
