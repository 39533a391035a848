#!/usr/bin/env python3
"""braid from Python, with ctypes alone: blocks of a KV cache that has one tensor a layer on the GPU
are swapped out to pinned host memory and in again, each way as one batch. Timed with events, every
byte verified.

  kv_cache.py [LIBRARY]      libbraid.so.0 unless it is elsewhere
"""
import ctypes
import random
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p

LAYERS, BLOCKS, BLOCK_BYTES = 8, 128, 64 << 10
SWAPPED = 96  # blocks of each layer
BULK, URGENT = 0, 1


class Outcome(ctypes.Structure):
    """braid_outcome."""
    _fields_ = [("struct_bytes", c_size_t), ("accelerated_bytes", c_uint64),
                ("native_bytes", c_uint64), ("reason", c_char_p)]


class Braid:
    """One engine, with the options of the environment."""

    def __init__(self, path):
        self._library = library = ctypes.CDLL(path)
        library.braid_open.argtypes = [c_void_p, POINTER(c_void_p)]
        library.braid_close.argtypes = [c_void_p]
        library.braid_close.restype = None
        library.braid_copy_batch.argtypes = [
            c_void_p, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_void_p,
            c_int, POINTER(Outcome)]
        library.braid_last_error.restype = c_char_p
        self._engine = c_void_p()
        self._check(library.braid_open(None, byref(self._engine)))

    def _check(self, status):
        if status:
            raise RuntimeError(self._library.braid_last_error().decode())

    def copy_batch(self, pairs, size_bytes, stream, priority=BULK):
        """Copies (destination, source) pairs of addresses, `size_bytes` each."""
        count = len(pairs)
        destinations = (c_void_p * count)(*[pair[0] for pair in pairs])
        sources = (c_void_p * count)(*[pair[1] for pair in pairs])
        sizes = (c_size_t * count)(*[size_bytes] * count)
        outcome = Outcome(struct_bytes=ctypes.sizeof(Outcome))
        self._check(self._library.braid_copy_batch(self._engine, destinations, sources, sizes,
                                                   count, stream, priority, byref(outcome)))
        return outcome

    def close(self):
        self._library.braid_close(self._engine)


class Cuda:
    """The few driver calls that the example needs."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        gpu, context = c_int(), c_void_p()
        self.call("cuDeviceGet", byref(gpu), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), gpu)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: error {result}")

    def made(self, name, *arguments):
        """What a call writes through its first argument."""
        place = c_void_p()
        self.call(name, byref(place), *arguments)
        return place

    def pinned(self, size_bytes):
        return self.made("cuMemHostAlloc", c_size_t(size_bytes), 1).value

    def device(self, size_bytes):
        return self.made("cuMemAlloc_v2", c_size_t(size_bytes)).value

    def fill(self, device_memory, content):
        """From pageable memory the call may return before the bytes are there, and a stream that is made with
        CU_STREAM_NON_BLOCKING does not wait for them."""
        for device, data in zip(device_memory, content):
            self.call("cuMemcpyHtoD_v2", c_void_p(device), data, c_size_t(len(data)))
        self.call("cuCtxSynchronize")

    def to_host(self, device, size_bytes):
        data = ctypes.create_string_buffer(size_bytes)
        self.call("cuMemcpyDtoH_v2", data, c_void_p(device), c_size_t(size_bytes))
        return data.raw


def timed(cuda, name, stream, copy):
    begin, end = cuda.made("cuEventCreate", 0), cuda.made("cuEventCreate", 0)
    cuda.call("cuEventRecord", begin, stream)
    outcome = copy()
    cuda.call("cuEventRecord", end, stream)
    cuda.call("cuStreamSynchronize", stream)
    elapsed_ms = c_float()
    cuda.call("cuEventElapsedTime", byref(elapsed_ms), begin, end)
    size_bytes = outcome.accelerated_bytes + outcome.native_bytes
    print(f"{name}: {size_bytes / 1e6 / elapsed_ms.value:.1f} GB/s, {size_bytes} bytes, "
          f"{outcome.reason.decode()}")


def main(library="libbraid.so.0"):
    cuda, generator = Cuda(), random.Random(1)
    braid = Braid(library)
    stream = cuda.made("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
    layers = [cuda.device(BLOCKS * BLOCK_BYTES) for _ in range(LAYERS)]
    content = [generator.randbytes(BLOCKS * BLOCK_BYTES) for _ in layers]
    cuda.fill(layers, content)

    # A block has the same number in every layer, and some place in the host's pool.
    blocks = generator.sample(range(BLOCKS), SWAPPED)
    pool = cuda.pinned(LAYERS * SWAPPED * BLOCK_BYTES)
    places = generator.sample(range(LAYERS * SWAPPED), LAYERS * SWAPPED)
    pairs = [(pool + place * BLOCK_BYTES, layer + block * BLOCK_BYTES)
             for place, (layer, block) in zip(places, ((layer, block) for block in blocks
                                                       for layer in layers))]
    timed(cuda, "swap out", stream, lambda: braid.copy_batch(pairs, BLOCK_BYTES, stream))
    for (place, source) in pairs:
        index = next(i for i, layer in enumerate(layers)
                     if 0 <= source - layer < BLOCKS * BLOCK_BYTES)
        at = source - layers[index]
        if ctypes.string_at(place, BLOCK_BYTES) != content[index][at:at + BLOCK_BYTES]:
            sys.exit("kv_cache: wrong bytes in the pool")

    # Other requests used the GPU's blocks meanwhile.
    cuda.fill(layers, [bytes(BLOCKS * BLOCK_BYTES)] * LAYERS)
    back = [(source, place) for (place, source) in pairs]
    timed(cuda, "swap in", stream, lambda: braid.copy_batch(back, BLOCK_BYTES, stream, URGENT))
    for layer, data in zip(layers, content):
        got = cuda.to_host(layer, BLOCKS * BLOCK_BYTES)
        for block in range(BLOCKS):
            at = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
            if got[at] != (data[at] if block in blocks else bytes(BLOCK_BYTES)):
                sys.exit(f"kv_cache: wrong bytes in block {block}")
    print(f"{len(pairs)} blocks verified, twice")
    braid.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
