/* braid for programs that link it, as a C interface: copies between host memory and a GPU that
 * travel over every PCIe link of the server. C++ programs start at copy.h, which is a thin layer
 * over this file; other languages load libbraid.so.0 and call these functions (examples/kv_cache.py
 * does so with ctypes).
 *
 * A copy here is what cuMemcpyAsync and cuMemcpyBatchAsync do: it is put into `stream`, in its
 * order, and the call returns. Copies that braid cannot speed up are made by the driver instead, in
 * the same place of the stream, so a call that returns BRAID_OK has put the copy there, whichever
 * way it goes. A braid_outcome says which way that was.
 *
 * Ownership: an engine belongs to the caller, from braid_open to braid_close. Memory that a copy
 * names is the caller's, who keeps it alive, and its source unchanged, until the stream has passed
 * the copy. cuMemFreeAsync on that stream may follow at once, since a copy's call has enqueued all
 * that names the memory. Lists (of addresses, sizes, options) are read during the call only.
 *
 * Threads: every function may be called from any thread at once, but nothing beside braid_close.
 * The context that is current in the calling thread is never changed.
 *
 * Blocking: braid_open, braid_close, braid_prepare and braid_forget_context may allocate and block.
 * A copy does neither, except where cuMemcpyAsync does (pageable host memory), and except the first
 * one to a context that braid has not seen: see braid_prepare. A batch is sorted out in memory that
 * its thread keeps, which grows to the largest batch.
 *
 * Errors: every function that can fail returns a braid_status. braid_last_error has the words, and
 * braid_last_cuda_error the CUresult.
 * A copy that fails with BRAID_ERROR_ARGUMENT has done nothing; with BRAID_ERROR_CUDA, some of a
 * batch may be in the stream already, as with cuMemcpyBatchAsync. Kernels that fault later are
 * CUDA's sticky errors, as ever.
 *
 * Units: sizes are bytes.
 *
 * Streams: a CUstream or cudaStream_t, which are one type. NULL and CU_STREAM_LEGACY are the legacy
 * default stream of the current context, CU_STREAM_PER_THREAD is this thread's. A stream that is
 * recording a graph gets the driver's copies.
 *
 * Under `braid run` a process has one engine, the interposer's: these functions are then that
 * library's, copies are counted in its report, and the options are those of `braid run`.
 *
 * Fork: as CUDA itself, an engine is of no use in a child process; do not close it there.
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
  BRAID_ERROR_UNAVAILABLE = 3, /* no CUDA driver, or GPUs that could not be prepared */
  BRAID_ERROR_CUDA = 4,        /* the driver refused: braid_last_cuda_error */
  BRAID_ERROR_MEMORY = 5,      /* no host memory for braid's own lists */
  BRAID_ERROR_PEER = 6,        /* the fabric: the peer is lost, or was disconnected */
  BRAID_ERROR_REGION = 7       /* the fabric: the network or the driver refuses this memory */
} braid_status;

/* Who goes first where batches meet: an urgent one (a fetch that a user waits for) overtakes a bulk
 * one (an offload, a model load) at the next slice. It makes no difference to what copy engines
 * carry: single copies, unless BRAID_MOVER=kernel. Copies of one stream keep their order. Functions
 * take it as an int, and say so if it is neither. */
typedef enum braid_priority { BRAID_PRIORITY_BULK = 0, BRAID_PRIORITY_URGENT = 1 } braid_priority;

/* One row of docs/options.md with a text: {"BRAID_THRESHOLD", "2M"}. */
typedef struct braid_option {
  const char* name;
  const char* value;
} braid_option;

