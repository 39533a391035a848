#!/usr/bin/env python3
"""Batches between two processes of this host, by braid or by Mooncake's wheel: one turn of `run`.

  loop.py braid|mooncake [--provider NAME,...] [--op read|write] [--size BYTES] [--batch N] [--pattern r1-w8a8]
                          [--threads N] [--seconds S] [--quiet N]

Both are driven from Python in the same way: a batch is submitted and waited for, by each thread. The pattern
is a layer of a KV cache instead of `batch` blocks side by side. --quiet: so many further peers of the target
have moved a batch before, and are quiet. What was written last is read back, and what was read last is
compared. Prints one object of JSON: GB/s, the first batch ever, the median and the 99th percentile of a batch,
and CPU seconds a GB of both processes.
"""
import argparse
import array
import ctypes
import itertools
import json
import mmap
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY_BYTES = 128 << 20
HOST = "127.0.0.1"


class Memory:
    """Of which every 8 bytes are unlike the others, or 0."""

    def __init__(self, is_filled):
        self.map = mmap.mmap(-1, MEMORY_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        if is_filled:
            words = (ctypes.c_uint64 * (MEMORY_BYTES // 8)).from_buffer(self.map)
            step = 1 << 16
            for first in range(0, len(words), step):
                words[first:first + step] = range(first + 1, first + step + 1)

    def move_to(self, address):
        ctypes.memmove(address, self.address, MEMORY_BYTES)
        self.address = address


def braid_module():
    if str(ROOT / "python") not in sys.path:
        sys.path.insert(0, str(ROOT / "python"))
    from braid import transfer
    return transfer


class Braid:
    """With `mapped` among the providers the target's memory is the library's, which others map."""

    def __init__(self, memory, provider, is_target):
        self.module = transfer = braid_module()
        providers = provider.split(",")
        rights = transfer.MAY_READ | transfer.MAY_WRITE
        self.engine = transfer.Transfer(listen=f"{HOST}:0", addresses=(HOST,), providers=providers)
        if is_target and "mapped" in providers:
            memory.move_to(self.engine.allocate_memory(MEMORY_BYTES, rights)[0])
        else:
            self.engine.register_memory(memory.address, MEMORY_BYTES, rights)

    def name(self):
        return self.engine.name()

    def open(self, name):
        self.segment = self.engine.open_segment(name)

    def move(self, is_read, here, there, sizes):
        operation = self.module.READ if is_read else self.module.WRITE
        if any(self.engine.submit_and_wait(self.segment, operation, here, there, sizes, 60)):
            raise RuntimeError("a batch has failed")


class Mooncake:
    def __init__(self, memory, provider, _is_target):
        from mooncake.engine import TransferEngine
        if provider != "tcp;ofi_rxm":
            raise RuntimeError("Mooncake's wheel moves by tcp alone")
        self.engine = TransferEngine()
        if self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("its engine does not start")
        if self.engine.register_memory(memory.address, MEMORY_BYTES) != 0:
            raise RuntimeError("it does not register the memory")

    def name(self):
        return f"{HOST}:{self.engine.get_rpc_port()}"

    def open(self, name):
        self.target = name

    def move(self, is_read, here, there, sizes):
        move = self.engine.batch_transfer_sync_read if is_read else self.engine.batch_transfer_sync_write
        if move(self.target, here, there, sizes) != 0:
            raise RuntimeError("a batch has failed")


ENGINES = {"braid": Braid, "mooncake": Mooncake}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def be_target(options):
    memory = Memory(options.op == "read")
    engine = ENGINES[options.engine](memory, options.provider, True)
    print(json.dumps({"name": engine.name(), "address": memory.address}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(cpu_seconds()), flush=True)
    os._exit(0)  # threads of the engine's are not waited for


def ask_cpu(target):
    target.stdin.write("cpu\n")
    target.stdin.flush()
    return json.loads(target.stdout.readline())


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def blocks(size, batch, place):
    """(offset, size) of blocks side by side."""
    return [((place * batch + i) * size, size) for i in range(batch)]


def layer(place):
    """Of DeepSeek-R1-W8A8 with 4K tokens, as `braid tebench --pattern r1-w8a8`: no two blocks side by side."""
    large, small, gap, count = 128 << 10, 16 << 10, 4096, 32
    each = large + small + 2 * gap
    firsts = [(place * count + i) * each for i in range(count)]
    return [piece for first in firsts for piece in ((first, large), (first + large + gap, small))]


class Turn:
    def __init__(self, options, target):
        is_read = options.op == "read"
        self.is_read = is_read
        pieces = layer if options.pattern else lambda place: blocks(options.size, options.batch, place)
        first, last = pieces(0), pieces(1)
        self.bytes = sum(size for _, size in first)
        places = max(1, MEMORY_BYTES // (last[0][0] - first[0][0]))
        said = json.loads(target.stdout.readline())
        self.there = said["address"]
        self.memory = Memory(not is_read)
        self.engine = ENGINES[options.engine](self.memory, options.provider, False)
        self.engine.open(said["name"])
        self.quiet = [ENGINES[options.engine](self.memory, options.provider, False) for _ in range(options.quiet)]
        for engine in self.quiet:
            engine.open(said["name"])
            engine.move(is_read, *self.addresses(first))
        self.places = [pieces(place) for place in range(min(places, 64))]
        self.lists = [self.addresses(place) for place in self.places]
        self.threads = options.threads
        self.next = itertools.count()

    def addresses(self, place):
        return ([self.memory.address + offset for offset, _ in place], [self.there + offset for offset, _ in place],
                [size for _, size in place])

    def work(self, end, took, failed):
        try:
            while not took or time.perf_counter() < end:
                begun = time.perf_counter()
                self.last = next(self.next) % len(self.lists)
                self.engine.move(self.is_read, *self.lists[self.last])
                took.append(time.perf_counter() - begun)
        except RuntimeError as error:
            failed.append(error)

    def run(self, seconds):
        """The time of each batch, and of all together, in seconds."""
        took, failed = [[] for _ in range(self.threads)], []
        begun = time.perf_counter()
        threads = [threading.Thread(target=self.work, args=[begun + seconds, each, failed]) for each in took[1:]]
        for thread in threads:
            thread.start()
        self.work(begun + seconds, took[0], failed)
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return [one for each in took for one in each], time.perf_counter() - begun

    def verify(self):
        """A batch of the last ones: what was written is read back."""
        place = self.places[self.last]
        if not self.is_read:
            for offset, size in place:
                self.memory.map[offset:offset + size] = bytes(size)
            self.engine.move(True, *self.lists[self.last])
        for offset, size in place:
            words = array.array("Q", range(offset // 8 + 1, (offset + size) // 8 + 1))
            if self.memory.map[offset:offset + size] != words.tobytes():
                raise RuntimeError("bytes are wrong")


def measure(options):
    words = [sys.executable, __file__, *sys.argv[1:], "--role", "target"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        try:
            turn = Turn(options, target)
            before, _ = turn.run(options.seconds / 4)
            cpu_before = cpu_seconds() + ask_cpu(target)
            took, whole_s = turn.run(options.seconds)
            cpu = cpu_seconds() + ask_cpu(target) - cpu_before
            turn.verify()
        finally:
            target.kill()
    moved_gb = len(took) * turn.bytes / 1e9
    ordered = sorted(took)
    print(json.dumps({"engine": options.engine, "gbps": moved_gb / whole_s, "batches": len(took),
                      "first_us": before[0] * 1e6, "p50_us": percentile(ordered, 0.5) * 1e6,
                      "p99_us": percentile(ordered, 0.99) * 1e6,
                      "cpu_s_per_gb": cpu / moved_gb}), flush=True)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--provider", default="tcp;ofi_rxm")
    parser.add_argument("--op", choices=("read", "write"), default="write")
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pattern", choices=("r1-w8a8",))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--quiet", type=int, default=0)
    parser.add_argument("--role", choices=("initiator", "target"), default="initiator")
    options = parser.parse_args()
    if options.role == "target":
        be_target(options)
    else:
        measure(options)


if __name__ == "__main__":
    main()
