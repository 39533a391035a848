/* One-sided transfers between processes and hosts, as a C interface. C++ programs start at
 * fabric.h, which is a thin layer over this file. Library: libbraid_fabric.so, which opens
 * libfabric when an engine is opened.
 *
 * An engine writes into memory that other engines have granted to it, over all its rails (network
 * interfaces) at once. Neither writes nor messages are ordered. Counts of immediates give order: a
 * write carries a 32-bit number, the immediate, and the target counts its arrivals. Both sides
 * compute how many arrivals a write causes (braid_fabric_immediates_of_write).
 *
 * The life of a write, from engine W to memory of engine O:
 *   O  region = add_region(memory); grant(region, peer W) -> descriptor; acquire_immediate
 *   O  send(W, descriptor and immediate)      or by any other way: both are bytes and a number
 *   W  target = open_target(descriptor); write(region of W, target, ..., immediate) -> ticket
 *   O  wait_count(immediate, immediates_of_write(size)): every byte has arrived
 *   O  revoke(grant): after the answer BRAID_FABRIC_FENCED, W can write there no more
 *   W  wait_ticket(ticket): BRAID_FABRIC_DONE: visible at O, and the source is free again
 *
 * Failure: every request ends by its time limit. A failed ticket no longer reads its source. A
 * quarantined ticket may: the network still holds the source. Memory that was granted to a peer
 * that does not answer is quarantined too: writes that had begun may still land in it. The memory
 * is fenced once the peer answers, is disconnected, or is lost (braid_fabric_wait_lost). Memory
 * that a peer has mapped, over the provider "local", is fenced once the peer has unmapped it, or
 * its process has ended: braid_fabric_fence_of says so.
 *
 * Ownership: the caller owns the memory, and keeps it until remove_region has succeeded. Memory of
 * allocate_memory is the engine's. A number (uint64_t) of a peer, region, ticket, ... is never used
 * twice. The number of a thing that is gone is BRAID_ERROR_ARGUMENT. A call about a peer that is
 * lost, and not disconnected yet, is BRAID_ERROR_PEER; memory that the network or the driver
 * refuses is BRAID_ERROR_REGION.
 *
 * Threads: any thread may call any function at any time, except while close runs. A thread of the
 * engine makes progress while no caller waits, and further ones copy where the CPU copies every
 * byte (BRAID_FABRIC_ENDPOINTS, docs/fabric.md). wait_..., accept, connect and revoke block up to
 * their limit; no other function waits for the network. Do not connect two engines of one process
 * over shm: libfabric lets them share mappings, and the process faults when one closes while the
 * other works.
 *
 * Trust: with a secret, every message between engines, every address and every descriptor is sealed
 * with it (HMAC-SHA256). A process without the secret can neither connect nor give orders. An
 * engine without a secret uses addresses of this host alone unless allow_unauthenticated is set,
 * and of this host only processes of its own user can be its peers. Nothing is encrypted. Keys are
 * random 64-bit numbers. Processes of one user that use shm can reach each other's memory anyway.
 * docs/fabric.md says what a lying peer can do.
 *
 * Fork: an engine cannot be used in a child process; every call there says so. Memory of
 * braid_fabric_allocate_memory is not mapped in a child if peers can map it: touching it there is
 * SIGSEGV.
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
                                   "efa". NULL: the first one found, but never efa. "local":
                                   processes and GPUs of this server, without a network */
  const char* const* addresses; /* of network interfaces, one for each rail: "10.0.0.7"; for efa, of
                                   RDMA devices: "rdmap0s6". Engines that talk to each other have
                                   equally many, in the same order */
  size_t address_count;         /* 0: `nics` chooses */
  const char* nics; /* which NICs are rails if no address is given, each at its first address:
                       prefixes of names, "eth0,eth1"; all except some, "^docker0"; whole names,
                       "=eth0" (as NCCL_SOCKET_IFNAME). NULL: the value of BRAID_FABRIC_NICS; if
                       that is not set, one rail at 127.0.0.1 */
  int is_unpinned;  /* 0: on a host with several NUMA nodes, the engine's thread and memory are on
                       the node of most rails; 1: they are where the program is */
  const char* secret_file;   /* 16 to 4096 random bytes, the same for all engines that talk to each
                                other; only the file's owner may read it. NULL: the file that
                                BRAID_FABRIC_SECRET_FILE names; if that is not set, no secret */
  int allow_unauthenticated; /* 0: without a secret, rails are at addresses of this host alone, and
                                efa has none */
  int gpu_memory; /* 1: regions may be GPU memory, which is staged through pinned host memory.
                     Engines that talk to each other have the same value */
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
  BRAID_FABRIC_FENCED = 2,            /* no write of the peer can land any more */
  BRAID_FABRIC_MEMORY_QUARANTINED = 3 /* the peer has not answered; fenced later, if it does */
} braid_fabric_fence;