typedef struct braid_options {
  size_t struct_bytes;         /* sizeof(braid_options) */
  const braid_option* options; /* what is not listed comes from the environment, or its default */
  size_t count;                /* under `braid run` the list is read, and has no effect but for
                                  BRAID_OPENING */
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

/* Opens an engine: a context of its own on each GPU that may relay, with kernels, streams and
 * buffers (about 270 MiB of device memory for the context, and BRAID_DEVICE_MEMORY for buffers, 64
 * MiB if nothing else is said). Starts CUDA if the program has not. `options` may be NULL: all from
 * the environment, as for `braid run`, with its statistics and its log. A server where there is
 * nothing to gain (one GPU, no peers) is no error: copies are then native. One engine serves a
 * process. On failure *engine is NULL.
 *
 * Returns when the relays are open, which takes tenths of a second, and seconds where many
 * processes start at once. With {"BRAID_OPENING", "background"} it returns at once, and copies are
 * native until then ("not_ready"). */
BRAID_API braid_status braid_open(const braid_options* options, braid_engine** engine);

/* Waits for the copies in flight and gives everything back. NULL is allowed. */
BRAID_API void braid_close(braid_engine* engine);

/* Makes the current context, and each primary context that has become active since, known to the
 * engine. Without it, the first copy that names memory of a new context does so, and may block.
 *
 * Relays reach the driver's default pools (cuMemAllocAsync) from braid_open on. Ranges that a
 * program maps, and pools that it makes, take every path once it gives the other GPUs access with
 * cuMemSetAccess or cuMemPoolSetAccess; until then their copies take the paths they may. */
BRAID_API braid_status braid_prepare(braid_engine* engine);

/* Call before `context` is destroyed or reset: braid stops using it. */
BRAID_API braid_status braid_forget_context(braid_engine* engine, struct CUctx_st* context);

/* Copies `size_bytes` from `source` to `destination`, each host or device memory: a CUdeviceptr is
 * passed as a pointer. `outcome` may be NULL, here and below. */
BRAID_API braid_status braid_copy(braid_engine* engine, void* destination, const void* source,
                                  size_t size_bytes, struct CUstream_st* stream, int priority,
                                  braid_outcome* outcome);

/* Rows that lie apart, as cuMemcpy2DAsync copies them: from the start of one row to that of the
 * next are `..._pitch_bytes`. Rows of less than 8 KB that do not touch are the driver's. */
BRAID_API braid_status braid_copy_rows(braid_engine* engine, void* destination,
                                       size_t destination_pitch_bytes, const void* source,
                                       size_t source_pitch_bytes, size_t row_bytes,
                                       size_t row_count, struct CUstream_st* stream, int priority,
                                       braid_outcome* outcome);

/* Copies of one batch have no order among each other, so no byte of a destination may be in two of
 * them: BRAID_ERROR_ARGUMENT. Directions and GPUs may be mixed. */
BRAID_API braid_status braid_copy_batch(braid_engine* engine, void* const* destinations,
                                        const void* const* sources, const size_t* sizes_bytes,
                                        size_t count, struct CUstream_st* stream, int priority,
                                        braid_outcome* outcome);

/* Many pieces into one range, one behind the other: the blocks of a KV cache into a tensor. */
BRAID_API braid_status braid_gather(braid_engine* engine, void* destination,
                                    const void* const* sources, const size_t* sizes_bytes,
                                    size_t count, struct CUstream_st* stream, int priority,
                                    braid_outcome* outcome);

/* One range into many pieces, the reverse. */
BRAID_API braid_status braid_scatter(braid_engine* engine, void* const* destinations,
                                     const void* source, const size_t* sizes_bytes, size_t count,
                                     struct CUstream_st* stream, int priority,
                                     braid_outcome* outcome);

/* Would these copies be accelerated? Fills `outcome` as braid_copy_batch would now, and puts
 * nothing into the stream. One copy is a batch of one. What depends on how much is under way
 * ("saturated") is not foreseen. */
BRAID_API braid_status braid_forecast(braid_engine* engine, void* const* destinations,
                                      const void* const* sources, const size_t* sizes_bytes,
                                      size_t count, struct CUstream_st* stream, int priority,
                                      braid_outcome* outcome);

/* What braid has done in this process, as one line of JSON in the shape of BRAID_STATS=json, with
 * the functions of this file as entry points, and what this engine could not prepare, or has failed
 * since, as "problems". Waits up to 100 ms for copies in flight. *needed_bytes, which may be NULL,
 * is the text's size with its final NUL. A buffer that is too small is BRAID_ERROR_ARGUMENT, but
 * NULL with 0 bytes asks for the size only. */
BRAID_API braid_status braid_stats_json(braid_engine* engine, char* buffer, size_t buffer_bytes,
                                        size_t* needed_bytes);

/* What the latest failed call of this thread failed of, and what can be done; "" when none has.
 * Good until this thread's next failure. */
BRAID_API const char* braid_last_error(void);

/* The CUresult of that failure, for cuGetErrorName; 0 when it was not the driver that refused. */
BRAID_API int braid_last_cuda_error(void);

/* "ok", "argument", ...; "unknown" for what is no status. Never freed. */
BRAID_API const char* braid_status_name(int status);

/* "0.1.0", of the library that is loaded. Never freed. */
BRAID_API const char* braid_version(void);

#ifdef __cplusplus
}
#endif
