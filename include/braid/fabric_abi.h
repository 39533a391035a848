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
 * peer that does not answer is quarantined likewise: writes that had begun may still land in it. It
 * is fenced once the peer answers, is disconnected, or is lost (braid_fabric_wait_lost).
 *
 * Ownership: memory is the caller's, who keeps it until remove_region has succeeded. Numbers of
 * things (uint64_t) are never used twice; that of something gone is BRAID_ERROR_ARGUMENT. Calls
 * about a peer that is lost, and was not disconnected yet, are BRAID_ERROR_PEER; memory that the
 * network or the driver refuses is BRAID_ERROR_REGION.
 *
 * Threads: every function may be called from any thread at once, but nothing beside close. A thread
 * of the engine's makes progress while no caller waits. wait_..., accept, connect and revoke block
 * up to their limit; nothing else waits for the network. Two engines of one process are not to be
 * connected over shm: libfabric lets them share mappings, and the process faults when one closes
 * while the other works.
 *
 * Trust: with a secret, every message between engines, every address and every descriptor is sealed
 * with it (HMAC-SHA256); who lacks it can neither connect nor be obeyed. Without one, rails are at
 * addresses of this host alone unless allow_unauthenticated is set. Nothing is encrypted. Keys are
 * random 64-bit numbers. Processes of one host that use shm can reach each other's memory anyway.
 * docs/fabric.md says what a peer that lies can do.
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
  const char* provider;         /* libfabric's name: "tcp;ofi_rxm", "shm", "net", "verbs;ofi_rxm",
                                   "efa"; NULL: the first, but never efa. "local": GPUs of this
                                   server, without a network */
  const char* const* addresses; /* of network interfaces, one for each rail: "10.0.0.7". Of efa
                                   RDMA devices: "rdmap0s6". Engines that talk to each other have
                                   as many, in the same order */
  size_t address_count;         /* 0: by nics */
  const char* nics; /* which NICs are rails where no address is named, each at its first address:
                       beginnings of names, "eth0,eth1"; all but some, "^docker0"; whole names,
                       "=eth0" (as NCCL_SOCKET_IFNAME). NULL: what BRAID_FABRIC_NICS says, and
                       without it one rail at 127.0.0.1 */
  int is_unpinned;  /* 0: on a host with several NUMA nodes, the engine's thread and memory are on
                       the node of most rails; 1: where the program is */
  const char* secret_file;   /* 16 to 4096 random bytes that all engines share which talk to each
                                other; only its owner may read it. NULL: the file that
                                BRAID_FABRIC_SECRET_FILE names, and without it no secret */
  int allow_unauthenticated; /* 0: without a secret, rails are at addresses of this host alone, and
                                efa has none */
  int gpu_memory; /* 1: regions may be memory of GPUs, which is staged through pinned host memory.
                     Engines that talk to each other agree */
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
/* Writes of peers and of this engine end here; no memory is used any more. NULL is allowed. Peers
 * are told, which takes up to 100 ms. Requests that have had no event get theirs, as cancelled,
 * from callbacks that may not call the engine. Called within a callback, close leaves these for
 * when it has returned; otherwise they have all returned when close does. */
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
/* Why a peer was lost. */
typedef enum braid_fabric_loss {
  BRAID_FABRIC_NOT_LOST = 0,
  BRAID_FABRIC_NO_ANSWER = 1,   /* it has not answered by connect's limit: connect alone says so */
  BRAID_FABRIC_UNREACHABLE = 2, /* what was sent to it has failed */
  BRAID_FABRIC_SILENT = 3,      /* it has said nothing for 5 s, and was given up */
  BRAID_FABRIC_ENDED = 4,       /* its process, on this host, has ended */
  BRAID_FABRIC_LEFT = 5,        /* it has disconnected */
  BRAID_FABRIC_GAVE_UP = 6,     /* it has given up this engine, which was silent or unreachable */
  BRAID_FABRIC_REPLACED = 7,    /* it has connected anew, as another peer */
  BRAID_FABRIC_TOO_MUCH = 8     /* it asked for more than an engine remembers for a peer */
} braid_fabric_loss;
/* The next peer that was lost; *peer is 0 if none was by the limit, and *why is a
 * braid_fabric_loss. What was granted to it is fenced. It is to be disconnected; to reach it again,
 * connect anew. */
BRAID_API braid_status braid_fabric_wait_lost(braid_fabric* fabric, uint64_t limit_us,
                                              uint64_t* peer, int* why);
/* Takes back what was granted to the peer, once what has come is read (at most 1 s). Writes of this
 * engine to it that have not ended 5 s later fail; over shm only once its process has ended. */
BRAID_API braid_status braid_fabric_disconnect(braid_fabric* fabric, uint64_t peer);