/* Page i begins at offset_bytes + indices[i] * stride_bytes of its region or target. */
typedef struct braid_fabric_pages {
  const uint32_t* indices;
  uint64_t stride_bytes;
  uint64_t offset_bytes;
} braid_fabric_pages;

BRAID_API braid_status braid_fabric_open(const braid_fabric_options* options,
                                         braid_fabric** fabric);
/* Ends the writes of peers and of this engine; no memory is used afterwards. One exception: memory
 * that a peer has mapped over "local". The peer begins no more copies there, but one that it has
 * begun already, or handed to its GPU, may still land. To use such memory for something else,
 * revoke its grants first, until they are BRAID_FABRIC_FENCED. NULL is allowed. Close takes
 * up to 100 ms to tell the peers. A request that has had no event gets one, as cancelled; its
 * callback may not call the engine. Close returns after all callbacks have returned. Within a
 * callback, close itself returns first, and these callbacks run after the calling one has
 * returned. */
BRAID_API void braid_fabric_close(braid_fabric* fabric);

/* The engine's address, as bytes to hand to other engines. *needed_bytes is the size; a buffer that
 * is too small is BRAID_ERROR_ARGUMENT; NULL with 0 bytes asks for the size only. */
BRAID_API braid_status braid_fabric_address(braid_fabric* fabric, void* buffer, size_t buffer_bytes,
                                            size_t* needed_bytes);

/* Waits until the peer has answered. */
BRAID_API braid_status braid_fabric_connect(braid_fabric* fabric, const void* address,
                                            size_t address_bytes, uint64_t limit_us,
                                            uint64_t* peer);
/* Waits for the next engine that connects to this one; *peer is 0 if none has by the limit. */
BRAID_API braid_status braid_fabric_accept(braid_fabric* fabric, uint64_t limit_us, uint64_t* peer);
/* Why a peer was lost. */
typedef enum braid_fabric_loss {
  BRAID_FABRIC_NOT_LOST = 0,
  BRAID_FABRIC_NO_ANSWER = 1,   /* it has not answered by connect's limit; only connect gives this
                                   cause */
  BRAID_FABRIC_UNREACHABLE = 2, /* messages or writes to it have failed, or a
                                   message of it was lost */
  BRAID_FABRIC_SILENT = 3,      /* it has sent nothing for 5 s, and was given up */
  BRAID_FABRIC_ENDED = 4,       /* its process, on this host, has ended */
  BRAID_FABRIC_LEFT = 5,        /* it has disconnected */
  BRAID_FABRIC_GAVE_UP = 6,     /* it has given up this engine, which was silent or unreachable */
  BRAID_FABRIC_REPLACED = 7,    /* it has connected again, as another peer */
  BRAID_FABRIC_TOO_MUCH = 8     /* it asked for more than an engine remembers for a peer */
} braid_fabric_loss;
/* Waits for the next peer that is lost; *peer is 0 if none was by the limit. *why is a
 * braid_fabric_loss. All grants to the peer are fenced, but for memory that it has mapped over
 * "local", which is quarantined meanwhile (braid_fabric_fence_of). Disconnect it; to reach it
 * again, connect anew. */
