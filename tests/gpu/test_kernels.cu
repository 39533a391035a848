// Kernels that keep a GPU, or one stream of it, busy for a test.

/// Holds its thread block until the host, or another stream, writes a value other than 0.
extern "C" __global__ void hold_until(const volatile unsigned* word) {
  while (*word == 0) __nanosleep(1000);
}

/// Ends its context with a sticky error.
extern "C" __global__ void fault() { *reinterpret_cast<volatile unsigned*>(0) = 0; }

/// Reads every byte as a program's kernel would: the sum of all words.
extern "C" __global__ void sum_words(const unsigned* words, unsigned long long count,
                                     unsigned long long* sum) {
  unsigned long long mine = 0;
  for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < count;
       i += 1ull * gridDim.x * blockDim.x)
    mine += words[i];
  atomicAdd(sum, mine);
}
