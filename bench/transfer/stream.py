#!/usr/bin/env python3
"""Batches without end between two processes, and what becomes of them over time: for the rows of `run`.

  stream.py target --addresses A,B [--providers P,Q] [--export FOLDER]
  stream.py initiator --addresses A,B --target NAME --address N [--threads N] [--size BYTES] [--batch N]
                      [--op read|write] [--seconds S] [--urgent-every-ms MS] [--sample-ms MS]

Both say where they are on a line of JSON, and obey lines on standard input: `deny` refuses this process
copies from and to others' memory from then on (by seccomp), as if libfabric's shm had died; `cpu` says
CPU seconds. The initiator ends with a line of JSON: throughput, times of batches and of urgent reads of
4 KiB, failures, and `samples`: for each moment the bytes that each way has delivered so far.

Urgent reads are due at fixed times, whether those before have ended or not, and their times count from
then. `urgent_lag_*` says how much later than that this program has submitted them.
"""
import argparse
import ctypes
import json
import os
import queue
import sys
import threading
import time

import loop

transfer = loop.braid_module()
URGENT_BYTES = 4096
WARM_UP = 0.2  # the first part of the time, which does not count
BPF_LOAD_W, BPF_JUMP_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
PROCESS_VM_READV, PROCESS_VM_WRITEV = 310, 311  # x86-64


def deny_copies():
    """In all threads of this process. What it has made by then goes on."""

    class Step(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte),
                    ("value", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]

    steps = (Step * 5)(Step(BPF_LOAD_W, 0, 0, 0), Step(BPF_JUMP_EQUAL, 2, 0, PROCESS_VM_READV),
                       Step(BPF_JUMP_EQUAL, 1, 0, PROCESS_VM_WRITEV), Step(BPF_RETURN, 0, 0, 0x7fff0000),
                       Step(BPF_RETURN, 0, 0, 0x00050001))  # EPERM
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privileges, seccomp, filter_mode, all_threads = 38, 317, 1, 1
    libc.prctl(set_no_new_privileges, 1, 0, 0, 0)
    if libc.syscall(seccomp, filter_mode, all_threads, ctypes.byref(Program(5, steps))) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def open_engine(options):
    listen = options.addresses.split(",")[0] + ":0"
    return transfer.Transfer(listen=listen, addresses=options.addresses.split(","),
                             providers=options.providers.split(",") if options.providers else (),
                             allow_unauthenticated=True)


def obey(line):
    if line.strip() == "deny":
        deny_copies()
        print(json.dumps(time.monotonic()), flush=True)
    elif line.strip() == "cpu":
        print(json.dumps(loop.cpu_seconds()), flush=True)


def be_target(options):
    memory = loop.Memory(True)
    engine = open_engine(options)
    engine.register_memory(memory.address, loop.MEMORY_BYTES, transfer.MAY_READ | transfer.MAY_WRITE)
    print(json.dumps({"name": engine.name(), "address": memory.address}), flush=True)
    for line in sys.stdin:
        obey(line)
    os._exit(0)