BRAID_API braid_status braid_fabric_wait_lost(braid_fabric* fabric, uint64_t limit_us,
                                              uint64_t* peer, int* why);
/* Revokes all grants to the peer, after everything that has arrived from it is read (at most 1 s).
 * Writes of this engine to the peer fail if they have not ended 5 s later; over shm, only once the
 * peer's process has ended. */
BRAID_API braid_status braid_fabric_disconnect(braid_fabric* fabric, uint64_t peer);

/* Registers host memory, or memory of one GPU (as an address). docs/fabric.md, "GPU memory", says
 * which calls wait for the driver, and which memory "local" can share. */
BRAID_API braid_status braid_fabric_add_region(braid_fabric* fabric, void* memory,
                                               size_t size_bytes, uint64_t* region);
/* Allocates memory of the engine, zeroed, and registers it: on the NUMA node of most rails while
 * that has room, unless is_unpinned is set. remove_region frees it, and so does close. With the
 * provider "local", peers to which it is granted map it, and write it by copies of their own; other
 * host memory is written through a queue. So is this where the kernel cannot share it; the report
 * then says why. Grant parts of one allocation to peers that trust each other only: docs/fabric.md,
 * "Trust". */
BRAID_API braid_status braid_fabric_allocate_memory(braid_fabric* fabric, size_t size_bytes,
                                                    void** memory, uint64_t* region);
/* Fails while part of the region is granted, or is the source of a write. Removing the last region
 * in a context that the program has made waits for that context's streams; then the context may be
 * destroyed. */
BRAID_API braid_status braid_fabric_remove_region(braid_fabric* fabric, uint64_t region);

/* Lets one peer write to this range of the region. The descriptor is returned as
 * braid_fabric_address returns an address, but with a buffer that is too small, or none, nothing is
 * granted, which is BRAID_ERROR_ARGUMENT; 512 bytes are enough. */
BRAID_API braid_status braid_fabric_grant(braid_fabric* fabric, uint64_t region, uint64_t peer,
                                          uint64_t offset_bytes, uint64_t size_bytes,
                                          uint64_t* grant, void* descriptor, size_t buffer_bytes,
                                          size_t* descriptor_bytes);
/* Asks the peer to stop, and waits for its answer. *fence is a braid_fabric_fence. Called again for
 * memory that is quarantined, it waits until that is fenced, or its limit. */
BRAID_API braid_status braid_fabric_revoke(braid_fabric* fabric, uint64_t grant, uint64_t limit_us,
                                           int* fence);
BRAID_API braid_status braid_fabric_fence_of(braid_fabric* fabric, uint64_t grant, int* fence);
/* Forgets a fenced grant; its number is then gone. */
BRAID_API braid_status braid_fabric_forget_grant(braid_fabric* fabric, uint64_t grant);

/* Which rails a write may use: `count` of them, from number `first` on. A count of 0 stands for
 * all. So {0, 2} is the first two, and {3, 1} the fourth alone. Where a function takes a pointer to
 * it, NULL stands for all too. The healthiest of these rails carry the write. If none of them
 * works, the write fails, or ends at its limit; it uses no other rail. The number of immediates
 * depends on the size alone. Source: section 3.4 of the paper. */
typedef struct braid_fabric_rails {
  size_t first;
  size_t count;
} braid_fabric_rails;

BRAID_API braid_status braid_fabric_open_target(braid_fabric* fabric, const void* descriptor,
                                                size_t descriptor_bytes, uint64_t* target);
/* `immediate` may be NULL. The ticket fails if it has not ended by the limit. */
BRAID_API braid_status braid_fabric_write(braid_fabric* fabric, uint64_t region,
                                          uint64_t source_offset_bytes, uint64_t target,
                                          uint64_t target_offset_bytes, uint64_t size_bytes,
                                          const uint32_t* immediate,
                                          const braid_fabric_rails* rails, uint64_t limit_us,
                                          uint64_t* ticket);
