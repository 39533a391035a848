/* KV caches that rotate between GPUs and host memory, as a C interface. C++ programs start at kv.h,
 * which is a thin layer over this file. Library: libbraid_kv.so, which opens the machine's driver
 * when a cache is opened.
 *
 * A serving engine keeps its KV cache in blocks; a block holds a fixed number of tokens of all
 * layers. A rotation engine knows where each block is (GPU, host or both), and copies blocks
 * between the two sides in batches, both directions at once, while the model runs:
 *
 *   dirty --seal--> sealed --copy down--> syncing --> synced --evict--> host only
 *     ^                                                  ^                  |
 *     +------------------- reopen -----------------------+---- loading <----+
 *
 * A dirty block may be written. A sealed block is copied to the host in the background (written
 * through). A synced block is on both sides, and leaves the GPU without a copy. A lost block has no
 * good copy: compute it again.
 *
 * One step of the model:
 *   braid_kv_poll                  reports the copies that have landed; slots become free
 *   braid_kv_apply(END_USE...)     for requests that are preempted or done; RELEASE for those done
 *   braid_kv_submit(plan)          which blocks leave and which come, within budgets of bytes
 *   braid_kv_apply(BEGIN_USE...)   for requests that come back
 *   braid_kv_begin_step
 *   braid_kv_create, REOPEN, SEAL  for blocks that this step writes
 *   (the step's kernels, in the compute streams, read and write the slots: braid_kv_gpu_slots)
 *   braid_kv_end_step
 *
 * References and users: a block begins with one reference and one user. Every request that needs
 * the block has a reference (ADD_REFERENCE, RELEASE), and is a user while it runs (BEGIN_USE,
 * END_USE). So a shared prefix leaves the GPU after its last user, and ends with its last
 * reference.
 *
 * Order: once it is open, only braid_kv_wait and braid_kv_close wait for a GPU. Events of the
 * driver order a copy down behind the step that sealed the block, and the reuse of a slot behind
 * all work that still touches it. Loads copy from pinned memory to the GPU and are enqueued whole,
 * so a compute stream may wait for them (BRAID_KV_ORDERED): the next step may use the blocks at
 * once. With BRAID_KV_POLLED no stream waits, and the blocks may be used once braid_kv_poll has
 * reported them. A compute stream waits for a copy down in one case only: braid_kv_create or REOPEN
 * gives a slot to the next step while such a copy may still read it. That copy is enqueued whole
 * too.
 *
 * Failure: if the driver refuses a copy, each block stays where its good bytes are: sealed on the
 * way down, host only on the way up. braid_kv_submit returns the error, and may be tried again.
 * When a GPU's context has failed, braid_kv_poll says so from then on. Blocks with a host copy are
 * then host only and can be read (braid_kv_host_block); all others are lost. A failure on one rank
 * is a failure of all.
 *
 * Ranks: the GPUs of a tensor-parallel group. Each rank has a share of every block, in slots with
 * the same numbers, and all ranks move the same blocks. Ranks of other processes: see the end of
 * this file.
 *
 * Ownership: the caller owns contexts, caches, compute streams and the copying engine, and keeps
 * them until braid_kv_close. The rotation engine owns the host memory. Lists are read during the
 * call.
 *
 * Threads: one thread at a time may use a braid_kv. Fork: in a child process every call fails and
 * says so, and closing does nothing; the child may open its own.
 *
 * Graphs: any thread may record one meanwhile, in any mode. A step may launch graphs, but a compute
 * stream must not record one during braid_kv_create, a REOPEN, braid_kv_submit and
 * braid_kv_end_step, which put events into it.
 *
 * Units: sizes are bytes. Budgets and byte counts are of all ranks together. Source: SuperInfer
 * section 4.3 (DuplexKV); docs/kv.md.
 */
#pragma once

#include "braid/braid.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct braid_kv braid_kv;

/* The shape of a model's KV cache. With tensor parallelism kv_heads is one rank's share. */
typedef struct braid_kv_model {
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_size;     /* elements */
  uint32_t element_bytes; /* 2: fp16, bf16; 1: fp8 */
  uint32_t block_tokens;
} braid_kv_model;

/* One contiguous piece of every block on the GPU, at gpu_base_bytes + slot * gpu_stride_bytes from
 * the beginning of the cache. On the host the pieces of a block lie one behind the other. */
