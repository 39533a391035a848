/* braid from C, as a KV cache uses it: blocks of 64 KB that lie scattered in pinned host memory are
 * gathered into one tensor on the GPU, and scattered again to other places. Timed with events,
 * every byte verified.
 *
 *   batch [BLOCKS]
 */
#include <braid/braid.h>
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlockBytes = 64 << 10 };

static void check(CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "batch: %s: error %d\n", doing, (int)result);
  exit(1);
}
#define CHECK(call) check(call, #call)

static void check_braid(braid_status status, const char* doing) {
  if (status == BRAID_OK) return;
  fprintf(stderr, "batch: %s: %s\n", doing, braid_last_error());
  exit(1);
}
#define CHECK_BRAID(call) check_braid(call, #call)

/* Every block of the cache, in an order that jumps: 7 shares no factor with a power of two. */
static size_t place(size_t block, size_t blocks) { return block * 7 % blocks; }

static uint64_t word(size_t block, size_t index) {
  return (block * kBlockBytes + index + 1) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t* block_words, size_t block) {
  for (size_t index = 0; index < kBlockBytes / sizeof(uint64_t); ++index)
    block_words[index] = word(block, index);
}

static void verify(const uint64_t* block_words, size_t block) {
  for (size_t index = 0; index < kBlockBytes / sizeof(uint64_t); ++index)
    if (block_words[index] != word(block, index)) {
      fprintf(stderr, "batch: wrong bytes in block %zu\n", block);
      exit(1);
    }
}

static void report(const char* name, CUevent begin, CUevent end, const braid_outcome* outcome) {
  const uint64_t size_bytes = outcome->accelerated_bytes + outcome->native_bytes;
  float elapsed_ms = 0;
  CHECK(cuEventSynchronize(end));
  CHECK(cuEventElapsedTime(&elapsed_ms, begin, end));
  printf("%s: %.1f GB/s, %llu bytes, %s\n", name, (double)size_bytes / 1e6 / elapsed_ms,
         (unsigned long long)size_bytes, outcome->reason);
}

struct cache {
  size_t blocks;
  char* host;         /* the pool: twice as many blocks as there are */
  CUdeviceptr device; /* the tensor */
  void** places;      /* of the blocks, in the order of the tensor */
  size_t* sizes_bytes;
};

static void in_half(struct cache* cache, size_t half) {
  for (size_t block = 0; block < cache->blocks; ++block)
    cache->places[block] =
        cache->host + (half * cache->blocks + place(block, cache->blocks)) * kBlockBytes;
}

static void there_and_back(braid_engine* engine, struct cache* cache) {
  braid_outcome outcome = {.struct_bytes = sizeof outcome};
  CUstream stream = NULL;
  CUevent begin = NULL, end = NULL;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));

  in_half(cache, 0);
  for (size_t block = 0; block < cache->blocks; ++block)
    fill((uint64_t*)cache->places[block], block);
  CHECK(cuEventRecord(begin, stream));
  CHECK_BRAID(braid_gather(engine, (void*)(uintptr_t)cache->device,
                           (const void* const*)cache->places, cache->sizes_bytes, cache->blocks,
                           stream, BRAID_PRIORITY_URGENT, &outcome));
  CHECK(cuEventRecord(end, stream));
  report("gather to the GPU", begin, end, &outcome);

  in_half(cache, 1);
  CHECK(cuEventRecord(begin, stream));
  CHECK_BRAID(braid_scatter(engine, cache->places, (const void*)(uintptr_t)cache->device,
                            cache->sizes_bytes, cache->blocks, stream, BRAID_PRIORITY_BULK,
                            &outcome));
  CHECK(cuEventRecord(end, stream));
  report("scatter from the GPU", begin, end, &outcome);
  for (size_t block = 0; block < cache->blocks; ++block)
    verify((const uint64_t*)cache->places[block], block);
  printf("%zu blocks verified\n", cache->blocks);

  CHECK(cuEventDestroy(begin));
  CHECK(cuEventDestroy(end));
  CHECK(cuStreamDestroy(stream));
}

static void open_cache(struct cache* cache, size_t blocks) {
  void* host = NULL;
  CHECK(cuMemHostAlloc(&host, 2 * blocks * kBlockBytes, CU_MEMHOSTALLOC_PORTABLE));
  CHECK(cuMemAlloc(&cache->device, blocks * kBlockBytes));
  memset(host, 0, 2 * blocks * kBlockBytes);
  cache->blocks = blocks;
  cache->host = host;
  cache->places = malloc(blocks * sizeof *cache->places);
  cache->sizes_bytes = malloc(blocks * sizeof *cache->sizes_bytes);
  if (cache->places == NULL || cache->sizes_bytes == NULL) exit(1);
  for (size_t block = 0; block < blocks; ++block) cache->sizes_bytes[block] = kBlockBytes;
}

static void close_cache(struct cache* cache) {
  CHECK(cuMemFree(cache->device));
  CHECK(cuMemFreeHost(cache->host));
  free(cache->places);
  free(cache->sizes_bytes);
}

int main(int argc, char** argv) {
  const size_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
  CUdevice gpu = 0;
  CUcontext context = NULL;
  braid_engine* engine = NULL;
  struct cache cache;
  if (blocks == 0 || blocks % 7 == 0) {
    fprintf(stderr, "usage: batch [BLOCKS], which 7 does not divide\n");
    return 2;
  }
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&gpu, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, gpu));
  CHECK(cuCtxSetCurrent(context));
  CHECK_BRAID(braid_open(NULL, &engine));
  open_cache(&cache, blocks);
  there_and_back(engine, &cache);
  braid_close(engine);
  close_cache(&cache);
  CHECK(cuDevicePrimaryCtxRelease(gpu));
  return 0;
}
