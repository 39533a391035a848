/* The transfer engine, as a C interface: a program says which bytes to move, and braid finds the
 * way. C++ programs start at transfer.h, which is a thin layer over this file. Library:
 * libbraid_transfer.so, which opens libfabric when an engine is opened.
 *
 * An engine has a segment: the memory that it has registered in its process, at its own addresses,
 * with the rights of peers. Files of folders that it exports are segments too. Another engine opens
 * the segment by its name, and submits batches of requests: reads from it and writes to it. A
 * request is cut into slices, which the engine spreads over all rails (providers of libfabric,
 * network interfaces) by their present speed. A request names no way. If a rail fails or stalls,
 * its slices go another way; this costs time, but no request.
 *
 * The life of a batch, between O (the owner) and I:
 *   O  open; register_memory(memory, BRAID_TRANSFER_MAY_READ); name -> "braid://10.0.0.7:4750/5f3c"
 *   I  open; register_memory(its own); open_segment(name) -> segment
 *   I  submit({segment, BRAID_TRANSFER_READ, own address, owner's address, size}) -> batch
 *   I  wait(batch), or event_descriptor; outcomes(batch): one for each request; forget(batch)
 *
 * What an end means: a request that is done has all its bytes in place; a write is visible to its
 * owner. A request that has failed has a cause of its own, and no other request fails with it. Once
 * a request has ended, done or failed, it no longer reads or writes the caller's memory, and no
 * byte of it lands at the owner later, however many ways were tried. The one exception is an owner
 * that is lost (BRAID_TRANSFER_PEER_LOST).
 *
 * Rights: the owner checks each request, whatever the peer believes. Memory that is registered
 * without a right is the source and target of this process's own requests alone.
 *
 * Ownership: the caller owns the memory, and keeps it until unregister_memory has succeeded or the
 * engine is closed. The source of a write may not change between submit and its end. A number
 * (uint64_t) is never used twice; the number of a thing that is gone is BRAID_ERROR_ARGUMENT, or
 * the cause of the one request that names it.
 *
 * Threads: any thread may call any function at any time, except while close runs. A thread of the
 * engine heals, serves peers and moves bytes while no caller waits. open_segment, open_file, wait,
 * submit_and_wait, unregister_memory and next_notification block up to their limit. open waits for
 * the store if the engine has a name and there is one, and close as it says. No other function
 * waits for the network.
 *
 * Trust: as for braid_fabric (fabric_abi.h). With a secret, every question, answer and message is
 * sealed with it. An engine without a secret uses addresses of this host alone unless
 * allow_unauthenticated is set, and answers processes of its own user there. Nothing is encrypted.
 * Peers of the same host, user and secret map memory of braid_transfer_allocate_memory, read-only
 * if they may only read it.
 *
 * Fork: an engine cannot be used in a child process; every call there says so. Memory of
 * braid_transfer_allocate_memory that peers may read is not mapped in a child: touching it there is
 * SIGSEGV.
 *
 * Units: sizes are bytes, time limits microseconds. Source: TENT, sections 3.1 to 3.4.
 */
#pragma once

#include "braid/braid.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct braid_transfer braid_transfer;

