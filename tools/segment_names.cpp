#include "tools/segment_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "tools/table.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/socket.h"
#include "transfer/directory/store.h"

namespace braid::tools {
namespace {

constexpr uint64_t kStoreLimitUs = 10'000'000;  // for all names
constexpr uint64_t kEngineLimitUs = 1'000'000;  // for each engine
constexpr size_t kAskedAtOnce = 32;

struct Row {
  std::string name;
  std::string address;  ///< a socket of this host, or braid://host:port/incarnation
  bool listens = false;
  std::string state;
};

Result<std::vector<Row>> names_in(const std::string& folder) {
  std::vector<Row> rows;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    BRAID_LET(is_live, transfer::is_listened_at(path));
    rows.push_back({entry.path().filename().string(), path, is_live,
                    is_live ? "listens" : "left by a process that ended"});
  }
  return rows;
}

/// Whoever may write to the store may have written it, and this goes to a terminal.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return std::isprint(letter) == 0; },
      '?');
  return text;
}

void ask_whether_it_answers(Row& row, const fabric::Secret& secret) {
  const auto engine = transfer::engine_of_record(row.address);
  const Status said = engine.ok() ? transfer::ask_for_description(
                                        engine.value(), secret, monotonic_after_ns(kEngineLimitUs))
                                        .status()
                                  : engine.status();
  row.listens = said.ok();
  row.state = said.ok() ? "answers" : printable(said.message());
  row.address = printable(row.address);
}

/// Several at once, since an engine of a host that is down says nothing for as long as it has.
void ask_all(std::vector<Row>& rows, const fabric::Secret& secret) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < rows.size(); i = next++) ask_whether_it_answers(rows[i], secret);
  };
  std::vector<std::thread> threads;
  while (threads.size() < std::min(rows.size(), kAskedAtOnce)) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

Result<std::vector<Row>> names_of(const std::string& url, const fabric::Secret& secret) {
  BRAID_LET(store, transfer::open_store(url));
  BRAID_LET(records, store->list(monotonic_after_ns(kStoreLimitUs)));
  std::vector<Row> rows;
  for (const auto& [name, value] : records)
    if (transfer::check_bare_name(name).ok()) rows.push_back({name, value, false, {}});
  ask_all(rows, secret);
  return rows;
}

}  // namespace

Result<View> view_names(const std::string& store, const fabric::Secret& secret) {
  BRAID_LET(folder, transfer::socket_folder());
  BRAID_LET(rows, names_in(folder));
  if (!store.empty()) {
    BRAID_LET(others, names_of(store, secret));
    rows.insert(rows.end(), others.begin(), others.end());
  }
  View view;
  view.json = nlohmann::ordered_json::array();
  Table table({"NAME", "ADDRESS", "STATE"});
  for (const Row& row : rows) {
    table.add({row.name, row.address, row.state});
    view.json.push_back({{"name", row.name},
                         {"address", row.address},
                         {"listens", row.listens},
                         {"state", row.state}});
  }
  view.text = table.print({});
  if (rows.empty())
    view.text = fmt::format("no engine of this user on this host has a name ({}){}\n", folder,
                            store.empty() ? "" : ", and the store has none");
  return view;
}

}  // namespace braid::tools
