// Keeps the files that libfabric's shm has in /dev/shm, one for each endpoint.
//
// - libfabric removes those of the process in a signal handler. A child process (fork) inherits the
//   handler and the list, so a worker that is terminated would remove its parent's files, and no
//   further peer would find them. Here only the process that a file is named after removes it.
// - libfabric makes them sparse. If /dev/shm is full when a page is touched for the first time, the
//   process dies (SIGBUS). Here an endpoint that finds no room for its file is refused. (The pages
//   that are used later: allocate_region.)
//
// Source: smr_create and smr_handle_signal (prov/shm/src/smr_util.c, smr_init.c) of libfabric 1.17.
#pragma once

#include "base/status.h"

namespace braid::fabric::ofi {

/// Makes libfabric, a handle of dlopen, use these functions. Once, before its first endpoint.
Status keep_shm_files(void* libfabric);

}  // namespace braid::fabric::ofi