/* Writes page i of the source to page i of the target. */
BRAID_API braid_status braid_fabric_write_pages(braid_fabric* fabric, uint64_t region,
                                                const braid_fabric_pages* source, uint64_t target,
                                                const braid_fabric_pages* destination,
                                                uint64_t page_bytes, size_t page_count,
                                                const uint32_t* immediate,
                                                const braid_fabric_rails* rails, uint64_t limit_us,
                                                uint64_t* ticket);
/* Sends one immediate, and no bytes. */
BRAID_API braid_status braid_fabric_notify(braid_fabric* fabric, uint64_t peer, uint32_t immediate,
                                           uint64_t limit_us, uint64_t* ticket);
/* Groups: writes and notifications to many peers at once, with one ticket for all. A group holds
 * its members and their targets, so a scatter looks nothing up. Source: section 3.3 of the paper,
 * add_peer_group, submit_scatter, submit_barrier.
 *
 * For barriers, each pair of members has two immediates: each side acquires one, and tells it to
 * the other (in a message, as descriptors travel). Every member makes a group of all others, and
 * all call braid_fabric_barrier equally often. So each member hears from every other one directly,
 * and knows which are missing. Once a group has had a barrier, its immediates serve no other group:
 * what they have counted would stand for members that have not come. */
typedef struct braid_fabric_member {
  uint64_t peer;
  uint64_t target;          /* in this peer's memory; 0: none, for barriers alone */
  uint32_t immediate_there; /* acquired by the peer; 0 here and below: no barriers */
  uint32_t immediate_here;  /* acquired by this engine, which keeps it until the group is removed */
} braid_fabric_member;

/* The part of a scatter that goes to one member. A part of 0 bytes sends no immediate. */
typedef struct braid_fabric_part {
  uint64_t source_offset_bytes;
  uint64_t target_offset_bytes;
  uint64_t size_bytes;
  const uint32_t* immediate; /* acquired by this member; NULL: none */
} braid_fabric_part;

BRAID_API braid_status braid_fabric_add_group(braid_fabric* fabric,
                                              const braid_fabric_member* members, size_t count,
                                              uint64_t* group);
/* Fails while a barrier of the group is under way. Scatters go on. */
BRAID_API braid_status braid_fabric_remove_group(braid_fabric* fabric, uint64_t group);
/* Writes part i from the region to the target of member i; `count` is the number of members. If one
 * part is invalid, nothing is written. If a part fails later, the others go on, and the ticket
 * fails when all have ended. */
BRAID_API braid_status braid_fabric_scatter(braid_fabric* fabric, uint64_t region, uint64_t group,
                                            const braid_fabric_part* parts, size_t count,
                                            const braid_fabric_rails* rails, uint64_t limit_us,
                                            uint64_t* ticket);
/* Done once every member has called it as often as this engine. A barrier carries no bytes, and
 * orders no writes. If every member first waits for its own tickets, all writes of all members have
 * arrived when the barrier is done. A group has one barrier at a time, and none after a barrier has
 * failed. */
BRAID_API braid_status braid_fabric_barrier(braid_fabric* fabric, uint64_t group, uint64_t limit_us,
                                            uint64_t* ticket);
/* The peers that keep a ticket of a group from being done. Before its end: the peers that are not
 * done yet. Afterwards: the peers for which it failed, or which did not come to the barrier. *count
 * is how many; at most `capacity` are stored. */
BRAID_API braid_status braid_fabric_missing(braid_fabric* fabric, uint64_t ticket, uint64_t* peers,
                                            size_t capacity, size_t* count);

/* Waits until the ticket has ended, or the limit: *state is then BRAID_FABRIC_PENDING. */
BRAID_API braid_status braid_fabric_wait_ticket(braid_fabric* fabric, uint64_t ticket,
                                                uint64_t limit_us, int* state);