typedef struct braid_kv_segment {
  uint64_t gpu_base_bytes;
  uint64_t gpu_stride_bytes;
  uint64_t size_bytes;
} braid_kv_segment;

typedef enum braid_kv_order {
  BRAID_KV_BLOCK_FIRST = 0, /* all layers of a block lie together: one segment */
  BRAID_KV_LAYER_FIRST = 1  /* all blocks of a layer lie together: a segment for each layer */
} braid_kv_order;

/* The segments of a cache of `gpu_slots` blocks; *count is their number. A list that is too small
 * is BRAID_ERROR_ARGUMENT; NULL with 0 asks for the count only. */
BRAID_API braid_status braid_kv_segments(const braid_kv_model* model, int order, uint32_t gpu_slots,
                                         braid_kv_segment* segments, size_t capacity,
                                         size_t* count);

typedef struct braid_kv_rank {
  struct CUctx_st* context;
  uint64_t cache;              /* a CUdeviceptr: the cache's beginning */
  struct CUstream_st* compute; /* the steps' stream; no default stream */
} braid_kv_rank;

/* What moves the blocks over a GPU's own link. */
typedef enum braid_kv_mover {
  BRAID_KV_BY_DRIVER = 0, /* the driver's batches: copy engines alone. The call costs about a
                             microsecond a block. An engine moves them by kernels instead */
  BRAID_KV_BY_KERNEL = 1, /* one kernel a batch. The call costs a small part of that, and the copy
                             takes a few of the GPU's multiprocessors. Without an engine the driver
                             still carries batches of few or large segments */
  BRAID_KV_BY_COPY_ENGINES = 2 /* copy engines alone, with an engine too: its `copy_batch` is then
                                  braid_copy_batch_sparing, whose kernels run on the other GPUs */
} braid_kv_mover;

typedef struct braid_kv_options {
  size_t struct_bytes; /* sizeof(braid_kv_options) */
  const braid_kv_segment* segments;
  size_t segment_count;
  uint32_t gpu_slots;  /* blocks of each rank's cache */
  uint32_t host_slots; /* blocks of each rank's pinned host memory, which braid_kv_open pins */
  const braid_kv_rank* ranks;
  size_t rank_count;
  /* The engine that moves the blocks over every link (braid.h), and these functions of the library
   * that opened it. NULL: `mover`, over each GPU's own link. With an engine `copy_batch` decides,
   * and not `mover`: braid_copy_batch runs kernels on the cache's GPU, braid_copy_batch_sparing,
   * which belongs to BRAID_KV_BY_COPY_ENGINES, does not. */
  braid_engine* engine;
  braid_status (*copy_batch)(braid_engine*, void* const*, const void* const*, const size_t*, size_t,
                             struct CUstream_st*, int, braid_outcome*);
  const char* (*last_error)(void); /* braid_last_error */
  int (*last_cuda_error)(void);    /* braid_last_cuda_error */
  /* braid_prepare: braid_kv_open calls it in the context of each rank, so that no plan has to. */
  braid_status (*prepare)(braid_engine*);
  int mover; /* a braid_kv_mover */
  /* Ranks in processes of their own, numbered after `ranks`, and how long commands may be with one
   * of them before a report speaks of them: then its process is taken for ended. Longer than all
   * steps that are under way together. Nothing else starts it: while nothing is sent, the death of
   * a worker is not noticed. */
  uint32_t remote_rank_count;
  uint64_t report_deadline_ms; /* not 0, if there are such ranks */
} braid_kv_options;

/* Pins the host memory of `ranks`, which takes tens of milliseconds a gigabyte. With
 * BRAID_KV_BY_KERNEL or an engine it also loads kernels into the contexts, and so waits for their
 * streams. On failure *kv is NULL. */
BRAID_API braid_status braid_kv_open(const braid_kv_options* options, braid_kv** kv);
/* Waits for the copies of this process. To unpin the host memory, the driver also waits for
 * everything else that is under way in the ranks' contexts, compute streams included, and holds
 * their locks meanwhile. NULL is allowed. */
BRAID_API void braid_kv_close(braid_kv* kv);

