/* One-sided transfers between processes and hosts, as a C interface. C++ programs start at
 * fabric.h, which is a thin layer over this file. Library: libbraid_fabric.so, which opens
 * libfabric when an engine is opened.
 *
 * An engine writes into memory that other engines have granted to it, over all its rails (network
 * interfaces) at once. Nothing is ordered: not writes, not messages. What orders are counts of
 * immediates: a write carries a 32-bit number, the target counts how often it has arrived, and both
 * sides compute how often a write makes it arrive (braid_fabric_immediates_of_write).
 *
 * The life of a write, from W to memory of O:
 *   O  region = add_region(memory); grant(region, peer W) -> descriptor; acquire_immediate
 *   O  send(W, descriptor and immediate)      or by any other way: both are bytes and a number
 *   W  target = open_target(descriptor); write(region of W, target, ..., immediate) -> ticket
 *   O  wait_count(immediate, immediates_of_write(size)): every byte is there, and W has ended
 *   O  revoke(grant): the memory is O's own again once the answer is BRAID_FABRIC_FENCED
 *   W  wait_ticket(ticket): BRAID_FABRIC_DONE: visible at O, and the source is free again
 *
 * Failure: everything ends by its time limit. A ticket that has failed reads its source no more,
 * unless it is quarantined: then the network still holds the source. Memory that was granted to a
 * peer that does not answer is quarantined likewise, unless the network fences: writes that had
 * begun may still land in it. Libfabric's TCP providers do not fence.
 *
 * Ownership: memory is the caller's, who keeps it until remove_region has succeeded. Numbers of
 * things (uint64_t) are never used twice; that of something gone is BRAID_ERROR_ARGUMENT.
 *
 * Threads: every function may be called from any thread at once, but nothing beside close. A thread
 * of the engine's makes progress while no caller waits. wait_..., accept, connect and revoke block
 * up to their limit; nothing else waits for the network. Two engines of one process are not to be
 * connected over shm: libfabric lets them share mappings, and the process faults when one closes
 * while the other works.
 *
 * Trust: peers are not authenticated and nothing is encrypted. Keys are random 64-bit numbers, and
 * an address or a descriptor is as good as a password. Rails listen at 127.0.0.1 unless another
 * address is named. Processes of one host that use shm can reach each other's memory anyway.
 *
 * Fork: an engine is of no use in a child process, and says so.
 *
 * Units: sizes are bytes, time limits microseconds. Source: RDMA Point-to-Point Communication for
 * LLM Systems, section 3.
 */
#pragma once

#include "braid/braid.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct braid_fabric braid_fabric;

typedef struct braid_fabric_options {
  size_t struct_bytes;          /* sizeof(braid_fabric_options) */
  const char* provider;         /* libfabric's name: "tcp;ofi_rxm", "shm", "net"; NULL: the first */
  const char* const* addresses; /* of network interfaces, one for each rail: "10.0.0.7". Engines
                                   that talk to each other have as many, in the same order */
  size_t address_count;         /* 0: by nics */
  const char* nics; /* which NICs are rails where no address is named, each at its first address:
                       beginnings of names, "eth0,eth1"; all but some, "^docker0"; whole names,
                       "=eth0" (as NCCL_SOCKET_IFNAME). NULL: what BRAID_FABRIC_NICS says, and
                       without it one rail at 127.0.0.1 */
  int is_unpinned;  /* 0: on a host with several NUMA nodes, the engine's thread and memory are on
                       the node of most rails; 1: where the program is */
} braid_fabric_options;

typedef enum braid_fabric_ticket_state {
  BRAID_FABRIC_PENDING = 0,
  BRAID_FABRIC_DONE = 1,
  BRAID_FABRIC_FAILED = 2,
  BRAID_FABRIC_QUARANTINED = 3
} braid_fabric_ticket_state;

typedef enum braid_fabric_fence {
  BRAID_FABRIC_GRANTED = 0,           /* the peer may write */
  BRAID_FABRIC_REVOKING = 1,          /* it was asked to stop */
  BRAID_FABRIC_FENCED = 2,            /* no write of it can land any more */
  BRAID_FABRIC_MEMORY_QUARANTINED = 3 /* it has not answered; fenced later, if it does */
} braid_fabric_fence;

/* Page i begins at offset_bytes + indices[i] * stride_bytes of its region or target. */
typedef struct braid_fabric_pages {
  const uint32_t* indices;
  uint64_t stride_bytes;
  uint64_t offset_bytes;
} braid_fabric_pages;

BRAID_API braid_status braid_fabric_open(const braid_fabric_options* options,
                                         braid_fabric** fabric);
/* Writes of peers and of this engine end here; no memory is used any more. NULL is allowed. */
BRAID_API void braid_fabric_close(braid_fabric* fabric);

/* How others reach this engine, as bytes to hand to them. *needed_bytes is the size; a buffer that
 * is too small is BRAID_ERROR_ARGUMENT, but NULL with 0 bytes asks for the size only. */
BRAID_API braid_status braid_fabric_address(braid_fabric* fabric, void* buffer, size_t buffer_bytes,
                                            size_t* needed_bytes);

