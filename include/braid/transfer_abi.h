/* Say what is to move, and braid finds the way, as a C interface. C++ programs start at transfer.h,
 * which is a thin layer over this file. Library: libbraid_transfer.so, which opens libfabric when
 * an engine is opened.
 *
 * An engine has a segment: the memory of its process that it has registered, at the addresses where
 * it lies, with what peers may do there. Files of folders that it exports are segments too. Another
 * engine opens the segment by its name, and submits batches of requests: reads from it and writes
 * to it. A request is cut into slices, which go over all rails (providers of libfabric, network
 * interfaces) by what each does now. No way is named. A rail that fails or stalls costs time and no
 * request: its slices go another way.
 *
 * The life of a batch, between O (the owner) and I:
 *   O  open; register_memory(memory, BRAID_TRANSFER_MAY_READ); name -> "braid://10.0.0.7:4750/5f3c"
 *   I  open; register_memory(its own); open_segment(name) -> segment
 *   I  submit({segment, BRAID_TRANSFER_READ, own address, owner's address, size}) -> batch
 *   I  wait(batch), or event_descriptor; outcomes(batch): one for each request; forget(batch)
 *
 * What an end means: a request that is done has all its bytes in place: a write is visible to its
 * owner. A request that has failed has a cause of its own, and no other request fails with it. Once
 * it has ended, done or not, nothing of it reads or writes the caller's memory any more, and
 * nothing of it lands at the owner later, however many ways were tried. The one exception is an
 * owner that is lost (BRAID_TRANSFER_PEER_LOST).
 *
 * Rights: the owner checks each request, whatever the peer believes. What is registered without a
 * right is the source and target of this process's own requests alone.
 *
 * Ownership: memory is the caller's, who keeps it until unregister_memory has succeeded, or the
 * engine is closed. It may not change between the submit and the end of a write from it. Numbers of
 * things (uint64_t) are never used twice; that of something gone is BRAID_ERROR_ARGUMENT, or a
 * cause of the one request that names it.
 *
 * Threads: every function may be called from any thread at once, but nothing beside close. A thread
 * of the engine's heals, serves peers and moves bytes while no caller waits. open_segment, wait,
 * unregister_memory and next_notification block up to their limit; nothing else waits for the
 * network.
 *
 * Trust: as for braid_fabric (fabric_abi.h). With a secret, every question, answer and message is
 * sealed with it. Without one, rails are at addresses of this host alone unless
 * allow_unauthenticated is set. Nothing is encrypted. Memory that allocate_memory has made is
 * mapped by peers of the same host, user and secret: read-only where the right is to read.
 *
 * Fork: an engine is of no use in a child process, and says so. Memory of allocate_memory that
 * peers may read is not there either: a child that touches it ends by SIGSEGV.
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
  const char* name;             /* for others of this host and user, and of the store: letters,
                                   digits, ".", "_", "-". NULL: none */
  const char* listen;           /* host:port, where others ask by name. NULL: the address of the
                                   first rail, and any port */
  const char* const* addresses; /* of network interfaces, one for each network rail: "10.0.0.7" */
  size_t address_count;         /* 0: by nics */
  const char* nics;             /* as of braid_fabric_options */
  const char* const* providers; /* libfabric's names. Each has a rail at each address */
  size_t provider_count;        /* 0: "mapped" (allocate_memory), shm if it is here, and
                                   "tcp;ofi_rxm" */
  const char* secret_file;      /* as of braid_fabric_options */
  int allow_unauthenticated;    /* as of braid_fabric_options */
  int is_unpinned;              /* as of braid_fabric_options */
  const char* store;            /* where the names of a cluster are kept: "redis://10.0.0.1:6379" or
                                   "etcd://10.0.0.1:2379" (which opens libcurl). NULL: what
                                   BRAID_TRANSFER_STORE says, and without it none */
  int gpu_memory; /* 1: memory of GPUs may be registered. Engines that are to reach each
                     other's agree; host memory and files move between those that do
                     not, too. With `providers`, those count: "local", and names that
                     end with "+gpu" */
} braid_transfer_options;

BRAID_API braid_status braid_transfer_open(const braid_transfer_options* options,
                                           braid_transfer** transfer);
/* What is under way ends here; no memory is used any more. NULL is allowed. Peers are told, which
 * takes up to 200 ms, and before that notifications of batches that have ended, up to 1 s. */
BRAID_API void braid_transfer_close(braid_transfer* transfer);

/* "braid://host:port/incarnation": what others open. Text that ends with a 0: *needed_bytes is its
 * size with it; a buffer that is too small is BRAID_ERROR_ARGUMENT, but NULL with 0 bytes asks for
 * the size only. */
BRAID_API braid_status braid_transfer_name(braid_transfer* transfer, char* buffer,
                                           size_t buffer_bytes, size_t* needed_bytes);

/* ---- Memory of this process ---- */

