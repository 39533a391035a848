/* braid for programs that link it, as a C interface: copies between host memory and a GPU that
 * travel over every PCIe link of the server. C++ programs start at copy.h, which is a thin layer
 * over this file; other languages load libbraid.so.0 and call these functions (examples/kv_cache.py
 * does so with ctypes).
 *
 * A copy here does what cuMemcpyAsync and cuMemcpyBatchAsync do: the call enqueues it in `stream`,
 * in stream order, and returns. The driver makes the copies that braid cannot speed up, at the same
 * place in the stream. So a call that returns BRAID_OK has enqueued the copy in either case. A
 * braid_outcome says how the copy travels.
 *
 * Ownership: an engine belongs to the caller, from braid_open to braid_close. The caller owns the
 * memory that a copy names, keeps it alive, and leaves its source unchanged until the stream has
 * passed the copy. cuMemFreeAsync on that stream may follow at once, since the call has enqueued
 * all work that names the memory. Lists (of addresses, sizes, options) are read during the call
 * only.
 *
 * Threads: any thread may call any function at any time, except while braid_close runs. No call
 * changes the context that is current in the calling thread.
 *
 * Blocking: braid_open, braid_close, braid_prepare and braid_forget_context may allocate and block.
 * A copy does so only where cuMemcpyAsync does (pageable host memory), and when it is the first
 * copy to a context that braid has not seen (braid_prepare). A batch is sorted in memory that its
 * thread keeps; that memory grows to the size of the largest batch.
 *
 * Errors: every function that can fail returns a braid_status. braid_last_error returns the
 * message, braid_last_cuda_error the CUresult. A copy that fails with BRAID_ERROR_ARGUMENT has done
 * nothing. With BRAID_ERROR_CUDA, part of a batch may be in the stream already, as with
 * cuMemcpyBatchAsync. A kernel that faults later is a sticky CUDA error, as usual.
 *
 * Units: sizes are bytes.
 *
 * Streams: a CUstream or a cudaStream_t; both are the same type. NULL and CU_STREAM_LEGACY name the
 * legacy default stream of the current context, CU_STREAM_PER_THREAD names this thread's. In a
 * stream that is recording a graph, the driver makes the copies.
 *
 * Under `braid run` a process has one engine, the interposer's. These functions then use that
 * engine: its report counts the copies, and the options are those of `braid run`.
 *
 * Fork: an engine cannot be used in a child process, as CUDA cannot; do not close it there.
 *
 * ABI: structs begin with their own size, so that later versions may add fields at their ends.
 *
 * Source: MMA sections 3.2 to 3.4, as docs/architecture.md maps them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BRAID_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* CUstream and cudaStream_t point to it */
struct CUctx_st;    /* CUcontext points to it */

typedef struct braid_engine braid_engine;

typedef enum braid_status {
  BRAID_OK = 0,
  BRAID_ERROR_ARGUMENT = 1,    /* the call's own arguments; nothing was done */
  BRAID_ERROR_OPTION = 2,      /* an option, given or from the environment */
  BRAID_ERROR_UNAVAILABLE = 3, /* it cannot be done here or now: no CUDA driver, no network, no
                                  buffer at the peer, an engine that is closing or belongs to the
                                  parent process */
  BRAID_ERROR_CUDA = 4,        /* the driver refused: braid_last_cuda_error */
  BRAID_ERROR_MEMORY = 5,      /* no host memory for braid's own lists */
  BRAID_ERROR_PEER = 6,        /* the peer is lost, or was disconnected: fabric, KV caches */
  BRAID_ERROR_REGION = 7       /* the fabric: the network or the driver refuses this memory */
} braid_status;

/* Which batch goes first where batches meet: an urgent one (a fetch that a user waits for)
 * overtakes a bulk one (an offload, a model load) at the next slice. Only the kernel mover uses the
 * priority; copy engines, which carry single copies unless BRAID_MOVER=kernel, ignore it. Copies of
 * one stream keep their order. Functions take it as an int; any other value is
 * BRAID_ERROR_ARGUMENT. */
typedef enum braid_priority { BRAID_PRIORITY_BULK = 0, BRAID_PRIORITY_URGENT = 1 } braid_priority;