typedef struct braid_transfer_options {
  size_t struct_bytes;          /* sizeof(braid_transfer_options) */
  const char* name;             /* for other engines of this host and user, and for the store:
                                   letters, digits, ".", "_", "-". NULL: none */
  const char* listen;           /* host:port, where others ask for this engine by name; 0.0.0.0 and
                                   [::] stand for all addresses, and need a rail at one of a NIC.
                                   NULL: the address of the first rail, and any port */
  const char* const* addresses; /* of network interfaces, one for each network rail: "10.0.0.7" */
  size_t address_count;         /* 0: `nics` chooses, or else the rail is where it listens */
  const char* nics;             /* as of braid_fabric_options */
  const char* const* providers; /* libfabric's names. Each provider has a rail at each address */
  size_t provider_count;        /* 0: "mapped" (braid_transfer_allocate_memory), shm if available,
                                   and "tcp;ofi_rxm" */
  const char* secret_file;      /* as of braid_fabric_options */
  int allow_unauthenticated;    /* as of braid_fabric_options */
  int is_unpinned;              /* as of braid_fabric_options */
  const char* store;            /* the store of a cluster's names: "redis://10.0.0.1:6379" or
                                   "etcd://10.0.0.1:2379" (which opens libcurl), or with
                                   "USER:PASSWORD@" before the host, percent-encoded. NULL: the
                                   value of BRAID_TRANSFER_STORE; if that is not set, no store */
  int gpu_memory; /* 1: GPU memory may be registered. Engines that reach each other's GPU memory
                     have the same value; host memory and files move between any engines. If
                     `providers` is given, it decides: "local", and names that end with "+gpu" */
} braid_transfer_options;

BRAID_API braid_status braid_transfer_open(const braid_transfer_options* options,
                                           braid_transfer** transfer);
/* Ends all work that is under way; no memory is used afterwards. NULL is allowed. Takes up to 1 s
 * to send the notifications of batches that have ended, then up to 200 ms to tell the peers. */
BRAID_API void braid_transfer_close(braid_transfer* transfer);

/* "braid://host:port/incarnation": the name by which others open this engine, as text.
 * *needed_bytes is its size with the final 0; a buffer that is too small is BRAID_ERROR_ARGUMENT;
 * NULL with 0 bytes asks for the size only. */
BRAID_API braid_status braid_transfer_name(braid_transfer* transfer, char* buffer,
                                           size_t buffer_bytes, size_t* needed_bytes);

/* ---- Memory of this process ---- */

enum { BRAID_TRANSFER_MAY_READ = 1, BRAID_TRANSFER_MAY_WRITE = 2 }; /* what peers may do */

/* Registers host memory, or with gpu_memory the memory of one GPU (a CUdeviceptr as a pointer),
 * which may not overlap registered memory. Managed memory counts as host memory. GPU memory stays
 * allocated until unregister_memory has succeeded. A context that the caller has made itself stays
 * alive until that has succeeded for the last memory there; a primary context is held until the
 * engine is closed. A request sees what a stream of the caller has written there only after the
 * caller has waited for that stream: no function here waits for a stream of the caller, and no
 * stream waits for a request. */
BRAID_API braid_status braid_transfer_register_memory(braid_transfer* transfer, void* memory,
                                                      size_t size_bytes, int rights,
                                                      uint64_t* buffer);
/* Allocates memory of the engine, zeroed, whichever thread calls: on the NUMA node of most rails
 * while that has room, unless is_unpinned is set. unregister frees it.
 * Engines of the same host and user map it when they open the segment, if they may read it. Each of
 * their requests there is then a memory copy of their own. Rails carry all other requests, and also
 * these if a kernel before Linux 5.14 cannot share the memory. With `providers`, both ends must
 * name "mapped". */
BRAID_API braid_status braid_transfer_allocate_memory(braid_transfer* transfer, size_t size_bytes,
                                                      int rights, void** memory, uint64_t* buffer);
/* Waits until no peer can write there. If it was the last memory of a context that the caller has
 * made itself, also until nothing of the engine's is left there, for which the driver waits for the
 * context's streams. BRAID_ERROR_ARGUMENT while a request uses the memory.
 * BRAID_ERROR_UNAVAILABLE if that is not so at the limit: keep the memory then, and call again,
 * which waits again. Meanwhile no request can use it any more. */
BRAID_API braid_status braid_transfer_unregister_memory(braid_transfer* transfer, uint64_t buffer,
                                                        uint64_t limit_us);

/* ---- Segments ---- */