enum { BRAID_TRANSFER_MAY_READ = 1, BRAID_TRANSFER_MAY_WRITE = 2 }; /* what peers may do */

/* Host memory, or with gpu_memory memory of one GPU (a CUdeviceptr as a pointer; not managed
 * memory, which counts as the host's), apart from all that is registered. A GPU's stays allocated,
 * and its context alive, until unregister_memory has succeeded. What a stream of the caller's has
 * written there counts once the stream has been waited for; nothing here waits for a stream of the
 * caller's, and no stream waits for a request. */
BRAID_API braid_status braid_transfer_register_memory(braid_transfer* transfer, void* memory,
                                                      size_t size_bytes, int rights,
                                                      uint64_t* buffer);
/* The engine's own memory, of zeros, on the NUMA node of most rails; unregister frees it. Engines
 * of the same host and user map it when they open the segment, where they may at least read it:
 * each of their requests is then a copy of their own. The rest, and what the kernel does not let be
 * shared (before Linux 5.14), moves over rails. Without `providers`, or with "mapped" among them,
 * at both ends. */
BRAID_API braid_status braid_transfer_allocate_memory(braid_transfer* transfer, size_t size_bytes,
                                                      int rights, void** memory, uint64_t* buffer);
/* Until no peer can write there. BRAID_ERROR_ARGUMENT while a request uses it;
 * BRAID_ERROR_UNAVAILABLE if a peer has not let go by the limit: keep the memory then, and call
 * again, which waits again. No request can use it any more meanwhile. */
BRAID_API braid_status braid_transfer_unregister_memory(braid_transfer* transfer, uint64_t buffer,
                                                        uint64_t limit_us);

/* ---- Segments ---- */

/* Until a way to it works. `name` is what braid_transfer_name gives, without or with the
 * incarnation, or the bare name of an engine of this host or of the store. The engine's own segment
 * may be opened too. A host that is named rather than given by its address is looked up by the C
 * library, for as long as its resolver takes, beyond the limit if need be. */
BRAID_API braid_status braid_transfer_open_segment(braid_transfer* transfer, const char* name,
                                                   uint64_t limit_us, uint64_t* segment);
/* Requests that are under way go on. */
BRAID_API braid_status braid_transfer_close_segment(braid_transfer* transfer, uint64_t segment);

typedef struct braid_transfer_range {
  uint64_t address; /* at the owner: the offset of requests */
  uint64_t size_bytes;
  int rights;
} braid_transfer_range;
/* What was registered when the segment was opened, by address; the front of the list, at most
 * `capacity`. *count is how many there are. */
BRAID_API braid_status braid_transfer_ranges(braid_transfer* transfer, uint64_t segment,
                                             braid_transfer_range* ranges, size_t capacity,
                                             size_t* count);

/* ---- Files ---- */

/* Lets peers, and this process, read or write the regular files of a folder, as "name/path".
 * Nothing outside of it is reached, by whatever path or link. The folder is open from now on. */
BRAID_API braid_status braid_transfer_export_folder(braid_transfer* transfer, const char* name,
                                                    const char* folder, int rights);
/* A file that the owner of `segment` has exported, as a segment of its own: requests name positions
 * in it. `rights` is what this engine wants to do. One to be written is made if it is not there.
 * Requests on one that was replaced or removed since may end as NO_FILE: open it again. `segment`
 * may be the engine's own. */
BRAID_API braid_status braid_transfer_open_file(braid_transfer* transfer, uint64_t segment,
                                                const char* path, int rights, uint64_t limit_us,
                                                uint64_t* file);
/* That it had when it was opened. A request that reads beyond the end is BRAID_TRANSFER_OUTSIDE,
 * and a write there makes the file larger. */
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
  uint64_t limit_us; /* then it fails, once nothing of it can land any more; 0: none */
} braid_transfer_request;

/* Told to the owner of `segment` behind the batch: once, after all bytes of all its requests are
 * there, in the order in which batches have ended; not at all if a request has failed, or the owner
 * is lost. The segment may be closed meanwhile. */
typedef struct braid_transfer_notification {
  uint64_t segment;
  const char* name;
  const void* payload;
  size_t payload_bytes;
} braid_transfer_notification;
#define BRAID_TRANSFER_NOTIFICATION_BYTES 3072 /* of the name and the payload together */

/* Reads and writes, in any order, to any segments. Lists are read during the call only. What is
 * wrong with one request is that request's outcome alone; but one whose operation or urgency there
 * is not is BRAID_ERROR_ARGUMENT, and nothing is submitted. `notification` may be NULL; one for a
 * segment that is gone, or the 1,025th that its owner has not taken, is refused likewise. */
BRAID_API braid_status braid_transfer_submit(braid_transfer* transfer,
                                             const braid_transfer_request* requests, size_t count,
                                             const braid_transfer_notification* notification,
                                             uint64_t* batch);