/* Host memory, or memory of one GPU (as an address): docs/fabric.md, "GPU memory", says what waits
 * for the driver, and what "local" can share. */
BRAID_API braid_status braid_fabric_add_region(braid_fabric* fabric, void* memory,
                                               size_t size_bytes, uint64_t* region);
/* An error while something of it is granted, or read by a write. With the last region in a context
 * that the program has made, it waits for that context's streams; then it may be destroyed. */
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
/* Groups: writes and notifications to many peers at once, with one ticket for all. A group knows
 * its members and their targets beforehand, so a scatter looks nothing up. Source: 3.3 of the
 * paper, add_peer_group, submit_scatter, submit_barrier.
 *
 * For barriers, each pair of members has two immediates: each side acquires one, and tells it to
 * the other (in a message, as descriptors travel). All members make a group of all others, and call
 * braid_fabric_barrier equally often. Nobody stands for another that way, and each knows who is
 * missing. */
typedef struct braid_fabric_member {
  uint64_t peer;
  uint64_t target;          /* of this peer's memory; 0: none, for barriers alone */
  uint32_t immediate_there; /* acquired by the peer; 0 and 0: no barriers */
  uint32_t immediate_here;  /* acquired by this engine, which keeps it until the group is removed */
} braid_fabric_member;

/* What one member gets. A part of no bytes makes no immediate. */
typedef struct braid_fabric_part {
  uint64_t source_offset_bytes;
  uint64_t target_offset_bytes;
  uint64_t size_bytes;
  const uint32_t* immediate; /* acquired by this member; NULL: none */
} braid_fabric_part;

BRAID_API braid_status braid_fabric_add_group(braid_fabric* fabric,
                                              const braid_fabric_member* members, size_t count,
                                              uint64_t* group);
/* An error while a barrier of it is under way. Scatters go on. */
BRAID_API braid_status braid_fabric_remove_group(braid_fabric* fabric, uint64_t group);
/* Part i goes from the region to the target of member i; `count` is the number of members. If
 * anything is wrong with one part, nothing is written. If a part fails later, the others go on, and
 * the ticket fails when all have ended. */
BRAID_API braid_status braid_fabric_scatter(braid_fabric* fabric, uint64_t region, uint64_t group,
                                            const braid_fabric_part* parts, size_t count,
                                            uint64_t limit_us, uint64_t* ticket);
/* Done once every member has called it as often as this engine. It carries no bytes, and orders no
 * writes: whoever waits for its own tickets first knows, once the barrier is done, that all writes
 * of all members are there. One at a time; after one that has failed the group has no more. */
BRAID_API braid_status braid_fabric_barrier(braid_fabric* fabric, uint64_t group, uint64_t limit_us,
                                            uint64_t* ticket);
/* The peers that a ticket of a group is not done for: not yet; once it has ended: for whom it
 * failed, or who did not come. *count is how many; at most `capacity` are stored. */
BRAID_API braid_status braid_fabric_missing(braid_fabric* fabric, uint64_t ticket, uint64_t* peers,
                                            size_t capacity, size_t* count);

/* Until the ticket has ended, or the limit: *state is then BRAID_FABRIC_PENDING. */
BRAID_API braid_status braid_fabric_wait_ticket(braid_fabric* fabric, uint64_t ticket,
                                                uint64_t limit_us, int* state);
/* Posts no more of a ticket. It returns at once; the ticket ends when the network has given back
 * what is under way, and its source is free only then: wait for it, or ask to be told. It ends as
 * BRAID_FABRIC_FAILED, or as it would have if all of it was under way already; one that has ended
 * stays what it is. Nothing is taken back: any part of a cancelled write may have landed, and each
 * slice that has landed has counted its immediate. The count at the target stays short of
 * braid_fabric_immediates_of_write, so its owner does not take the write for whole; the memory is
 * the owner's again once it has revoked the grant. Of a scatter this holds for each part
 * (braid_fabric_missing names those that failed). A barrier fails, and its group has no more. */
BRAID_API braid_status braid_fabric_cancel_ticket(braid_fabric* fabric, uint64_t ticket);
/* A ticket is kept until it is forgotten. What is under way goes on. */
BRAID_API void braid_fabric_forget_ticket(braid_fabric* fabric, uint64_t ticket);

/* A number that nobody else uses. */
BRAID_API braid_status braid_fabric_acquire_immediate(braid_fabric* fabric, uint32_t* immediate);
/* Until it has arrived `count` times, or the limit. *arrived is how often it has; it may be NULL.
 */
BRAID_API braid_status braid_fabric_wait_count(braid_fabric* fabric, uint32_t immediate,
                                               uint64_t count, uint64_t limit_us,
                                               uint64_t* arrived);
/* `missing` more may come late: they count for nobody. Until they have come, or are forgiven, the
 * number's slot rests, of some 500,000 that there are. */