class Stream:
    """Each place of memory is read or written with the same place of the target's, so all bytes stay right."""

    def __init__(self, options):
        self.options = options
        self.memory = loop.Memory(options.op == "write")
        self.engine = open_engine(options)
        self.engine.register_memory(self.memory.address, loop.MEMORY_BYTES,
                                    transfer.MAY_READ | transfer.MAY_WRITE)
        self.segment = self.engine.open_segment(options.target)
        self.operation = transfer.READ if options.op == "read" else transfer.WRITE
        self.lock = threading.Lock()
        self.took_us, self.urgent_us, self.urgent_lag_us, self.samples = [], [], [], []
        self.under_way = queue.SimpleQueue()
        self.failed = self.requests = 0
        self.is_over = False

    def submit(self, offset, sizes, urgency=transfer.BULK, operation=None):
        offsets = [offset + sum(sizes[:i]) for i in range(len(sizes))]
        return self.engine.submit(self.segment, self.operation if operation is None else operation,
                                  [self.memory.address + at for at in offsets],
                                  [self.options.address + at for at in offsets], sizes, urgency=urgency)

    def end(self, batch, count):
        """Waits, and counts what has failed."""
        while not self.engine.wait(batch, 60):
            pass
        ended = time.monotonic()
        failed = sum(cause != transfer.DONE for cause in self.engine.outcomes(batch))
        self.engine.forget(batch)
        with self.lock:
            self.failed += failed
            self.requests += count
        return ended

    def move(self, offset, sizes):
        """Its time."""
        begun = time.monotonic()
        return (self.end(self.submit(offset, sizes), len(sizes)) - begun) * 1e6

    def bulk(self, thread):
        whole = self.options.size * self.options.batch
        places = (loop.MEMORY_BYTES - URGENT_BYTES) // whole
        turn = thread
        while not self.is_over:
            took = self.move(turn % places * whole, [self.options.size] * self.options.batch)
            turn += self.options.threads
            with self.lock:
                self.took_us.append(took)

    def urgent(self):
        """Submits each when it is due."""
        due = time.monotonic()
        while not self.is_over:
            time.sleep(max(0, due - time.monotonic()))
            lag_us = (time.monotonic() - due) * 1e6
            self.under_way.put((due, self.submit(loop.MEMORY_BYTES - URGENT_BYTES, [URGENT_BYTES],
                                                 transfer.URGENT, transfer.READ)))
            self.urgent_lag_us.append(lag_us)
            due += self.options.urgent_every_ms / 1e3
        self.under_way.put(None)

    def end_urgent(self):
        """In the order of their times: one that overtakes another is seen when that has ended."""
        while (one := self.under_way.get()) is not None:
            due, batch = one
            self.urgent_us.append((self.end(batch, 1) - due) * 1e6)

    def sample(self):
        while not self.is_over:
            ways = json.loads(self.engine.report(transfer.JSON))["braid_transfer"]["ways"]
            self.samples.append([time.monotonic(), [way["delivered_bytes"] for way in ways]])
            time.sleep(self.options.sample_ms / 1e3)

    def run(self):
        work = [threading.Thread(target=self.bulk, args=[thread]) for thread in range(self.options.threads)]
        if self.options.urgent_every_ms:
            work += [threading.Thread(target=self.urgent), threading.Thread(target=self.end_urgent)]
        if self.options.sample_ms:
            work.append(threading.Thread(target=self.sample))
        for thread in work:
            thread.start()
        threading.Thread(target=lambda: [obey(line) for line in sys.stdin], daemon=True).start()
        time.sleep(self.options.seconds)
        self.is_over = True
        for thread in work:
            thread.join()

    def are_bytes_right(self):
        """All of the target's memory, read back."""
        if self.options.op == "write":
            ctypes.memset(self.memory.address, 0, loop.MEMORY_BYTES)
        self.operation = transfer.READ
        self.move(0, [1 << 20] * (loop.MEMORY_BYTES >> 20))
        words = (ctypes.c_uint64 * (loop.MEMORY_BYTES // 8)).from_buffer(self.memory.map)
        step = 1 << 16
        return all(words[at:at + step] == list(range(at + 1, at + step + 1)) for at in range(0, len(words), step))


def be_initiator(options):
    stream = Stream(options)
    print(json.dumps({"begun": time.monotonic()}), flush=True)
    stream.run()
    failed = stream.failed
    said = {"gbps": gbps(stream.samples), "requests": stream.requests, "failed": failed,
            "is_right": stream.are_bytes_right() and stream.failed == failed, "samples": stream.samples,
            "ways": [way["way"] for way in
                     json.loads(stream.engine.report(transfer.JSON))["braid_transfer"]["ways"]]}
    for name, times in (("batch", stream.took_us), ("urgent", stream.urgent_us),
                        ("urgent_lag", stream.urgent_lag_us)):
        ordered = sorted(times[int(len(times) * WARM_UP):]) or [0]
        said[name + "_p50_us"] = loop.percentile(ordered, 0.5)
        said[name + "_p99_us"] = loop.percentile(ordered, 0.99)
    print(json.dumps(said), flush=True)
    os._exit(0)


def gbps(samples):
    """Of all ways."""
    if len(samples) < 3:
        return 0
    first = samples[int(len(samples) * WARM_UP)]
    return (sum(samples[-1][1]) - sum(first[1])) / (samples[-1][0] - first[0]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("role", choices=("target", "initiator"))
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--providers", default="")
    parser.add_argument("--target")
    parser.add_argument("--address", type=int)
    parser.add_argument("--op", choices=("read", "write"), default="write")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--urgent-every-ms", type=float, default=0)
    parser.add_argument("--sample-ms", type=float, default=0)
    options = parser.parse_args()
    (be_target if options.role == "target" else be_initiator)(options)


if __name__ == "__main__":
    main()
