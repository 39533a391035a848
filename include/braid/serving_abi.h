/* Which requests of an LLM server run: SuperInfer's RotaSched and other scheduling policies, as a C
 * interface. C++ programs start at serving.h, which is a thin layer over this file. Library:
 * libbraid_serving.so, which needs no GPU and no driver.
 *
 * Between two steps of the model an engine describes its requests, and a policy answers which to
 * preempt and which to admit. A policy is a pure function: it has no clock, no thread, and no
 * memory of earlier calls, and the order of the requests in the list does not matter.
 * docs/serving.md describes each policy, and its results in simulation. Source: SuperInfer, section
 * 4.2.2 (the lag of a request) and section 4.2.3 (Algorithm 1).
 *   braid_serving_parameters parameters;
 *   braid_serving_default_parameters(&parameters);
 *   braid_serving_policy* policy;
 *   if (braid_serving_open("braid", &parameters, &policy) != BRAID_OK)
 *     return fail(braid_serving_last_error());
 *   each step: braid_serving_decide(policy, &view, preempt, admit, &decision);
 *   braid_serving_close(policy);
 *
 * What to do with an answer: preempt the requests named, then give the running ones the blocks they
 * grow by, then admit the requests named, in their order. Stop at the first that finds too few free
 * blocks; it keeps its state. No request is in both lists.
 *
 * Units: times are microseconds since any fixed moment, sizes are bytes, a block is the unit of KV
 * cache. Threads: any number of threads may use a policy at once. Ownership: braid_serving_close
 * frees what braid_serving_open gave; the caller owns all else. Errors: every function that can
 * fail returns a braid_status (braid.h), and braid_serving_last_error has the message of this
 * thread's last failure. A call that fails has done nothing. C11 and C++. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "braid/braid.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct braid_serving_policy braid_serving_policy;

typedef struct braid_serving_parameters {
  size_t struct_bytes;      /* sizeof(braid_serving_parameters) */
  double alpha;             /* weight of lag between tokens against lag before the first: 0 to
                               1e9 */
  double beta_tbt;          /* beta_B: share of the TBT objective that is tolerated: -1e9 to 1e9 */
  double beta_ttft;         /* beta_F: share of the TTFT objective that is tolerated: likewise */
  uint32_t transfer_blocks; /* `paper`: B_xfer */
  int late_only;            /* `braid`: only late requests preempt others */
} braid_serving_parameters;

/* Fills in the parameters of SuperInfer, section 5.2. */
BRAID_API void braid_serving_default_parameters(braid_serving_parameters* parameters);

/* The name of policy `index`: "paper", "braid", ...; NULL after the last. */
BRAID_API const char* braid_serving_policy_name(size_t index);

/* `parameters` may be NULL: the defaults. On failure *policy is NULL. */
BRAID_API braid_status braid_serving_open(const char* name,
                                          const braid_serving_parameters* parameters,
                                          braid_serving_policy** policy);
BRAID_API void braid_serving_close(braid_serving_policy* policy);
/* 1: the KV cache of a preempted request stays on the host. 0: it is computed again. With neo-like,
 * a preempted request continues from there if the engine's CPU can compute attention over it. */
BRAID_API int braid_serving_keeps(const braid_serving_policy* policy);

typedef enum braid_serving_state {
  BRAID_SERVING_WAITING = 0, /* nothing on the GPU: new, or to be computed again */
  BRAID_SERVING_RUNNING = 1,
  BRAID_SERVING_ROTARY = 2, /* paused, its KV cache on the host */
  BRAID_SERVING_LOADING = 3 /* on its way back; its blocks are taken */
} braid_serving_state;

#define BRAID_SERVING_NO_TOKEN INT64_MIN
/* All times lie between -this and this. As an objective it means: none. */
#define BRAID_SERVING_TIME_MAX_US (INT64_C(1) << 60)

typedef struct braid_serving_request {
  uint64_t id;               /* unique in this view */
  int state;                 /* a braid_serving_state */
  uint32_t priority;         /* of its class, 0 to 255; the lowest number is served first */
  int64_t ttft_objective_us; /* from arrival to the first token */
  int64_t tbt_objective_us;  /* from one token to the next */
  int64_t arrival_us;
  int64_t last_token_us;     /* BRAID_SERVING_NO_TOKEN before the first */
  int64_t running_since_us;  /* running */
  uint32_t blocks;           /* waiting, rotary: blocks that admitting takes; running: blocks that
                                it has */
  uint32_t growth_blocks;    /* running: further blocks that the next step needs */
  uint32_t load_blocks;      /* blocks to come from the host before it runs */
  uint32_t freed_blocks;     /* running: blocks that preempting frees; shared blocks stay */
  uint32_t save_blocks;      /* running: blocks of which the host has no copy */
  uint32_t context_tokens;   /* prompt and generated */
  uint32_t generated_tokens; /* the generated part of context_tokens */
  uint32_t output_tokens;    /* the final number of generated tokens, for sjf_oracle; or 0 */
  uint32_t expected_tokens;  /* a guess of output_tokens, for lightllm-like; or 0 */
  double length_rank;        /* a rank by output_tokens, for ltr-like; or 0 */
} braid_serving_request;

typedef struct braid_serving_view {
  size_t struct_bytes; /* sizeof(braid_serving_view) */
  int64_t now_us;
  int64_t step_us;       /* how long the next step is expected to take */
  uint32_t total_blocks; /* on the GPU; a request of more, with its growth, is refused by its id */
  uint32_t free_blocks;
  uint32_t host_free_blocks;
  uint32_t max_running; /* running and loading */
  uint64_t block_bytes; /* at least 1 */
  uint64_t load_bytes;  /* bytes that can come from the host by the end of the next step */
  uint64_t save_bytes;  /* bytes that can go there by then */
  const braid_serving_request* requests;
  size_t request_count;
  uint32_t block_tokens; /* tokens that a block holds, at least 1 */
} braid_serving_view;

typedef struct braid_serving_decision {
  size_t preempt_count;
  size_t admit_count;
  uint64_t load_bytes; /* bytes to load for the admitted requests */
  uint64_t save_bytes; /* bytes to save for the preempted requests */
} braid_serving_decision;

/* `preempt` and `admit` have room for request_count ids each. */
BRAID_API braid_status braid_serving_decide(const braid_serving_policy* policy,
                                            const braid_serving_view* view, uint64_t* preempt,
                                            uint64_t* admit, braid_serving_decision* decision);

/* The message of this thread's last failed call; valid until the next failure. */
BRAID_API const char* braid_serving_last_error(void);

#ifdef __cplusplus
}
#endif
