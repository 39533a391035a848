// The C interface: words that are watched.
#include <utility>

#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;

braid_status braid_fabric_add_watcher(braid_fabric* fabric, int memory,
                                      braid_fabric_callback callback, void* user, uint64_t** word,
                                      uint64_t* watcher) {
  const auto add = [&](Service& service) {
    if (memory != BRAID_FABRIC_WORD_HOST && memory != BRAID_FABRIC_WORD_GPU)
      return report(BRAID_ERROR_ARGUMENT, "the memory of a word is for the host or for GPUs");
    Result<std::unique_ptr<Word>> made = memory == BRAID_FABRIC_WORD_GPU
                                             ? make_gpu_word()
                                             : Result<std::unique_ptr<Word>>(make_host_word());
    if (!made.ok()) return report(made.status(), BRAID_ERROR_UNAVAILABLE);
    const auto added = service.watch(std::move(made).value(), {callback, user});
    if (!added.ok()) return report(added.status(), BRAID_ERROR_UNAVAILABLE);
    *word = added.value().word;
    *watcher = added.value().watcher;
    return BRAID_OK;
  };
  return guarded(fabric, add, word, watcher);
}

braid_status braid_fabric_release_watcher(braid_fabric* fabric, uint64_t watcher) {
  return guarded(fabric, [&](Service& service) { return report(service.release(watcher)); });
}