/* Why an operation on a block was refused. A refused operation has changed nothing. */
typedef enum braid_kv_refusal {
  BRAID_KV_NOT_REFUSED = 0,
  BRAID_KV_UNKNOWN_BLOCK = 1, /* the block has ended, or never existed */
  BRAID_KV_WRONG_STATE = 2,
  BRAID_KV_IN_USE = 3,  /* running requests use it, or every reference is a user already */
  BRAID_KV_SHARED = 4,  /* other requests need what it holds */
  BRAID_KV_COPYING = 5, /* a copy to or from it is under way */
  BRAID_KV_NO_GPU_SLOT = 6,
  BRAID_KV_NO_HOST_SLOT = 7,
  BRAID_KV_STEP_NOT_ENDED = 8, /* the step that writes it is not enqueued yet */
  BRAID_KV_FAILED = 9          /* the cause is not a block: see braid_kv_last_error */
} braid_kv_refusal;
/* "a copy to or from the block is under way"; "unknown" for a number that is no refusal. Never
 * freed. */
BRAID_API const char* braid_kv_refusal_words(int refusal);

/* Creates a dirty block for the step that is being enqueued. Its number is never used twice.
 * If the GPU has no free slot, *refusal is BRAID_KV_NO_GPU_SLOT, and the status
 * BRAID_ERROR_ARGUMENT; `refusal` may be NULL.
 * BRAID_ERROR_CUDA: the driver has not ordered the compute stream. */
BRAID_API braid_status braid_kv_create(braid_kv* kv, uint64_t* block, int* refusal);

typedef enum braid_kv_operation {
  BRAID_KV_ADD_REFERENCE = 0, /* another request needs it; refused if dirty or lost */
  BRAID_KV_RELEASE = 1,       /* a request that is no longer a user no longer needs it */
  BRAID_KV_BEGIN_USE = 2,     /* a request runs with it: it is on the GPU, or loading and ordered */
  BRAID_KV_END_USE = 3,       /* after the request's last step, before the next begin_step */
  BRAID_KV_SEAL = 4,          /* the current step is the last that writes it */
  BRAID_KV_REOPEN = 5,        /* it will be written again; the host's copy is discarded. Refused
                               * (COPYING) until its copy down has landed, and a poll saw it */
  BRAID_KV_DROP_HOST = 6,     /* discards the host copy of a synced block, to make room there */
  BRAID_KV_LOSE = 7           /* discards the content: lost; to make room for others */
} braid_kv_operation;

/* Applies the operation to the blocks in order, and stops at the first refusal, which it returns.
 * *done is the number of blocks before it; `done` may be NULL. An invalid operation or pointer is
 * BRAID_KV_WRONG_STATE. */
BRAID_API int braid_kv_apply(braid_kv* kv, int operation, const uint64_t* blocks, size_t count,
                             size_t* done);

/* Returns the number of the step; steps count from 1. 0: no engine, or the engine of a parent
 * process. */
BRAID_API uint64_t braid_kv_begin_step(braid_kv* kv);
/* Call it when all of the step is in the compute streams. After a failure, call it again: until it
 * succeeds, no block that the step wrote is copied. */
BRAID_API braid_status braid_kv_end_step(braid_kv* kv);

typedef enum braid_kv_landing { BRAID_KV_ORDERED = 0, BRAID_KV_POLLED = 1 } braid_kv_landing;

#define BRAID_KV_NO_LIMIT UINT64_MAX

typedef struct braid_kv_plan {
  size_t struct_bytes; /* sizeof(braid_kv_plan) */
  const uint64_t*
      evict; /* blocks to leave the GPU, in this order: synced ones at once, sealed ones by a copy.
                Blocks that others use, or that have left already, are skipped */
  size_t evict_count;
  const uint64_t* load; /* blocks to come back. Those on the GPU need no copy, and stay there even
                           if they were to leave: the next poll reports them as loaded */
  size_t load_count;
  int landing;          /* a braid_kv_landing */
  int no_write_through; /* 1: sealed blocks that do not leave are not copied by this call */
  uint64_t down_bytes;  /* at most, or BRAID_KV_NO_LIMIT; 0: no copies that way */
  uint64_t up_bytes;
} braid_kv_plan;

typedef struct braid_kv_submitted {
  size_t struct_bytes; /* sizeof(braid_kv_submitted) */
  uint64_t down_bytes; /* under way since this call */
  uint64_t up_bytes;
  size_t evictions_left;   /* sealed blocks left because of the budget */
  size_t loads_left;       /* the last ones of the plan, left because of the budget or GPU slots */
  const uint64_t* refused; /* blocks of the plan; valid until the next submit */
  const int* refusals;     /* the braid_kv_refusal of each */
  size_t refused_count;
} braid_kv_submitted;