/* Cancels a ticket: no more of it is posted. The call returns at once. The ticket ends when the
 * network has given back the part that is under way, and its source is free only then: wait for the
 * ticket, or ask for its event. It ends as BRAID_FABRIC_FAILED, or, if all of it was under way
 * already, as it would have without the call. A ticket that has ended keeps its state. Nothing is
 * taken back: any part of a cancelled write may have landed, and each slice that has landed has
 * counted its immediate. The count at the target stays below braid_fabric_immediates_of_write, so
 * the owner does not take the write for complete. The owner has its memory back once it has revoked
 * the grant. For a scatter this holds for each part (braid_fabric_missing names the failed ones). A
 * barrier fails, and its group can have no more barriers. */
BRAID_API braid_status braid_fabric_cancel_ticket(braid_fabric* fabric, uint64_t ticket);
/* Forgets a ticket, which is kept until then. Work that is under way goes on. */
BRAID_API void braid_fabric_forget_ticket(braid_fabric* fabric, uint64_t ticket);

/* Acquires a number that is not in use in this engine. */
BRAID_API braid_status braid_fabric_acquire_immediate(braid_fabric* fabric, uint32_t* immediate);
/* Waits until the immediate has arrived `count` times, or the limit. *arrived is the number of
 * arrivals; `arrived` may be NULL. */
BRAID_API braid_status braid_fabric_wait_count(braid_fabric* fabric, uint32_t immediate,
                                               uint64_t count, uint64_t limit_us,
                                               uint64_t* arrived);
/* Releases the number. `missing` more arrivals may come late; they are not counted. Until they have
 * come or are forgiven, the number's slot (one of about 500,000) is not used again. */
BRAID_API braid_status braid_fabric_release_immediate(braid_fabric* fabric, uint32_t immediate,
                                                      uint64_t missing);
/* Says that the missing arrivals of a released immediate will never come, since its writer is
 * fenced or gone. Does nothing if none are missing. */
BRAID_API braid_status braid_fabric_forgive_immediate(braid_fabric* fabric, uint32_t immediate);
/* How often the immediate of such a write arrives. A write of 0 bytes sends none. */
BRAID_API uint64_t braid_fabric_immediates_of_write(uint64_t size_bytes);
BRAID_API uint64_t braid_fabric_immediates_of_pages(uint64_t page_bytes, uint64_t page_count);

/* Copies and sends a message of at most BRAID_FABRIC_MESSAGE_BYTES. BRAID_ERROR_UNAVAILABLE: the
 * peer has no buffer for it now, and nothing was sent. */
#define BRAID_FABRIC_MESSAGE_BYTES 4032
BRAID_API braid_status braid_fabric_send(braid_fabric* fabric, uint64_t peer, const void* message,
                                         size_t message_bytes);
/* Waits for the next message; *peer is 0 if none has come by the limit. The buffer has room for
 * BRAID_FABRIC_MESSAGE_BYTES. */
BRAID_API braid_status braid_fabric_receive(braid_fabric* fabric, uint64_t limit_us, void* buffer,
                                            size_t* message_bytes, uint64_t* peer);

/* Events, instead of waiting or polling. A request names a ticket or an immediate, and gets exactly
 * one event: it has happened, or it cannot happen any more (is_cancelled). Requests about peers and
 * messages last until another request replaces them; the replaced one gets an event with
 * is_cancelled. If it has happened already, the event comes at once. Source: section 3.3 of the
 * paper, expect_imm_count and OnDone.
 *
 * With a callback: callbacks run on a thread of the engine, one after the other, in the order in
 * which the engine saw things happen. A slow callback delays other callbacks and nothing else. A
 * callback may call every function of this file, also those that wait, and may close the engine:
 * see braid_fabric_close. `event` is valid until the callback returns. No exception may leave a
 * callback. Without one (NULL): the event is queued for braid_fabric_take_events, and the
 * descriptor becomes readable. Both ways keep every event, without a limit on their number. */
