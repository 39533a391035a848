#!/usr/bin/env python3
"""Two processes that know Mooncake's interface alone move memory of GPUs, on braid: every byte compared.

  door_gpu_test.py DOOR-FOLDER LIBRARY
"""
import ctypes
import os
import random
import subprocess
import sys

SIZE = 3_000_001

door, library = sys.argv[1:3]
if "TARGET" not in os.environ:
    environment = dict(os.environ, PYTHONPATH=door, BRAID_TRANSFER_LIBRARY=library, TARGET="1")
    target = subprocess.Popen([sys.executable, *sys.argv], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        environment["TARGET"] = "127.0.0.1:" + target.stdout.readline().strip()
        done = subprocess.run([sys.executable, *sys.argv], env=environment, check=False, timeout=400)
        target.stdin.close()
        sys.exit(done.returncode or target.wait(60))
    finally:
        target.kill()

cuda = ctypes.CDLL("libcuda.so.1")


def must(result):
    assert result == 0, f"CUDA error {result}"


def gpu_memory(size):
    context, device, address = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(ctypes.byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address.value


def put(address, data):
    must(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data, ctypes.c_size_t(len(data))))


def get(address, size):
    data = ctypes.create_string_buffer(size)
    must(cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size)))
    return data.raw


memory = gpu_memory(SIZE)

from mooncake.engine import TransferEngine  # noqa: E402

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
assert engine.register_memory(memory, SIZE, "cuda:0") == 0
if os.environ["TARGET"] == "1":
    assert engine.allocate_managed_buffer(SIZE) != 0
    print(engine.get_rpc_port(), memory, flush=True)
    sys.stdin.read()
    sys.exit(0)

host, _, rest = os.environ["TARGET"].partition(":")
port, there = rest.split()
seed = random.randrange(1 << 30)
print("seed", seed)
for turn in range(3):
    data = random.Random(seed + turn).randbytes(SIZE)
    put(memory, data)
    assert engine.transfer_sync_write(f"{host}:{port}", memory, int(there), SIZE) == 0
    put(memory, bytes(SIZE))
    assert engine.transfer_sync_read(f"{host}:{port}", memory, int(there), SIZE) == 0
    assert get(memory, SIZE) == data
    first = engine.get_first_buffer_address(f"{host}:{port}")
    assert engine.transfer_sync_write(f"{host}:{port}", memory, first, SIZE) == 0, "to host memory"
    put(memory, bytes(SIZE))
    assert engine.transfer_sync_read(f"{host}:{port}", memory, first, SIZE) == 0
    assert get(memory, SIZE) == data
print("every byte is right")