/* One row of docs/options.md, with its value as text: {"BRAID_THRESHOLD", "2M"}. */
typedef struct braid_option {
  const char* name;
  const char* value;
} braid_option;

typedef struct braid_options {
  size_t struct_bytes;         /* sizeof(braid_options) */
  const braid_option* options; /* an option that is not listed comes from the environment, or is
                                  its default. Under `braid run` the list is checked, but only
                                  BRAID_OPENING has an effect */
  size_t count;
} braid_options;

/* How a call's copies travel. A part of a batch is native when its memory or its stream is of a
 * kind that braid does not carry; all other parts are accelerated. */
typedef struct braid_outcome {
  size_t struct_bytes;        /* sizeof(braid_outcome), set by the caller */
  uint64_t accelerated_bytes; /* over several paths, or staged */
  uint64_t native_bytes;      /* by the driver */
  const char* reason;         /* "accelerated", or why the first native part is native:
                                 "below_threshold", "not_linear", ... the keys of the statistics;
                                 "staged" when nothing is native and pageable memory went through
                                 pinned buffers. Never freed. Zero bytes are "accelerated" */
} braid_outcome;

/* One path of a copy between host memory and a GPU, as the engine would plan it. */
typedef struct braid_path {
  int gpu;             /* whose PCIe link: that of the GPU itself, or of another one, a relay */
  uint64_t size_bytes; /* what it would carry of the copy */
  double pcie_gbps;    /* what the cost model expects of that link, 10^9 bytes a second */
  double nvlink_gbps;  /* and of NVLink between the relay and the GPU; 0: this is its own link */
} braid_path;

/* Opens an engine: a context of its own on each GPU that may relay, with kernels, streams and
 * buffers. A context takes about 270 MiB of device memory, the buffers BRAID_DEVICE_MEMORY (64 MiB
 * by default). Starts CUDA if the program has not. If `options` is NULL, all options, statistics
 * and the log come from the environment, as for `braid run`. On a server where there is nothing to
 * gain (one GPU, no peers) opening succeeds, and all copies are native. Several engines may be open
 * in a process: each costs its own contexts, buffers and opening, and their copies share the links.
 * Under `braid run` all are the interposer's one engine. On failure *engine is NULL.
 *
 * Returns when the relays are open. That takes tenths of a second, or seconds if many processes
 * start at once. With {"BRAID_OPENING", "background"} it returns at once, and copies are native
 * ("not_ready") until the relays are open. */
BRAID_API braid_status braid_open(const braid_options* options, braid_engine** engine);

/* Waits for the copies in flight and releases everything. NULL is allowed. */
BRAID_API void braid_close(braid_engine* engine);

/* Prepares the engine for the current context, and for each primary context that has become active
 * since the last call. Without it, the first copy in a new context prepares that context, and may
 * block. braid retains a primary context until braid_forget_context or braid_close.
 *
 * Relays can reach the driver's default pools (cuMemAllocAsync) from braid_open on. A range that
 * the program maps, or a pool that it makes, takes every path once the program gives the other GPUs
 * access by cuMemSetAccess or cuMemPoolSetAccess. Until then its copies take only the permitted
 * paths. */
BRAID_API braid_status braid_prepare(braid_engine* engine);

/* Call before `context` is destroyed or reset: braid stops using it. */
BRAID_API braid_status braid_forget_context(braid_engine* engine, struct CUctx_st* context);

/* Copies `size_bytes` from `source` to `destination`. Each is host or device memory; a CUdeviceptr
 * is passed as a pointer. `outcome` may be NULL in all functions. */
BRAID_API braid_status braid_copy(braid_engine* engine, void* destination, const void* source,
                                  size_t size_bytes, struct CUstream_st* stream, int priority,
                                  braid_outcome* outcome);

/* Copies rows that lie apart, as cuMemcpy2DAsync does. `..._pitch_bytes` is the distance between
 * the starts of two rows. The driver copies rows of less than 8 KiB that do not touch. */
BRAID_API braid_status braid_copy_rows(braid_engine* engine, void* destination,
                                       size_t destination_pitch_bytes, const void* source,
                                       size_t source_pitch_bytes, size_t row_bytes,
                                       size_t row_count, struct CUstream_st* stream, int priority,
                                       braid_outcome* outcome);