/* Until the peer has answered. */
BRAID_API braid_status braid_fabric_connect(braid_fabric* fabric, const void* address,
                                            size_t address_bytes, uint64_t limit_us,
                                            uint64_t* peer);
/* The next engine that has connected to this one; *peer is 0 if none has by the limit. */
BRAID_API braid_status braid_fabric_accept(braid_fabric* fabric, uint64_t limit_us, uint64_t* peer);
/* Takes back at once what was granted to the peer: see braid_fabric_fence_of. */
BRAID_API braid_status braid_fabric_disconnect(braid_fabric* fabric, uint64_t peer);

BRAID_API braid_status braid_fabric_add_region(braid_fabric* fabric, void* memory,
                                               size_t size_bytes, uint64_t* region);
/* An error while something of it is granted, or read by a write. */
BRAID_API braid_status braid_fabric_remove_region(braid_fabric* fabric, uint64_t region);

/* Lets one peer write there. The descriptor comes as braid_fabric_address does, except that a
 * buffer that is too small grants nothing: 512 bytes are enough. */
BRAID_API braid_status braid_fabric_grant(braid_fabric* fabric, uint64_t region, uint64_t peer,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          uint64_t* grant, void* descriptor, size_t buffer_bytes,
                                          size_t* descriptor_bytes);
/* Asks the peer to stop, and waits for its answer. *fence is a braid_fabric_fence. */
BRAID_API braid_status braid_fabric_revoke(braid_fabric* fabric, uint64_t grant, uint64_t limit_us,
                                           int* fence);
BRAID_API braid_status braid_fabric_fence_of(braid_fabric* fabric, uint64_t grant, int* fence);
/* Of a fenced grant, which is then gone. */
BRAID_API braid_status braid_fabric_forget_grant(braid_fabric* fabric, uint64_t grant);

BRAID_API braid_status braid_fabric_open_target(braid_fabric* fabric, const void* descriptor,
                                                size_t descriptor_bytes, uint64_t* target);
/* `immediate` may be NULL. The ticket fails if it has not ended by the limit. */
BRAID_API braid_status braid_fabric_write(braid_fabric* fabric, uint64_t region,
                                          uint64_t source_offset_bytes, uint64_t target,
                                          uint64_t target_offset_bytes, uint64_t size_bytes,
                                          const uint32_t* immediate, uint64_t limit_us,
                                          uint64_t* ticket);
/* Page i of the source to page i of the target. */
BRAID_API braid_status braid_fabric_write_pages(braid_fabric* fabric, uint64_t region,
                                                const braid_fabric_pages* source, uint64_t target,
                                                const braid_fabric_pages* destination,
                                                uint64_t page_bytes, size_t page_count,
                                                const uint32_t* immediate, uint64_t limit_us,
                                                uint64_t* ticket);
/* One immediate, and no bytes. */
BRAID_API braid_status braid_fabric_notify(braid_fabric* fabric, uint64_t peer, uint32_t immediate,
                                           uint64_t limit_us, uint64_t* ticket);
/* Until the ticket has ended, or the limit: *state is then BRAID_FABRIC_PENDING. */
BRAID_API braid_status braid_fabric_wait_ticket(braid_fabric* fabric, uint64_t ticket,
                                                uint64_t limit_us, int* state);
/* A ticket is kept until it is forgotten. What is under way goes on. */
BRAID_API void braid_fabric_forget_ticket(braid_fabric* fabric, uint64_t ticket);

/* A number that nobody else uses. */
BRAID_API braid_status braid_fabric_acquire_immediate(braid_fabric* fabric, uint32_t* immediate);
/* Until it has arrived `count` times, or the limit. *arrived is how often it has; it may be NULL.
 */
BRAID_API braid_status braid_fabric_wait_count(braid_fabric* fabric, uint32_t immediate,
                                               uint64_t count, uint64_t limit_us,
                                               uint64_t* arrived);
/* `missing` more may come late: they count for nobody. */
BRAID_API braid_status braid_fabric_release_immediate(braid_fabric* fabric, uint32_t immediate,
                                                      uint64_t missing);
/* How often the immediate of such a write arrives. A write of nothing makes none. */
BRAID_API uint64_t braid_fabric_immediates_of_write(uint64_t size_bytes);
BRAID_API uint64_t braid_fabric_immediates_of_pages(uint64_t page_bytes, uint64_t page_count);

/* A message of at most BRAID_FABRIC_MESSAGE_BYTES is copied. BRAID_ERROR_UNAVAILABLE: the peer has
 * no buffer for it now, and nothing was sent. */
#define BRAID_FABRIC_MESSAGE_BYTES 4032
BRAID_API braid_status braid_fabric_send(braid_fabric* fabric, uint64_t peer, const void* message,
                                         size_t message_bytes);
/* The next message; *peer is 0 if none has come by the limit. The buffer has room for
 * BRAID_FABRIC_MESSAGE_BYTES. */
BRAID_API braid_status braid_fabric_receive(braid_fabric* fabric, uint64_t limit_us, void* buffer,
                                            size_t* message_bytes, uint64_t* peer);

/* As braid_last_error, for the functions of this file. */
BRAID_API const char* braid_fabric_last_error(void);

#ifdef __cplusplus
}
#endif
