"""A cuda-bindings program: pinned copies in both directions, on two GPUs, in every way it has.

Knows nothing of braid. Ends with the report that run_client.py asks for.
"""
import ctypes
import json
import sys

import numpy
from cuda.bindings import driver

LARGE_BYTES = 16 << 20
SIZES = (1, 4097, 1 << 20, LARGE_BYTES, (48 << 20) + 13)


def check(answer):
    """The results of a driver call, or an exit that names its error."""
    error, *results = answer if isinstance(answer, tuple) else (answer,)
    if error != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"cuda_bindings_client: {error}")
    return results[0] if results else None


class Pinned:
    """Pinned host memory as a numpy array: allocated by the driver, or registered afterwards."""

    def __init__(self, size_bytes, registered):
        self.registered = registered
        if registered:
            self.array = numpy.zeros(size_bytes, dtype=numpy.uint8)
            self.address = self.array.ctypes.data
            check(driver.cuMemHostRegister(self.address, size_bytes, 0))
        else:
            self.address = int(check(driver.cuMemHostAlloc(size_bytes, 0)))
            self.array = numpy.ctypeslib.as_array(
                (ctypes.c_uint8 * size_bytes).from_address(self.address))

    def close(self):
        if self.registered:
            check(driver.cuMemHostUnregister(self.address))
        else:
            self.array = None
            check(driver.cuMemFreeHost(self.address))


# How bytes go to the GPU and back: (device, host address, size, stream).
WAYS = {
    "HtoDAsync/DtoHAsync": (
        lambda device, host, size, stream: driver.cuMemcpyHtoDAsync(device, host, size, stream),
        lambda device, host, size, stream: driver.cuMemcpyDtoHAsync(host, device, size, stream)),
    "HtoD/DtoH": (
        lambda device, host, size, stream: driver.cuMemcpyHtoD(device, host, size),
        lambda device, host, size, stream: driver.cuMemcpyDtoH(host, device, size)),
    "cuMemcpyAsync": (
        lambda device, host, size, stream: driver.cuMemcpyAsync(device, host, size, stream),
        lambda device, host, size, stream: driver.cuMemcpyAsync(host, device, size, stream)),
}


def round_trip(random, way, size_bytes, registered, stream):
    """Sends random bytes to the GPU and back; True when the same bytes return."""
    to_device, to_host = WAYS[way]
    sent, received = Pinned(size_bytes, registered), Pinned(size_bytes, registered)
    sent.array[:] = random.integers(0, 256, size_bytes, dtype=numpy.uint8)
    received.array[:] = 0xA5
    device = check(driver.cuMemAlloc(size_bytes))
    check(to_device(device, sent.address, size_bytes, stream))
    check(to_host(device, received.address, size_bytes, stream))
    check(driver.cuStreamSynchronize(stream))
    same = bool(numpy.array_equal(sent.array, received.array))
    check(driver.cuMemFree(device))
    received.close()
    sent.close()
    return same


def main():
    check(driver.cuInit(0))
    random = numpy.random.default_rng(20261121)
    copied, verified = 0, True
    for ordinal in (0, 5):
        device = check(driver.cuDeviceGet(ordinal))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
        own = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        for stream in (own, driver.CUstream(driver.CU_STREAM_LEGACY)):
            for way in WAYS:
                for size_bytes in SIZES:
                    registered = size_bytes % 2 == 1
                    right = round_trip(random, way, size_bytes, registered, stream)
                    if not right:
                        print(f"wrong bytes: GPU {ordinal}, {way}, {size_bytes} bytes")
                    verified = verified and right
                    copied += size_bytes if size_bytes >= LARGE_BYTES else 0
        check(driver.cuStreamDestroy(own))
        check(driver.cuDevicePrimaryCtxRelease(device))
    print(json.dumps({"verified": verified, "copied": {"h2d": copied, "d2h": copied}}))


main()