/* Never blocks. `submitted`, which may be NULL, is filled in even if a copy fails:
 * BRAID_ERROR_CUDA, and the blocks of that copy stay where they were. After BRAID_ERROR_ARGUMENT
 * nothing was done. */
BRAID_API braid_status braid_kv_submit(braid_kv* kv, const braid_kv_plan* plan,
                                       braid_kv_submitted* submitted);

typedef struct braid_kv_report {
  size_t struct_bytes;    /* sizeof(braid_kv_report) */
  const uint64_t* synced; /* copied down since the last poll; valid until the next poll */
  size_t synced_count;
  const uint64_t* loaded; /* to be loaded by a plan, and on the GPU now: by a copy, or all along.
                             Not those that have been released or evicted since */
  size_t loaded_count;
  /* Blocks whose copy a rank of another process could not make after all, also those that have
   * ended since. They are where they were before the submit (sealed, host only), or lost, if steps
   * have written them since. What was computed from a block that was to be loaded is wrong: end its
   * uses, release the blocks that its request has written since that submit, and compute them
   * again. */
  const uint64_t* failed;
  size_t failed_count;
  const char* cause; /* why the first of them failed, with the rank; "": none has */
} braid_kv_report;

/* Never blocks. `report` may be NULL. Once a rank has failed, every call fails, and names it:
 * BRAID_ERROR_CUDA by its GPU, and BRAID_ERROR_PEER with its process. With a process its host
 * copies are gone, so that all blocks are lost. */
BRAID_API braid_status braid_kv_poll(braid_kv* kv, braid_kv_report* report);
/* Waits until every copy of this process that is under way has ended: for shutting down. */
BRAID_API void braid_kv_wait(braid_kv* kv);

typedef enum braid_kv_state {
  BRAID_KV_DIRTY = 0,
  BRAID_KV_SEALED = 1,
  BRAID_KV_SYNCING = 2,
  BRAID_KV_SYNCED = 3,
  BRAID_KV_HOST_ONLY = 4,
  BRAID_KV_LOADING = 5,
  BRAID_KV_LOST = 6
} braid_kv_state;

typedef struct braid_kv_block {
  size_t struct_bytes; /* sizeof(braid_kv_block) */
  int state;           /* a braid_kv_state */
  uint32_t gpu_slot;   /* UINT32_MAX: none */
  uint32_t host_slot;
  uint32_t references;
  uint32_t users;
} braid_kv_block;

/* BRAID_ERROR_ARGUMENT if there is no such block. */
BRAID_API braid_status braid_kv_find(braid_kv* kv, uint64_t block, braid_kv_block* found);
/* The GPU slots of `count` blocks, for the block tables of a step: UINT32_MAX for a block that has
 * none. BRAID_ERROR_ARGUMENT if one of them is unknown; the slots of those before it are set. */
BRAID_API braid_status braid_kv_gpu_slots(braid_kv* kv, const uint64_t* blocks, size_t count,
                                          uint32_t* slots);
/* The host copy of a rank's share of a block, its segments one behind the other; NULL if there is
 * none, or if another process has it (braid_kv_worker_host_block). Valid until the block leaves
 * that slot. */
BRAID_API const void* braid_kv_host_block(braid_kv* kv, size_t rank, uint64_t block);

typedef struct braid_kv_statistics {
  size_t struct_bytes;  /* sizeof(braid_kv_statistics) */
  uint64_t block_bytes; /* of all ranks together: the unit of budgets */
  size_t blocks[7];     /* by braid_kv_state */
  uint32_t gpu_slots_free;
  uint32_t gpu_slots_fenced; /* no block has them; free once the work that touches them has ended */
  uint32_t host_slots_free;
  uint32_t host_slots_fenced;
  uint64_t accelerated_bytes; /* by an engine over several links, or by BRAID_KV_BY_KERNEL's
                                 kernels; with BRAID_KV_BY_COPY_ENGINES by the relays alone. 0
                                 without an engine, if no kernel moves the blocks */
  uint64_t native_bytes;      /* what an engine, or BRAID_KV_BY_KERNEL, has left to the driver; with
                                 BRAID_KV_BY_COPY_ENGINES over the GPU's own link */
} braid_kv_statistics;
BRAID_API braid_status braid_kv_get_statistics(braid_kv* kv, braid_kv_statistics* statistics);