/* Opens a segment; waits until a way to it works. `name` is the text of braid_transfer_name, with
 * or without the incarnation, or the bare name of an engine of this host or of the store. An engine
 * may open its own segment. The C library looks up a host name, for as long as its resolver takes,
 * even beyond the limit. braid_transfer_last_cause tells the errors apart: NO_SEGMENT (no engine
 * has this name, or answers there), OTHER_SECRET, OTHER_VERSION, NO_STORE, STORE_REFUSES,
 * NO_WAY, DEADLINE, PEER_LOST (it was given up, or its host cannot be reached), TOO_MUCH. */
BRAID_API braid_status braid_transfer_open_segment(braid_transfer* transfer, const char* name,
                                                   uint64_t limit_us, uint64_t* segment);
/* Closes a segment. Requests that are under way go on. */
BRAID_API braid_status braid_transfer_close_segment(braid_transfer* transfer, uint64_t segment);

typedef struct braid_transfer_range {
  uint64_t address; /* at the owner: requests use it as their address */
  uint64_t size_bytes;
  int rights;
} braid_transfer_range;
/* The ranges that were registered when the segment was opened, in order of address: the first
 * `capacity` of them. *count is how many there are. */
BRAID_API braid_status braid_transfer_ranges(braid_transfer* transfer, uint64_t segment,
                                             braid_transfer_range* ranges, size_t capacity,
                                             size_t* count);

/* ---- Files ---- */

/* Lets peers, and this process, read or write the regular files of a folder, as "name/path". No
 * path and no link leads outside the folder. The engine keeps the folder open from now on. */
BRAID_API braid_status braid_transfer_export_folder(braid_transfer* transfer, const char* name,
                                                    const char* folder, int rights);
/* Opens a file that the owner of `segment` has exported, as a segment of its own: requests name
 * positions in it. `rights` is what this engine wants to do. A file to be written is created if it
 * does not exist. If the file is replaced or removed later, requests may end as NO_FILE: open it
 * again. `segment` may be the engine's own. */
BRAID_API braid_status braid_transfer_open_file(braid_transfer* transfer, uint64_t segment,
                                                const char* path, int rights, uint64_t limit_us,
                                                uint64_t* file);
/* The size of the file when it was opened. A read beyond the end is BRAID_TRANSFER_OUTSIDE; a write
 * there makes the file larger. */
BRAID_API braid_status braid_transfer_file_bytes(braid_transfer* transfer, uint64_t file,
                                                 uint64_t* size_bytes);

/* ---- Batches ---- */

typedef enum braid_transfer_operation {
  BRAID_TRANSFER_READ = 0, /* from the segment */
  BRAID_TRANSFER_WRITE = 1 /* to it */
} braid_transfer_operation;

typedef enum braid_transfer_urgency {
  BRAID_TRANSFER_BULK = 0,
  BRAID_TRANSFER_URGENT = 1 /* its slices go before those of bulk, which keeps a twentieth */
} braid_transfer_urgency;

typedef struct braid_transfer_request {
  uint64_t segment;
  void* local;      /* within one buffer that is registered here */
  uint64_t address; /* within one range of the segment; of a file: the position */
  uint64_t size_bytes;
  int operation;     /* braid_transfer_operation */
  int urgency;       /* braid_transfer_urgency */
  uint64_t limit_us; /* at this time the request fails, once no byte of it can land any more; 0:
                        none; 1: it has passed, and no byte moves */
} braid_transfer_request;

/* A message to the owner of `segment` after the batch. It comes once, after all bytes of all
 * requests of the batch have arrived, in the order in which batches have ended. It is not sent if a
 * request has failed or the owner is lost. The segment may be closed meanwhile. */
typedef struct braid_transfer_notification {
  uint64_t segment;
  const char* name;
  const void* payload;
  size_t payload_bytes;
} braid_transfer_notification;
#define BRAID_TRANSFER_NOTIFICATION_BYTES 3072 /* of the name and the payload together */

