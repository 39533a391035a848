#include "tools/watch.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tools/commands.h"
#include "tools/numbers.h"
#include "tools/write_file.h"

namespace braid::tools {

std::shared_ptr<ViewOptions> add_view_options(CLI::App& command) {
  auto options = std::make_shared<ViewOptions>();
  command.add_flag("--watch", options->is_watched, "refreshes it until it is interrupted");
  const CLI::Option* interval =
      command.add_option("--interval", options->interval_s, "seconds between refreshes")
          ->check(between(0.05, 3600.0));
  const CLI::Option* count =
      command.add_option("--count", options->count, "refreshes; 0: until it is interrupted")
          ->check(between(0, 1'000'000));
  command.parse_complete_callback([=] {
    for (const CLI::Option* option : {interval, count})
      if (option->count() > 0 && !options->is_watched)
        throw CLI::ValidationError(option->get_name() +
                                   " is for --watch. Add --watch, or leave it out");
  });
  command.add_option("--json", options->json_file, "the same, the latest one")->type_name("FILE");
  return options;
}

int show(const ViewOptions& options, const std::function<Result<View>()>& look) {
  constexpr const char* kClear = "\x1b[H\x1b[2J";
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  for (int i = 0;; ++i) {
    const Result<View> view = look();
    if (!view.ok()) return fail(view.status());
    if (options.is_watched) fmt::print("{}", is_terminal ? kClear : i > 0 ? "\n" : "");
    fmt::print("{}", view.value().text);
    std::fflush(stdout);
    if (!options.json_file.empty()) {
      const Status written = write_file(options.json_file, view.value().json.dump(1) + "\n");
      if (!written.ok()) return fail(written);
    }
    if (!options.is_watched || i + 1 == options.count) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
  }
}

}  // namespace braid::tools
