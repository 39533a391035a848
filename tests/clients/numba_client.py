"""A numba-cuda program: device arrays to and from pinned arrays, on streams and without.

Knows nothing of braid. Ends with the report that run_client.py asks for.
"""
import json

import numpy
from numba import cuda

LARGE_BYTES = 16 << 20
COUNTS = (1, 1023, 1 << 18, LARGE_BYTES // 4, (40 << 20) // 4 + 3)  # of 4-byte elements


def random_pinned(random, count):
    array = cuda.pinned_array(count, dtype=numpy.uint32)
    array[:] = random.integers(0, 1 << 32, count, dtype=numpy.uint32)
    return array


def on_a_stream(random, count):
    """Two arrays at once on two streams, each there and back asynchronously."""
    streams = [cuda.stream(), cuda.stream()]
    sent = [random_pinned(random, count) for _ in streams]
    received = [cuda.pinned_array(count, dtype=numpy.uint32) for _ in streams]
    for array in received:
        array[:] = 0xA5A5A5A5
    devices = [cuda.to_device(array, stream=stream) for array, stream in zip(sent, streams)]
    for device, array, stream in zip(devices, received, streams):
        device.copy_to_host(array, stream=stream)
    for stream in streams:
        stream.synchronize()
    return 2, all(numpy.array_equal(one, other) for one, other in zip(sent, received))


def synchronously(random, count):
    """The default stream: device array from a pinned array, read back into another."""
    sent = random_pinned(random, count)
    received = cuda.pinned_array(count, dtype=numpy.uint32)
    received[:] = 0xA5A5A5A5
    device = cuda.device_array(count, dtype=numpy.uint32)
    device.copy_to_device(sent)
    device.copy_to_host(received)
    return 1, numpy.array_equal(sent, received)


def registered(random, count):
    """Ordinary memory, pinned for as long as the copies take."""
    sent = random.integers(0, 1 << 32, count, dtype=numpy.uint32)
    received = numpy.full(count, 0xA5A5A5A5, dtype=numpy.uint32)
    stream = cuda.stream()
    with cuda.pinned(sent, received):
        device = cuda.to_device(sent, stream=stream)
        device.copy_to_host(received, stream=stream)
        stream.synchronize()
    return 1, numpy.array_equal(sent, received)


def main():
    random = numpy.random.default_rng(20261121)
    copied, verified = 0, True
    for ordinal in (0, 3):
        with cuda.gpus[ordinal]:
            for way in (on_a_stream, synchronously, registered):
                for count in COUNTS:
                    copies, right = way(random, count)
                    if not right:
                        print(f"wrong bytes: GPU {ordinal}, {way.__name__}, {count} elements")
                    verified = verified and bool(right)
                    copied += copies * count * 4 if count * 4 >= LARGE_BYTES else 0
    print(json.dumps({"verified": verified, "copied": {"h2d": copied, "d2h": copied}}))


main()