/* ---- Ranks in processes of their own ----
 *
 * One process, the leader, has the braid_kv. Every other one has a braid_kv_worker: one rank, with
 * its GPU and its pinned memory. braid opens no connection: the engine carries the bytes, in the
 * messages that it exchanges with its workers at every step.
 *
 *   leader                                        worker
 *   braid_kv_give_report of each rank, poll
 *   submit, begin_step, create, SEAL ...
 *   braid_kv_take_commands  ------------------->  braid_kv_worker_apply
 *   braid_kv_end_step                             (launches the step), braid_kv_worker_end_step
 *                           <-------------------  braid_kv_worker_report
 *
 * Commands are numbered. A worker carries out each number once, in order, and refuses what was
 * lost, doubled, cut short, changed or meant for another rank: BRAID_ERROR_ARGUMENT, and nothing
 * was done. Reports hold all that a worker has done, so the latest is enough, and an older one is
 * ignored. A worker may report at any time, for copies that go on after the last step.
 *
 * A copy has landed when it has on every rank, and has failed when it has on one
 * (braid_kv_report). Leader and workers are opened with the same slots and block sizes; where the
 * segments lie on the GPU may differ. A worker serves one leader, and cannot be replaced: the group
 * ends with it. */

/* What the rank's worker is to apply before it launches the step; 0 bytes: nothing, send nothing.
 * With a step open, call it once for each remote rank, after the step's last submit, create and
 * REOPEN, and before end_step. end_step fails without it, and the others fail between it and
 * end_step: BRAID_ERROR_ARGUMENT (of REOPEN: BRAID_KV_FAILED), and nothing was done. Valid until
 * the next call for this rank. */
BRAID_API braid_status braid_kv_take_commands(braid_kv* kv, size_t rank, const void** bytes,
                                              size_t* size_bytes);
/* Bytes from braid_kv_worker_report. The next braid_kv_poll knows them. */
BRAID_API braid_status braid_kv_give_report(braid_kv* kv, size_t rank, const void* bytes,
                                            size_t size_bytes);

typedef struct braid_kv_worker braid_kv_worker;

/* `options` has one rank; `rank` is its number in the group. Pins its host memory. Ownership,
 * threads and fork: as for a braid_kv. On failure *worker is NULL. */
BRAID_API braid_status braid_kv_worker_open(const braid_kv_options* options, uint32_t rank,
                                            braid_kv_worker** worker);
/* Waits as braid_kv_close does. NULL is allowed. */
BRAID_API void braid_kv_worker_close(braid_kv_worker* worker);

typedef struct braid_kv_applied {
  size_t struct_bytes;   /* sizeof(braid_kv_applied) */
  uint64_t step;         /* launch it, then call braid_kv_worker_end_step; 0: there is none */
  size_t failed_batches; /* copies that the driver has refused: the leader's poll lists the blocks.
                            Launch the step all the same */
} braid_kv_applied;

/* Enqueues the copies, and orders the compute stream behind what the step needs. Never blocks.
 * BRAID_ERROR_CUDA: the driver has not ordered the stream, or the context has failed. Then the step
 * must not be launched, the worker does nothing any more, and its report says so. */
BRAID_API braid_status braid_kv_worker_apply(braid_kv_worker* worker, const void* bytes,
                                             size_t size_bytes, braid_kv_applied* applied);
/* Call it when all of the step is in the compute stream. After a failure, call it again. */
BRAID_API braid_status braid_kv_worker_end_step(braid_kv_worker* worker);
/* How far the rank has come, and what has failed. Never blocks. Valid until the next call. */
BRAID_API braid_status braid_kv_worker_report(braid_kv_worker* worker, const void** bytes,
                                              size_t* size_bytes);
/* Waits until every copy that is under way has ended: for shutting down. */
BRAID_API void braid_kv_worker_wait(braid_kv_worker* worker);
/* The rank's share of the block that has this host slot (braid_kv_find, in the leader); NULL: there
 * is no such slot. */
BRAID_API const void* braid_kv_worker_host_block(braid_kv_worker* worker, uint32_t host_slot);

/* The cause of this thread's latest failed call, and the remedy; "" if no call has failed. */
BRAID_API const char* braid_kv_last_error(void);
/* The CUresult of that failure; 0 if the driver did not cause it. */
BRAID_API int braid_kv_last_cuda_error(void);

#ifdef __cplusplus
}
#endif
