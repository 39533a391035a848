#!/usr/bin/env python3
"""Copies by CUDA's runtime library through ctypes, found among what the process has loaded: as vLLM calls it.

  runtime_ctypes.py SIZE_BYTES
"""
import ctypes
import json
import os
import sys

import torch

KINDS = {"to device": 1, "to host": 2, "default": 4}  # cudaMemcpyKind
ROUNDS = 3


def loaded_runtime():
    torch.cuda.init()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libcudart" in line}
    if len(paths) != 1:
        sys.exit(f"libcudart is loaded {len(paths)} times: {sorted(paths)}")
    return ctypes.CDLL(paths.pop())


def main():
    size = int(sys.argv[1])
    runtime = loaded_runtime()

    def call(name, *arguments):
        if error := getattr(runtime, name)(*arguments):
            sys.exit(f"{name}: error {error}")

    count = ctypes.c_size_t(size)
    source, landing, device, stream = (ctypes.c_void_p() for _ in range(4))
    call("cudaSetDevice", 0)
    call("cudaHostAlloc", ctypes.byref(source), count, 0)
    call("cudaMallocHost", ctypes.byref(landing), count)
    call("cudaMalloc", ctypes.byref(device), count)
    call("cudaStreamCreate", ctypes.byref(stream))
    for there, back in (("to device", "to host"), ("default", "default")) * ROUNDS:
        wanted = os.urandom(1 << 20) * (size // (1 << 20) + 1)
        ctypes.memmove(source, wanted, size)
        ctypes.memset(landing, 0, size)
        call("cudaMemcpyAsync", device, source, count, KINDS[there], stream)
        call("cudaMemcpyAsync", landing, device, count, KINDS[back], stream)
        call("cudaStreamSynchronize", stream)
        if ctypes.string_at(landing, size) != wanted[:size]:
            sys.exit(f"wrong bytes, {there} and {back}")
    copies = 4 * ROUNDS
    print(json.dumps({"copies": {"pinned": {"calls": copies, "bytes": copies * size}}}, separators=(",", ":")))


if __name__ == "__main__":
    main()