typedef enum braid_fabric_event_kind {
  BRAID_FABRIC_EVENT_TICKET = 1,  /* id: the ticket; value: its braid_fabric_ticket_state */
  BRAID_FABRIC_EVENT_COUNT = 2,   /* id: the immediate; value: how often it has arrived */
  BRAID_FABRIC_EVENT_PEER = 3,    /* id: the peer; value: a braid_fabric_peer_change */
  BRAID_FABRIC_EVENT_MESSAGE = 4, /* receive until none is left: one event may stand for many */
  BRAID_FABRIC_EVENT_WORD = 5     /* id: the watcher; old_value, value: of its word */
} braid_fabric_event_kind;

typedef enum braid_fabric_peer_change {
  BRAID_FABRIC_PEER_CONNECTED = 1, /* either side may have begun; accept returns it too */
  BRAID_FABRIC_PEER_LOST = 2       /* it no longer answers. Disconnect it */
} braid_fabric_peer_change;

typedef struct braid_fabric_event {
  int kind;         /* a braid_fabric_event_kind */
  int is_cancelled; /* not 0: the ticket or immediate is forgotten or released, the request is
                       replaced, or the engine is closed. The last event of its request */
  uint64_t id;
  uint64_t value;
  uint64_t old_value;
  void* user;
} braid_fabric_event;

typedef void (*braid_fabric_callback)(const braid_fabric_event* event);

/* The functions that ask for events answer BRAID_ERROR_UNAVAILABLE while the engine is being
 * closed, as a callback may find that still runs then. */

/* Asks for an event when the ticket has ended. A ticket that misses its limit may end as
 * quarantined. A request made then gets its event when the ticket has failed, and its source is
 * free. */
BRAID_API braid_status braid_fabric_on_ticket(braid_fabric* fabric, uint64_t ticket,
                                              braid_fabric_callback callback, void* user);
/* Asks for an event when an immediate that this engine has acquired has arrived `count` times. */
BRAID_API braid_status braid_fabric_on_count(braid_fabric* fabric, uint32_t immediate,
                                             uint64_t count, braid_fabric_callback callback,
                                             void* user);
/* Asks for events when peers connect, from now on, or are lost. */
BRAID_API braid_status braid_fabric_on_peers(braid_fabric* fabric, braid_fabric_callback callback,
                                             void* user);
/* Asks for events when messages come. */
BRAID_API braid_status braid_fabric_on_messages(braid_fabric* fabric,
                                                braid_fabric_callback callback, void* user);
/* Would let a CUDA stream wait until the immediate has arrived `count` times. By the law (see
 * docs/architecture.md) a stream may wait only for work that was enqueued before, or that a network
 * interface does by itself. All wires of this version need a CPU that polls for immediates, so the
 * call is refused: BRAID_ERROR_UNAVAILABLE. Ask for a callback (braid_fabric_on_count), and enqueue
 * the work there. */
BRAID_API braid_status braid_fabric_stream_wait_count(braid_fabric* fabric, uint32_t immediate,
                                                      uint64_t count, void* stream);
/* A descriptor for poll, epoll and asyncio: readable while events are queued, level-triggered. Only
 * braid_fabric_take_events reads it; a program that reads it itself then takes all events. It
 * belongs to the engine: do not close it. */
BRAID_API braid_status braid_fabric_event_descriptor(braid_fabric* fabric, int* descriptor);
/* Takes queued events, at most `capacity`, oldest first; *count may be 0. Afterwards the descriptor
 * is readable if and only if more are queued. */
BRAID_API braid_status braid_fabric_take_events(braid_fabric* fabric, braid_fabric_event* events,
                                                size_t capacity, size_t* count);

/* ---- Rails and statistics ---- */

typedef enum braid_fabric_rail_state {
  BRAID_FABRIC_RAIL_UP = 0,
  BRAID_FABRIC_RAIL_SUSPECT = 1, /* a slice or message failed or is late; a probe of one byte
                                    decides */
  BRAID_FABRIC_RAIL_DOWN = 2,    /* it does not work now, and is tried again */
  BRAID_FABRIC_RAIL_RETIRED = 3  /* taken out of use on purpose */
} braid_fabric_rail_state;

