"""The driver by ctypes alone, as engines bind a library that they find already loaded: an object for
libcuda.so.1, whose functions ctypes looks up with dlsym through the library's handle.

Needs nothing but Python. Knows nothing of braid. Ends with the report that run_client.py asks for.
"""
import ctypes
import json
import random
import sys

LARGE_BYTES = 16 << 20
SIZES = (1, 4097, 1 << 20, LARGE_BYTES, (48 << 20) + 13)
SEED = 20261121


class Driver:
    """Functions by name, each with its arguments' types; they exit with the error's number."""

    TYPES = {
        "cuInit": [ctypes.c_uint],
        "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
        "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
        "cuCtxSetCurrent": [ctypes.c_void_p],
        "cuMemAlloc_v2": [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t],
        "cuMemFree_v2": [ctypes.c_uint64],
        "cuMemHostAlloc": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint],
        "cuMemFreeHost": [ctypes.c_void_p],
        "cuStreamCreate": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint],
        "cuStreamSynchronize": [ctypes.c_void_p],
        "cuMemcpyHtoDAsync_v2": [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
        "cuMemcpyDtoHAsync_v2": [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p],
    }

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        for name, types in self.TYPES.items():
            getattr(self.driver, name).argtypes = types

    def __getattr__(self, name):
        def call(*arguments):
            error = getattr(self.driver, name)(*arguments)
            if error:
                sys.exit(f"ctypes_client: {name}: CUDA error {error}")
        return call


def made(function, result, *arguments):
    """What a call writes through its first argument."""
    function(ctypes.byref(result), *arguments)
    return result.value


def round_trip(driver, size_bytes, stream):
    """Sends random bytes to the GPU and back; True when the same bytes return."""
    sent = made(driver.cuMemHostAlloc, ctypes.c_void_p(), size_bytes, 0)
    received = made(driver.cuMemHostAlloc, ctypes.c_void_p(), size_bytes, 0)
    device = made(driver.cuMemAlloc_v2, ctypes.c_uint64(), size_bytes)
    noise = random.randbytes(size_bytes)
    ctypes.memmove(sent, noise, size_bytes)
    ctypes.memset(received, 0xA5, size_bytes)
    driver.cuMemcpyHtoDAsync_v2(device, sent, size_bytes, stream)
    driver.cuMemcpyDtoHAsync_v2(received, device, size_bytes, stream)
    driver.cuStreamSynchronize(stream)
    same = ctypes.string_at(received, size_bytes) == noise
    driver.cuMemFree_v2(device)
    driver.cuMemFreeHost(sent)
    driver.cuMemFreeHost(received)
    return same


def main():
    random.seed(SEED)
    driver = Driver()
    driver.cuInit(0)
    copied, verified = 0, True
    for ordinal in (0, 5):
        device = made(driver.cuDeviceGet, ctypes.c_int(), ordinal)
        driver.cuCtxSetCurrent(made(driver.cuDevicePrimaryCtxRetain, ctypes.c_void_p(), device))
        stream = made(driver.cuStreamCreate, ctypes.c_void_p(), 1)
        for size_bytes in SIZES:
            right = round_trip(driver, size_bytes, stream)
            if not right:
                print(f"wrong bytes: GPU {ordinal}, {size_bytes} bytes, seed {SEED}")
            verified = verified and right
            copied += size_bytes if size_bytes >= LARGE_BYTES else 0
    print(json.dumps({"verified": verified, "copied": {"h2d": copied, "d2h": copied}}))


main()