BRAID_API braid_status braid_fabric_release_immediate(braid_fabric* fabric, uint32_t immediate,
                                                      uint64_t missing);
/* Of a released immediate: what is missing will never come, since its writer is fenced or gone.
 * One that misses nothing is left as it is. */
BRAID_API braid_status braid_fabric_forgive_immediate(braid_fabric* fabric, uint32_t immediate);
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

/* Being told, instead of waiting or asking. A request names what it is about, and gets exactly one
 * event: it has happened, or it cannot happen any more (is_cancelled). Requests about peers and
 * messages last until another takes their place, which is told to them as is_cancelled. What has
 * happened already is told at once. Source: 3.3 of the paper, expect_imm_count and OnDone.
 *
 * With a callback: it runs on a thread of the engine's own, one after the other, in the order in
 * which the engine saw things happen. A slow one holds up other callbacks and nothing else. It may
 * call every function of this file, also those that wait, and may close the engine: see
 * braid_fabric_close. `event` is the callback's until it returns. No exception may leave it.
 * Without one (NULL): the event is queued for braid_fabric_take_events, and the descriptor becomes
 * readable. Neither way loses events or has a limit; what is not taken stays. */
typedef enum braid_fabric_event_kind {
  BRAID_FABRIC_EVENT_TICKET = 1,  /* id: the ticket; value: its braid_fabric_ticket_state */
  BRAID_FABRIC_EVENT_COUNT = 2,   /* id: the immediate; value: how often it has arrived */
  BRAID_FABRIC_EVENT_PEER = 3,    /* id: the peer; value: a braid_fabric_peer_change */
  BRAID_FABRIC_EVENT_MESSAGE = 4, /* receive until there is none: one event may stand for many */
  BRAID_FABRIC_EVENT_WORD = 5     /* id: the watcher; old_value, value: of its word */
} braid_fabric_event_kind;

typedef enum braid_fabric_peer_change {
  BRAID_FABRIC_PEER_CONNECTED = 1, /* whoever began; accept has it too */
  BRAID_FABRIC_PEER_LOST = 2       /* it does not answer any more. Disconnect it */
} braid_fabric_peer_change;

typedef struct braid_fabric_event {
  int kind;         /* a braid_fabric_event_kind */
  int is_cancelled; /* not 0: what it was about is forgotten, released or replaced, or the engine is
                       closed. The last event of its request */
  uint64_t id;
  uint64_t value;
  uint64_t old_value;
  void* user;
} braid_fabric_event;

typedef void (*braid_fabric_callback)(const braid_fabric_event* event);

/* When it has ended. A ticket that misses its limit may end as quarantined; whoever asks then is
 * told when it has failed, and its source is free. */
BRAID_API braid_status braid_fabric_on_ticket(braid_fabric* fabric, uint64_t ticket,
                                              braid_fabric_callback callback, void* user);
/* When an immediate that this engine has acquired has arrived `count` times. */
BRAID_API braid_status braid_fabric_on_count(braid_fabric* fabric, uint32_t immediate,
                                             uint64_t count, braid_fabric_callback callback,
                                             void* user);
/* When peers connect, from now on, or are lost. */
BRAID_API braid_status braid_fabric_on_peers(braid_fabric* fabric, braid_fabric_callback callback,
                                             void* user);
/* When messages come. */
BRAID_API braid_status braid_fabric_on_messages(braid_fabric* fabric,
                                                braid_fabric_callback callback, void* user);
/* Lets a CUDA stream wait until the immediate has arrived `count` times. By the law (see
 * docs/architecture.md) a stream may wait only for what was enqueued before, or what a network
 * interface does by itself. All wires of this version need a CPU that polls for immediates, so this
 * is refused with that cause: BRAID_ERROR_UNAVAILABLE. Ask for a callback (braid_fabric_on_count),
 * and enqueue the work there. */
BRAID_API braid_status braid_fabric_stream_wait_count(braid_fabric* fabric, uint32_t immediate,
                                                      uint64_t count, void* stream);
/* For poll, epoll and asyncio: readable while events are queued. Level-triggered, and read only by
 * braid_fabric_take_events; whoever reads it himself takes all events afterwards. It belongs to the
 * engine: do not close it. */
BRAID_API braid_status braid_fabric_event_descriptor(braid_fabric* fabric, int* descriptor);
/* Takes queued events, at most `capacity`, oldest first; *count may be 0. Afterwards the descriptor
 * is readable exactly if more are queued. */
BRAID_API braid_status braid_fabric_take_events(braid_fabric* fabric, braid_fabric_event* events,
                                                size_t capacity, size_t* count);

/* ---- Rails, and what was counted ---- */