/* Until all requests of the batch have ended, or the limit: *has_ended is then 0. */
BRAID_API braid_status braid_transfer_wait(braid_transfer* transfer, uint64_t batch,
                                           uint64_t limit_us, int* has_ended);

typedef enum braid_transfer_cause {
  BRAID_TRANSFER_DONE = 0,
  BRAID_TRANSFER_NO_SEGMENT = 1,
  BRAID_TRANSFER_LOCAL_MEMORY = 2, /* the caller's side lies not within one registered buffer */
  BRAID_TRANSFER_OUTSIDE = 3,      /* the far side lies not within one range */
  BRAID_TRANSFER_NOT_ALLOWED = 4,  /* the owner has not given this right there */
  BRAID_TRANSFER_NO_FILE = 5,      /* the owner knows no such file */
  BRAID_TRANSFER_FILE_ERROR = 6,   /* the owner's file system refused */
  BRAID_TRANSFER_DEADLINE = 7,
  BRAID_TRANSFER_CANCELLED = 8,
  BRAID_TRANSFER_PEER_LOST = 9, /* its process has ended, or no way to it has worked for 5 s */
  BRAID_TRANSFER_TOO_MUCH = 10, /* beyond a limit of this engine or the owner's */
  BRAID_TRANSFER_OTHER_VERSION = 11,
  BRAID_TRANSFER_WAYS_FAILED = 12, /* a slice has failed on several ways */
  BRAID_TRANSFER_GPU_ERROR = 13,   /* the driver of this process's GPU refused a copy */
  BRAID_TRANSFER_NO_WAY = 14,      /* no rail leads from the one memory to the other: a GPU's needs
                                      gpu_memory at both ends */
  BRAID_TRANSFER_PENDING = 100     /* it has not ended */
} braid_transfer_cause;
/* "the owner has not given this right" */
BRAID_API const char* braid_transfer_cause_name(int cause);

typedef struct braid_transfer_outcome {
  int cause;
  uint64_t delivered_bytes; /* of a failed one: not a prefix */
} braid_transfer_outcome;
/* Of the requests from `first` on, at most `capacity`; *count is how many requests the batch has.
 */
BRAID_API braid_status braid_transfer_outcomes(braid_transfer* transfer, uint64_t batch,
                                               size_t first, braid_transfer_outcome* outcomes,
                                               size_t capacity, size_t* count);
/* Requests end as cancelled, once nothing of them can land any more; what is done stays done. */
BRAID_API braid_status braid_transfer_cancel(braid_transfer* transfer, uint64_t batch);
/* Of a batch that has ended, which is then gone: take_ended does not name it any more. */
BRAID_API braid_status braid_transfer_forget(braid_transfer* transfer, uint64_t batch);

/* For poll, epoll and asyncio: readable while batches that have ended, or notifications, have not
 * been taken. Batches count from the first call of this function on. It belongs to the engine. */
BRAID_API braid_status braid_transfer_event_descriptor(braid_transfer* transfer, int* descriptor);
BRAID_API braid_status braid_transfer_take_ended(braid_transfer* transfer, uint64_t* batches,
                                                 size_t capacity, size_t* count);
/* The next that has come; *has_come is 0 if none has by the limit. `name` and `payload` have room
 * for BRAID_TRANSFER_NOTIFICATION_BYTES each, and the name for a 0 more. `from` has room for the 33
 * bytes of the sender's incarnation as text; it may be NULL. */
BRAID_API braid_status braid_transfer_next_notification(braid_transfer* transfer, uint64_t limit_us,
                                                        int* has_come, char* name, void* payload,
                                                        size_t* payload_bytes, char* from);

/* ---- What it does, and why ---- */

typedef enum braid_transfer_form {
  BRAID_TRANSFER_TEXT = 1,
  BRAID_TRANSFER_JSON = 2, /* one line */
  BRAID_TRANSFER_PROMETHEUS = 3
} braid_transfer_form;

/* Which ways a request of this size between host memory would have now, what each would take, and
 * which one the first slice takes and why. Text or JSON, which comes as braid_transfer_name does.
 */
BRAID_API braid_status braid_transfer_explain(braid_transfer* transfer, uint64_t segment,
                                              uint64_t size_bytes, int urgency, int form,
                                              char* buffer, size_t buffer_bytes,
                                              size_t* needed_bytes);
/* The same of this request, between the two ends that it names, with the hops of each way. */
BRAID_API braid_status braid_transfer_explain_request(braid_transfer* transfer,
                                                      const braid_transfer_request* request,
                                                      int form, char* buffer, size_t buffer_bytes,
                                                      size_t* needed_bytes);
/* Everything that was counted, and every way as it is now. */
BRAID_API braid_status braid_transfer_report(braid_transfer* transfer, int form, char* buffer,
                                             size_t buffer_bytes, size_t* needed_bytes);

/* What the last call of this thread that failed had to say. */
BRAID_API const char* braid_transfer_last_error(void);

#ifdef __cplusplus
}
#endif