/* Submits reads and writes, in any order, to any segments. Lists are read during the call only. A
 * fault of one request affects the outcome of that request alone; only an invalid operation or
 * urgency is BRAID_ERROR_ARGUMENT, and then nothing is submitted. `notification` may be NULL. A
 * notification for a segment that is gone, or the 1,025th that its owner has not taken, is refused
 * likewise. */
BRAID_API braid_status braid_transfer_submit(braid_transfer* transfer,
                                             const braid_transfer_request* requests, size_t count,
                                             const braid_transfer_notification* notification,
                                             uint64_t* batch);
/* Waits until all requests of the batch have ended, or the limit: *has_ended is then 0. */
BRAID_API braid_status braid_transfer_wait(braid_transfer* transfer, uint64_t batch,
                                           uint64_t limit_us, int* has_ended);

typedef enum braid_transfer_cause {
  BRAID_TRANSFER_DONE = 0,
  BRAID_TRANSFER_NO_SEGMENT = 1,
  BRAID_TRANSFER_LOCAL_MEMORY = 2, /* the caller's side is not within one registered buffer */
  BRAID_TRANSFER_OUTSIDE = 3,      /* the far side is not within one range */
  BRAID_TRANSFER_NOT_ALLOWED = 4,  /* the owner has not given this right there */
  BRAID_TRANSFER_NO_FILE = 5,      /* the owner has no such file */
  BRAID_TRANSFER_FILE_ERROR = 6,   /* the owner's file system refused; owners of braid's protocol 2
                                      say this for NO_SPACE, READ_ONLY and DEVICE_ERROR, too */
  BRAID_TRANSFER_DEADLINE = 7,
  BRAID_TRANSFER_CANCELLED = 8,
  BRAID_TRANSFER_PEER_LOST = 9,      /* its process has ended, or no way to it has worked for 5 s */
  BRAID_TRANSFER_TOO_MUCH = 10,      /* more than a limit of this engine or of the owner */
  BRAID_TRANSFER_OTHER_VERSION = 11, /* the owner, or each rail that leads to the memory, speaks no
                                        version that this engine speaks */
  BRAID_TRANSFER_WAYS_FAILED = 12,   /* a slice has failed on several ways */
  BRAID_TRANSFER_GPU_ERROR = 13,     /* the driver of this process's GPU refused a copy */
  BRAID_TRANSFER_NO_WAY = 14, /* no rail connects the two memories: GPU memory needs gpu_memory
                                 at both ends */
  /* 15 is used between engines alone. */
  BRAID_TRANSFER_OTHER_SECRET = 16,  /* open_segment: the owner has another secret */
  BRAID_TRANSFER_NO_STORE = 17,      /* open_segment, open: the store does not answer */
  BRAID_TRANSFER_NO_SPACE = 18,      /* the owner's storage is full, or its user's quota */
  BRAID_TRANSFER_READ_ONLY = 19,     /* the owner's storage cannot be written */
  BRAID_TRANSFER_DEVICE_ERROR = 20,  /* the owner's storage has an input/output error */
  BRAID_TRANSFER_STORE_REFUSES = 21, /* open_segment, open: the store wants a password, does not
                                        take the one of its URL, or denies its user a command */
  BRAID_TRANSFER_PENDING = 100,      /* it has not ended */
  BRAID_TRANSFER_NO_CAUSE = 101      /* of a call's error: the message alone says what is wrong */
} braid_transfer_cause;
/* The cause in words: "the owner has not given this right". */
BRAID_API const char* braid_transfer_cause_name(int cause);

typedef struct braid_transfer_outcome {
  int cause;
  uint64_t delivered_bytes; /* of a failed request: not necessarily a prefix */
} braid_transfer_outcome;
/* The outcomes of the requests from `first` on, at most `capacity`. *count is the number of
 * requests in the batch. */
BRAID_API braid_status braid_transfer_outcomes(braid_transfer* transfer, uint64_t batch,
                                               size_t first, braid_transfer_outcome* outcomes,
                                               size_t capacity, size_t* count);