typedef enum braid_fabric_rail_state {
  BRAID_FABRIC_RAIL_UP = 0,
  BRAID_FABRIC_RAIL_SUSPECT = 1, /* something failed or is late; a probe of one byte is to tell */
  BRAID_FABRIC_RAIL_DOWN = 2,    /* it does not work now, and is tried again */
  BRAID_FABRIC_RAIL_RETIRED = 3  /* taken out of use on purpose */
} braid_fabric_rail_state;

/* What went to one peer over one rail since it connected. Writes are slices: each carries one
 * immediate, if any. */
typedef struct braid_fabric_route {
  uint64_t peer;
  size_t rail;
  int state; /* a braid_fabric_rail_state */
  uint64_t writes;
  uint64_t bytes;
  uint64_t failures; /* of slices and messages */
  uint64_t under_way_bytes;
  uint64_t bytes_per_s; /* in the last half second */
} braid_fabric_route;

typedef struct braid_fabric_statistics {
  size_t struct_bytes;        /* sizeof(braid_fabric_statistics), set by the caller */
  uint64_t malformed;         /* messages that could not be read */
  uint64_t misdirected;       /* messages for another engine, or from nobody known */
  uint64_t refused;           /* peers beyond the limit, with other rails, or without being asked */
  uint64_t over_credit;       /* messages of peers that had no credit */
  uint64_t unauthenticated;   /* messages that were not sealed with the secret */
  uint64_t replayed;          /* messages that had come before */
  uint64_t peers_failed;      /* peers that were given up */
  uint64_t strays;            /* immediates that came after their release */
  uint64_t quarantined_bytes; /* memory that was granted to peers that do not answer */
} braid_fabric_statistics;

/* Takes a rail out of use, as for a NIC that is to be serviced: this engine posts nothing more to
 * it, nor do its peers, unless two have no other. What is under way ends: braid_fabric_get_routes
 * says when, here and at each peer. BRAID_ERROR_ARGUMENT for the last rail. */
BRAID_API braid_status braid_fabric_retire_rail(braid_fabric* fabric, size_t rail);
/* Back into use, at the peers too, once probes have succeeded. */
BRAID_API braid_status braid_fabric_restore_rail(braid_fabric* fabric, size_t rail);

BRAID_API braid_status braid_fabric_get_statistics(braid_fabric* fabric,
                                                   braid_fabric_statistics* statistics);
/* The front of the list, at most `capacity`; *count is how many there are, a row for each peer and
 * rail. */
BRAID_API braid_status braid_fabric_get_routes(braid_fabric* fabric, braid_fabric_route* routes,
                                               size_t capacity, size_t* count);
typedef enum braid_fabric_form {
  BRAID_FABRIC_TEXT = 1,      /* tables for people */
  BRAID_FABRIC_JSON = 2,      /* one line */
  BRAID_FABRIC_PROMETHEUS = 3 /* its text exposition format */
} braid_fabric_form;
/* All of it as text with a 0 at its end, which comes as braid_fabric_address does. */
BRAID_API braid_status braid_fabric_report(braid_fabric* fabric, int form, char* buffer,
                                           size_t buffer_bytes, size_t* needed_bytes);

/* A word of 8 bytes that a GPU or a thread writes, so that it can say from within a CUDA graph how
 * far it is; the callback then writes what is ready. It is 0 at first. A change is told with the
 * value before and the latest one: values in between may go unseen, so count up, and never expect
 * an event for each. The engine looks every 400 us, and more often while things happen. What a
 * thread wrote before it stored the word (release) is there for the callback; a kernel needs
 * __threadfence_system() in between. Source: 3.3 of the paper, alloc_uvm_watcher. */
typedef enum braid_fabric_word_memory {
  BRAID_FABRIC_WORD_HOST = 0, /* for threads; needs no driver */
  BRAID_FABRIC_WORD_GPU = 1   /* pinned, and mapped for all GPUs at the same address, in the CUDA
                                 context that is current in this thread. None is made: without one,
                                 or without a driver, BRAID_ERROR_UNAVAILABLE */
} braid_fabric_word_memory;

/* *word is the engine's, until the watcher is released; `callback` as for requests. */
BRAID_API braid_status braid_fabric_add_watcher(braid_fabric* fabric, int memory,
                                                braid_fabric_callback callback, void* user,
                                                uint64_t** word, uint64_t* watcher);
/* Once nothing writes the word any more. Waits until its callback has returned, unless it is called
 * within it; there is none afterwards, nor an event in the queue. Words of GPUs are unregistered,
 * which waits for the context's streams, as cuMemHostUnregister does. */
BRAID_API braid_status braid_fabric_release_watcher(braid_fabric* fabric, uint64_t watcher);

/* As braid_last_error, for the functions of this file. */
BRAID_API const char* braid_fabric_last_error(void);

#ifdef __cplusplus
}
#endif
