#!/usr/bin/env python3
"""One process that loads a checkpoint and moves a module, and says in one line of JSON what it saw.

  [braid run --] checkpoint_worker.py FILE [--gib 4] [--rounds 3]

FILE: a safetensors file, made when it is not there, and read once so that it lies in the page cache.
load_file(device="cuda") of it, then a module of the same tensors .to("cuda") and .to("cpu"), beside a copy
by all CPU cores into fresh memory. GB/s, by round; every tensor is compared.
"""
import argparse
import json
import os
import time

import torch
from safetensors.torch import load_file, save_file

TENSOR_BYTES = 128 << 20
GIB = 1 << 30


def make(path, size_bytes):
    torch.manual_seed(20260101)
    count = size_bytes // TENSOR_BYTES
    words = TENSOR_BYTES // 2
    save_file({f"layer.{i}": torch.randint(-2**15, 2**15, (words,), dtype=torch.int16) for i in range(count)}, path)


def read_all(path):
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(64 << 20)
        while file.readinto(buffer):
            pass


def gbps(size_bytes, work):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return size_bytes / (time.perf_counter() - begin) / 1e9, result


def same(tensors, expected):
    return all(torch.equal(tensors[name].cpu(), expected[name]) for name in expected)


def module_of(tensors):
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name.replace(".", "_"), tensor)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not os.path.exists(arguments.file):
        make(arguments.file, int(arguments.gib * GIB))
    read_all(arguments.file)
    torch.cuda.init()
    expected = load_file(arguments.file)
    size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    found = {"load_file": [], "module.to(cuda)": [], "module.to(cpu)": [], "cpu_copy": []}
    verified = True
    for _ in range(arguments.rounds):
        rate, there = gbps(size_bytes, lambda: load_file(arguments.file, device="cuda"))
        found["load_file"].append(rate)
        verified = verified and same(there, expected)
        del there
        rate, fresh = gbps(size_bytes, lambda: {name: tensor.clone() for name, tensor in expected.items()})
        found["cpu_copy"].append(rate)
        module = module_of(fresh)
        rate, _ = gbps(size_bytes, lambda: module.to("cuda"))
        found["module.to(cuda)"].append(rate)
        rate, _ = gbps(size_bytes, lambda: module.to("cpu"))
        found["module.to(cpu)"].append(rate)
        verified = verified and all(torch.equal(buffer, expected[name.replace("_", ".")])
                                    for name, buffer in module.named_buffers())
        del module, fresh
    print(json.dumps({"size_bytes": size_bytes, "verified": verified, "torch": torch.__version__, "gbps": found}))


if __name__ == "__main__":
    main()