/* The traffic to one peer over one rail since the peer connected. Writes are slices: each carries
 * at most one immediate. */
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
  uint64_t misdirected;       /* messages for another engine, or from no known peer */
  uint64_t refused;           /* peers beyond the limit, with other rails, or unsolicited; without a
                                 secret, connections of other users of this host */
  uint64_t over_credit;       /* messages of peers that had no credit */
  uint64_t unauthenticated;   /* messages that were not sealed with the secret */
  uint64_t replayed;          /* messages that had come before */
  uint64_t peers_failed;      /* peers that were given up */
  uint64_t strays;            /* immediates that came after their release */
  uint64_t quarantined_bytes; /* memory that was granted to peers that do not answer */
} braid_fabric_statistics;

/* Takes a rail out of use, for example to service a NIC. This engine and its peers post nothing
 * more to it, except where two engines have no other rail. Work that is under way ends;
 * braid_fabric_get_routes shows when, here and at each peer. BRAID_ERROR_ARGUMENT for the last
 * rail. */
BRAID_API braid_status braid_fabric_retire_rail(braid_fabric* fabric, size_t rail);
/* Puts a rail back into use, at the peers too, once probes have succeeded. */
BRAID_API braid_status braid_fabric_restore_rail(braid_fabric* fabric, size_t rail);

BRAID_API braid_status braid_fabric_get_statistics(braid_fabric* fabric,
                                                   braid_fabric_statistics* statistics);
/* Fills in the first `capacity` rows; *count is how many there are, one for each peer and rail. */
BRAID_API braid_status braid_fabric_get_routes(braid_fabric* fabric, braid_fabric_route* routes,
                                               size_t capacity, size_t* count);
typedef enum braid_fabric_form {
  BRAID_FABRIC_TEXT = 1,      /* tables for people */
  BRAID_FABRIC_JSON = 2,      /* one line */
  BRAID_FABRIC_PROMETHEUS = 3 /* its text exposition format */
} braid_fabric_form;
/* The statistics and routes as text with a final 0, returned as braid_fabric_address returns
 * bytes. */
BRAID_API braid_status braid_fabric_report(braid_fabric* fabric, int form, char* buffer,
                                           size_t buffer_bytes, size_t* needed_bytes);

/* A watched word: 8 bytes that a GPU or a thread writes, to report progress from within a CUDA
 * graph; a callback then writes the pages that are ready. The word is 0 at first. An event carries
 * the value before and the latest one. Values in between may go unseen, so count up, and do not
 * expect an event for each. The engine looks every 400 us, and more often while things happen. Data
 * that a thread wrote before it stored the word (release) is visible to the callback; a kernel
 * needs __threadfence_system() in between. Source: section 3.3 of the paper, alloc_uvm_watcher. */
typedef enum braid_fabric_word_memory {
  BRAID_FABRIC_WORD_HOST = 0, /* for threads; needs no driver */
  BRAID_FABRIC_WORD_GPU = 1   /* pinned, and mapped for all GPUs at the same address, in the CUDA
                                 context that is current in this thread; no context is made. Without
                                 a context or a driver: BRAID_ERROR_UNAVAILABLE */
} braid_fabric_word_memory;

/* The engine owns *word until the watcher is released; `callback` as for requests. */
BRAID_API braid_status braid_fabric_add_watcher(braid_fabric* fabric, int memory,
                                                braid_fabric_callback callback, void* user,
                                                uint64_t** word, uint64_t* watcher);
/* Call it once nothing writes the word any more. Waits until the watcher's callback has returned,
 * unless called within it. Afterwards no callback runs, and no event of it is queued. A word for
 * GPUs is unregistered, which waits for the context's streams, as cuMemHostUnregister does. */
BRAID_API braid_status braid_fabric_release_watcher(braid_fabric* fabric, uint64_t watcher);

/* Same as braid_last_error, for the functions of this file. */
BRAID_API const char* braid_fabric_last_error(void);

#ifdef __cplusplus
}
#endif