/* Copies a batch in no particular order. No two copies of it may share a destination byte:
 * BRAID_ERROR_ARGUMENT. Directions and GPUs may be mixed. */
BRAID_API braid_status braid_copy_batch(braid_engine* engine, void* const* destinations,
                                        const void* const* sources, const size_t* sizes_bytes,
                                        size_t count, struct CUstream_st* stream, int priority,
                                        braid_outcome* outcome);

/* The same, with no kernel of braid's on the GPU whose memory is copied: for copies beside kernels
 * that need every multiprocessor there. Copy engines carry a part of the batch over that GPU's own
 * link, and kernels on the relays carry the rest over theirs. How much is decided beforehand, so
 * the slower of the two ends the batch. The own link's part costs the caller as much as it does in
 * cuMemcpyBatchAsync. A relay that is busy with other kernels holds the batch up, and is left out
 * of later ones for a while. `outcome`: accelerated_bytes is the relays' part, native_bytes what
 * the driver carries, and the reason that of the whole batch. */
BRAID_API braid_status braid_copy_batch_sparing(braid_engine* engine, void* const* destinations,
                                                const void* const* sources,
                                                const size_t* sizes_bytes, size_t count,
                                                struct CUstream_st* stream, int priority,
                                                braid_outcome* outcome);

/* Copies many pieces into one range, one behind the other: the blocks of a KV cache into a
 * tensor. */
BRAID_API braid_status braid_gather(braid_engine* engine, void* destination,
                                    const void* const* sources, const size_t* sizes_bytes,
                                    size_t count, struct CUstream_st* stream, int priority,
                                    braid_outcome* outcome);

/* Copies one range into many pieces, the reverse of braid_gather. */
BRAID_API braid_status braid_scatter(braid_engine* engine, void* const* destinations,
                                     const void* source, const size_t* sizes_bytes, size_t count,
                                     struct CUstream_st* stream, int priority,
                                     braid_outcome* outcome);

/* Would these copies be accelerated? Fills `outcome` as braid_copy_batch would now, and enqueues
 * nothing. One copy is a batch of one. The forecast does not include effects of load
 * ("saturated"). */
BRAID_API braid_status braid_forecast(braid_engine* engine, void* const* destinations,
                                      const void* const* sources, const size_t* sizes_bytes,
                                      size_t count, struct CUstream_st* stream, int priority,
                                      braid_outcome* outcome);

/* The paths that one copy of plain device memory (cuMemAlloc) and pinned host memory would take
 * now, from the host to the GPU with this ordinal or (`to_device` 0) from it: its own link first.
 * Only that one: the copy would be native. None: the engine knows nothing, since its relays are not
 * open, the GPU has none, or nothing was prepared there. *count is their number, of which at most
 * `capacity` are written. Makes no driver call, and needs no current context. */
BRAID_API braid_status braid_paths(braid_engine* engine, int gpu, int to_device, size_t size_bytes,
                                   braid_path* paths, size_t capacity, size_t* count);

/* Writes what braid has done in this process as one line of JSON, in the shape of BRAID_STATS=json.
 * Its entry points are the functions of this file; "problems" lists what this engine could not
 * prepare, and what has failed since. Waits up to 100 ms for copies in flight. *needed_bytes, which
 * may be NULL, is the size of the text with its final NUL. A buffer that is too small is
 * BRAID_ERROR_ARGUMENT; NULL with 0 bytes asks for the size only. */
BRAID_API braid_status braid_stats_json(braid_engine* engine, char* buffer, size_t buffer_bytes,
                                        size_t* needed_bytes);

/* The cause of this thread's latest failure, and the remedy; "" if no call has failed. Valid until
 * this thread's next failure. */
BRAID_API const char* braid_last_error(void);

/* The CUresult of that failure, for cuGetErrorName; 0 if the driver did not cause it. */
BRAID_API int braid_last_cuda_error(void);

/* "ok", "argument", ...; "unknown" for a number that is not a braid_status. Never freed. */
BRAID_API const char* braid_status_name(int status);

/* "0.1.0", of the library that is loaded. Never freed. */
BRAID_API const char* braid_version(void);

#ifdef __cplusplus
}
#endif
