#!/usr/bin/env python3
"""Batches without end between two processes, and what becomes of them over time: for the rows of `run`.

  stream.py target --addresses A,B [--providers P,Q] [--round-robin]
  stream.py initiator --addresses A,B --target NAME --address N [--threads N] [--size BYTES] [--batch N]
                      [--op read|write] [--seconds S] [--urgent-every-ms MS] [--sample-ms MS] [--round-robin]
                      [--hold]

Both say where they are on a line of JSON, and obey lines on standard input: `deny` refuses this process
copies from and to others' memory from then on (by seccomp), as if libfabric's shm had died; `cpu` says
CPU seconds; `report`, of the initiator, also how many slices it has posted, and what a report takes. With
`--hold` the initiator moves one batch, and no more until it reads `go`, whose time it says.
It ends with a line of JSON: throughput, times of batches and of urgent reads of
4 KiB, failures, and `samples`: for each moment the bytes that each way has delivered so far.

Urgent reads are due at fixed times, whether those before have ended or not, and their times count from
then. `urgent_lag_*` says how much later than that this program has submitted them.

`--round-robin`, of both, is the method that rows compare with: an engine for each address, which knows of
one rail, and requests that are dealt to them in turn.
"""
import argparse
import ctypes
import itertools
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


def open_engines(options, memory):
    """One with a rail at each address; or one for each address."""
    addresses = options.addresses.split(",")
    engines = []
    for its in [[one] for one in addresses] if options.round_robin else [addresses]:
        engines.append(transfer.Transfer(listen=its[0] + ":0", addresses=its, allow_unauthenticated=True,
                                         providers=options.providers.split(",") if options.providers else ()))
        engines[-1].register_memory(memory.address, loop.MEMORY_BYTES, transfer.MAY_READ | transfer.MAY_WRITE)
    return engines


def obey(line):
    if line.strip() == "deny":
        deny_copies()
        print(json.dumps(time.monotonic()), flush=True)
    elif line.strip() == "cpu":
        print(json.dumps(loop.cpu_seconds()), flush=True)


def be_target(options):
    memory = loop.Memory(True)
    engines = open_engines(options, memory)
    names = ",".join(engine.name() for engine in engines)
    print(json.dumps({"name": names, "address": memory.address}), flush=True)
    for line in sys.stdin:
        obey(line)
    os._exit(0)


class Stream:
    """Each place of memory is read or written with the same place of the target's, so all bytes stay right."""

    def __init__(self, options):
        self.options = options
        self.memory = loop.Memory(options.op == "write")
        engines = open_engines(options, self.memory)
        self.links = [(engine, engine.open_segment(name)) for engine, name in zip(engines, options.target.split(","))]
        self.turn = itertools.count()
        self.operation = transfer.READ if options.op == "read" else transfer.WRITE
        self.lock = threading.Lock()
        self.took_us, self.urgent_us, self.urgent_lag_us, self.samples = [], [], [], []
        self.under_way = queue.SimpleQueue()
        self.failed = self.requests = 0
        self.is_over = False

    def submit(self, offset, sizes, urgency=transfer.BULK, operation=None):
        """The batches, each with its engine: one, or one for each request that is dealt in turn."""
        operation = self.operation if operation is None else operation
        offsets = [offset + sum(sizes[:i]) for i in range(len(sizes))]
        each = [(offsets, sizes)] if len(self.links) == 1 else [([at], [size]) for at, size in zip(offsets, sizes)]
        batches = []
        for its_offsets, its_sizes in each:
            engine, segment = self.links[next(self.turn) % len(self.links)]
            batches.append((engine, engine.submit(segment, operation, [self.memory.address + at for at in its_offsets],
                                                  [self.options.address + at for at in its_offsets], its_sizes,
                                                  urgency=urgency)))
        return batches

    def end(self, batches, count):
        """Waits, and counts what has failed. When they had ended."""
        failed = 0
        for engine, batch in batches:
            while not engine.wait(batch, 60):
                pass
            failed += sum(cause != transfer.DONE for cause in engine.outcomes(batch))
            engine.forget(batch)
        ended = time.monotonic()
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
            due, batches = one
            self.urgent_us.append((self.end(batches, 1) - due) * 1e6)

    def reports(self):
        return [json.loads(engine.report(transfer.JSON))["braid_transfer"] for engine, _ in self.links]

    def ways(self):
        return [way for report in self.reports() for way in report["ways"]]

    def obey(self, line):
        if line.strip() != "report":
            return obey(line)
        begun = time.thread_time()
        slices = sum(report["slices"] for report in self.reports())
        took = time.thread_time() - begun
        print(json.dumps({"slices": slices, "cpu_seconds": loop.cpu_seconds(), "report_seconds": took}), flush=True)

    def sample(self):
        """With the engine's own time: this thread may wait for the interpreter before and after."""
        while not self.is_over:
            reports = self.reports()
            self.samples.append([reports[-1]["monotonic_ns"] / 1e9,
                                 [way["delivered_bytes"] for report in reports for way in report["ways"]]])
            time.sleep(self.options.sample_ms / 1e3)

    def run(self):
        work = [threading.Thread(target=self.bulk, args=[thread]) for thread in range(self.options.threads)]
        if self.options.urgent_every_ms:
            work += [threading.Thread(target=self.urgent), threading.Thread(target=self.end_urgent)]
        if self.options.sample_ms:
            work.append(threading.Thread(target=self.sample))
        for thread in work:
            thread.start()
        threading.Thread(target=lambda: [self.obey(line) for line in sys.stdin], daemon=True).start()
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
    if options.hold:
        stream.move(0, [options.size] * options.batch)
    print(json.dumps({"begun": time.monotonic()}), flush=True)
    while options.hold and (line := sys.stdin.readline()).strip() != "go":
        stream.obey(line)
    if options.hold:
        print(json.dumps(time.monotonic()), flush=True)
    stream.run()
    failed = stream.failed
    said = {"gbps": gbps(stream.samples), "requests": stream.requests, "failed": failed,
            "is_right": stream.are_bytes_right() and stream.failed == failed, "samples": stream.samples,
            "ways": [way["way"] for way in stream.ways()]}
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
    parser.add_argument("--round-robin", action="store_true")
    parser.add_argument("--hold", action="store_true")
    options = parser.parse_args()
    (be_target if options.role == "target" else be_initiator)(options)


if __name__ == "__main__":
    main()