/* submit, wait, outcomes and forget in one call, for short batches. If the batch has ended by the
 * limit, *batch is 0, and `outcomes` has the `count` outcomes. If not, it goes on as after submit,
 * with its number in *batch. An error of submit submits nothing. */
BRAID_API braid_status braid_transfer_submit_and_wait(
    braid_transfer* transfer, const braid_transfer_request* requests, size_t count,
    const braid_transfer_notification* notification, uint64_t limit_us,
    braid_transfer_outcome* outcomes, uint64_t* batch);
/* Requests end as cancelled, once no byte of them can land any more; a request that is done stays
 * done. */
BRAID_API braid_status braid_transfer_cancel(braid_transfer* transfer, uint64_t batch);
/* Forgets a batch that has ended; take_ended does not name it any more. */
BRAID_API braid_status braid_transfer_forget(braid_transfer* transfer, uint64_t batch);

/* A descriptor for poll, epoll and asyncio: readable while ended batches or notifications have not
 * been taken. Batches count from the first call of this function on. It belongs to the engine. */
BRAID_API braid_status braid_transfer_event_descriptor(braid_transfer* transfer, int* descriptor);
BRAID_API braid_status braid_transfer_take_ended(braid_transfer* transfer, uint64_t* batches,
                                                 size_t capacity, size_t* count);
/* Takes the next notification; *has_come is 0 if none has come by the limit. `name` and `payload`
 * have room for BRAID_TRANSFER_NOTIFICATION_BYTES each, and `name` for a final 0 more. `from` has
 * room for the 33 bytes of the sender's incarnation as text; it may be NULL. */
BRAID_API braid_status braid_transfer_next_notification(braid_transfer* transfer, uint64_t limit_us,
                                                        int* has_come, char* name, void* payload,
                                                        size_t* payload_bytes, char* from);

/* ---- Explanations and statistics ---- */

typedef enum braid_transfer_form {
  BRAID_TRANSFER_TEXT = 1,
  BRAID_TRANSFER_JSON = 2, /* one line */
  BRAID_TRANSFER_PROMETHEUS = 3
} braid_transfer_form;

/* The ways that a request of this size between host memory would have now, the time of each, and
 * the way of the first slice with its reason. Text or JSON, returned as braid_transfer_name returns
 * text. Causes of its errors: NO_SEGMENT, NO_WAY, PEER_LOST, OTHER_VERSION. */
BRAID_API braid_status braid_transfer_explain(braid_transfer* transfer, uint64_t segment,
                                              uint64_t size_bytes, int urgency, int form,
                                              char* buffer, size_t buffer_bytes,
                                              size_t* needed_bytes);
/* The same for this request, between the two ends that it names, with the hops of each way. */
BRAID_API braid_status braid_transfer_explain_request(braid_transfer* transfer,
                                                      const braid_transfer_request* request,
                                                      int form, char* buffer, size_t buffer_bytes,
                                                      size_t* needed_bytes);
/* All statistics, and the present state of every way. */
BRAID_API braid_status braid_transfer_report(braid_transfer* transfer, int form, char* buffer,
                                             size_t buffer_bytes, size_t* needed_bytes);

/* Which RDMA devices of this host are near which memory, as JSON in the form of Mooncake's
 * topology:
 * {"cpu:0": [[the nearest], [all others]], "cuda:0": ...}. GPUs are there if the process has loaded
 * the driver. `devices`: the only ones that count; none: all. It needs no engine, and returns text
 * as braid_transfer_name does. */
BRAID_API braid_status braid_transfer_topology(const char* const* devices, size_t device_count,
                                               char* buffer, size_t buffer_bytes,
                                               size_t* needed_bytes);

/* The message of this thread's last failed call. */
BRAID_API const char* braid_transfer_last_error(void);
/* Its braid_transfer_cause; NO_CAUSE if it has none. */
BRAID_API int braid_transfer_last_cause(void);

#ifdef __cplusplus
}
#endif
