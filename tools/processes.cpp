// `braid ps`, `braid waits` and `braid switch`: the processes of this user that use braid
// (multipath/process_table.h). All three read and write the table only; the processes need not be
// children of `braid run`.
#include <fmt/core.h>

#include <memory>
#include <vector>

#include "multipath/process_table.h"
#include "tools/commands.h"
#include "tools/numbers.h"

namespace braid::tools {
namespace {

constexpr std::chrono::seconds kAnswerLimit{2};

using multipath::ProcessRow;
using multipath::ProcessTable;

// A process has a row for each of its engines: the preload library's, and the library's.
struct Engine {
  int32_t pid;
  ProcessRow* row;
  bool is_near;  // of this PID namespace
};

std::vector<Engine> engines(ProcessTable& table, int32_t pid) {
  std::vector<Engine> found;
  for (size_t index = 0; index < ProcessTable::kRows; ++index)
    if (table.is_alive(index) &&
        (pid == 0 || (table.pid(index) == pid && table.is_of_this_namespace(index))))
      found.push_back({table.pid(index), &table.row(index), table.is_of_this_namespace(index)});
  return found;
}

std::string waits_of(ProcessRow& row) {
  if (row.answers == 0) return "no relays are open here: nothing waits for braid\n";
  if (auto text = ask(row, kAnswerLimit)) return *text;
  return "no answer: the process is stopped, or braid's thread waits for the driver\n";
}

int list(ProcessTable& table) {
  fmt::print("{:>8}  {:<16} {:<6} {}\n", "pid", "program", "braid", "relays");
  for (const Engine& engine : engines(table, 0))
    fmt::print("{:>8}  {:<16} {:<6} {}{}\n", engine.pid, engine.row->name,
               engine.row->is_off != 0 ? "off" : "on",
               engine.row->answers != 0 ? "open" : "not open",
               engine.is_near ? "" : ", in another namespace");
  return 0;
}

int show_waits(const std::vector<Engine>& found) {
  for (const Engine& engine : found) fmt::print("{}", waits_of(*engine.row));
  return 0;
}

int set(const std::vector<Engine>& found, bool is_off) {
  for (const Engine& engine : found) engine.row->is_off = is_off ? 1 : 0;
  return 0;
}

template <typename Use>
int with(int32_t pid, const Use& use) {
  auto table = ProcessTable::open(ProcessTable::usual_name());
  if (!table.ok()) return fail(table.status());
  const std::vector<Engine> found = engines(*table.value(), pid);
  if (pid != 0 && found.empty())
    return fail(
        Status::error(fmt::format("process {} does not use braid", pid),
                      "`braid ps` lists those of this user that do; ask for those of another "
                      "namespace in their container"));
  return use(*table.value(), found);
}

}  // namespace

void add_process_commands(CLI::App& app, int& exit_code) {
  struct Words {
    int32_t pid = 0;
    std::string position;
  };
  auto words = std::make_shared<Words>();
  app.add_subcommand("ps", "List the processes of this user that use braid")
      ->callback([&exit_code] {
        exit_code = with(0, [](ProcessTable& table, const auto&) { return list(table); });
      });

  CLI::App* waits = app.add_subcommand(
      "waits", "Is it braid? Which copies of a process are under way, and what they wait for");
  waits->add_option("pid", words->pid, "the process")->required()->check(above_zero());
  waits->callback([words, &exit_code] {
    exit_code =
        with(words->pid, [](ProcessTable&, const auto& found) { return show_waits(found); });
  });

  CLI::App* change = app.add_subcommand(
      "switch", "Switch braid off in a running process, or on again: new copies are then native");
  change->add_option("position", words->position, "on or off")
      ->required()
      ->check(CLI::IsMember({"on", "off"}));
  change->add_option("pid", words->pid, "the process")->required()->check(above_zero());
  change->callback([words, &exit_code] {
    exit_code = with(words->pid, [&](ProcessTable&, const auto& found) {
      return set(found, words->position == "off");
    });
  });
}

}  // namespace braid::tools
