#!/usr/bin/env python3
"""One side of the PyTorch measurement: copies between pinned memory and a GPU on request.

Reads one JSON request a line and answers with one JSON line:
  {"do": "copy", "direction": "h2d", "size_bytes": 4194304}
      -> {"first_gbps": .., "gbps": [..], "verified": true}   (one copy after a pause, then three)
  {"do": "limit", "direction": "d2h"}                        -> {"gbps": ..}  (direct copies, all GPUs)
  {"do": "flow", "direction": "h2d", "size_bytes": 268435456, "in_flight": 4, "seconds": 2}
      -> {"gbps": .., "cpu_per_s": .., "verified": true}      (copies without pause)
  {"do": "queue", "direction": "h2d", "size_bytes": 33554432, "copies": 190}
      -> {"gbps": .., "call_us": .., "verified": true}        (all enqueued in one stream, then waited for)
  {"do": "idle", "seconds": 1}                               -> {"cpu_per_s": ..}  (nothing at all)
CPU time is user and system time of all threads, for each second that passes.
Knows nothing of braid: bench/gpu/run starts it once natively and once under `braid run`.
"""
import collections
import json
import sys
import time

import torch

LIMIT_BYTES = 1 << 30
LIMIT_ROUNDS = 4
SETTLE_S = 1  # PyTorch's own threads spin for a while after they compared the bytes
STEADY_COPIES = 3


class Worker:
    def __init__(self, largest, gpus):
        # Copies alternate between two sets of random bytes, so that what was there before is wrong;
        # overwriting it from the CPU would leave dirty cache lines in the way of the next copy.
        torch.manual_seed(20260101)
        self.sources = [torch.randint(0, 256, (largest,), dtype=torch.uint8).pin_memory()
                        for _ in range(2)]
        self.turn = 0
        self.landing = torch.zeros(largest, dtype=torch.uint8).pin_memory()
        self.device = torch.zeros(largest, dtype=torch.uint8, device="cuda:0")
        self.gpus = gpus
        self.parts = []

    def copies(self, direction, size_bytes):
        all_copies = [self.copy(direction, size_bytes) for _ in range(1 + STEADY_COPIES)]
        return {"first_gbps": all_copies[0][0], "gbps": [gbps for gbps, _ in all_copies[1:]],
                "verified": all(right for _, right in all_copies)}

    def copy(self, direction, size_bytes):
        self.turn = 1 - self.turn
        source, landing = self.sources[self.turn][:size_bytes], self.landing[:size_bytes]
        device = self.device[:size_bytes]
        to_device = direction == "h2d"
        if not to_device:
            device.copy_(source)
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        if to_device:
            device.copy_(source, non_blocking=True)
        else:
            landing.copy_(device, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        # .cpu() reads back into pageable memory: never a path that is being measured.
        verified = torch.equal(device.cpu() if to_device else landing, source)
        return size_bytes / (begin.elapsed_time(end) * 1e6), verified

    def limit(self, direction):
        part = min(LIMIT_BYTES, self.landing.numel()) // self.gpus
        if not self.parts:
            for gpu in range(self.gpus):
                with torch.cuda.device(gpu):
                    self.parts.append((torch.zeros(part, dtype=torch.uint8, device=f"cuda:{gpu}"),
                                       torch.cuda.Stream(gpu)))
        for gpu in range(self.gpus):
            torch.cuda.synchronize(gpu)
        start = time.perf_counter()
        for gpu, (buffer, stream) in enumerate(self.parts):
            host = (self.sources[0] if direction == "h2d" else self.landing)[gpu * part:(gpu + 1) * part]
            with torch.cuda.stream(stream):
                for _ in range(LIMIT_ROUNDS):
                    if direction == "h2d":
                        buffer.copy_(host, non_blocking=True)
                    else:
                        host.copy_(buffer, non_blocking=True)
        for _, stream in self.parts:
            stream.synchronize()
        elapsed = time.perf_counter() - start
        return {"gbps": part * LIMIT_ROUNDS * self.gpus / (elapsed * 1e9)}

    def enqueue(self, direction, size_bytes):
        device = self.device[:size_bytes]
        if direction == "h2d":
            device.copy_(self.sources[0][:size_bytes], non_blocking=True)
        else:
            self.landing[:size_bytes].copy_(device, non_blocking=True)

    def flow(self, direction, size_bytes, in_flight, seconds):
        """The process sleeps while it waits, so that what CPU time is used moves bytes."""
        self.device[:size_bytes].copy_(self.sources[0][:size_bytes])
        ends = collections.deque()
        torch.cuda.synchronize()
        copies, start, cpu_start = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            if len(ends) == in_flight:
                ends.popleft().synchronize()
            self.enqueue(direction, size_bytes)
            copies += 1
            ends.append(torch.cuda.Event(blocking=True))
            ends[-1].record()
        while ends:
            ends.popleft().synchronize()
        elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        here = self.device[:size_bytes].cpu() if direction == "h2d" else self.landing[:size_bytes]
        return {"gbps": copies * size_bytes / (elapsed * 1e9), "cpu_per_s": cpu / elapsed,
                "verified": torch.equal(here, self.sources[0][:size_bytes])}

    def queue(self, direction, size_bytes, copies):
        """As a program that loads its weights: each copy has memory of its own, as far as there is some."""
        device, landing, source = (all_bytes[:all_bytes.numel() // size_bytes * size_bytes].view(-1, size_bytes)
                                   for all_bytes in (self.device, self.landing, self.sources[0]))
        if direction == "d2h":
            device.copy_(source)
        target, origin = (device, source) if direction == "h2d" else (landing, device)
        used = min(copies, len(target))
        target[:used].zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(copies):
            target[number % used].copy_(origin[number % used], non_blocking=True)
        called = time.perf_counter() - start
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        return {"gbps": copies * size_bytes / (elapsed * 1e9), "call_us": called * 1e6 / copies,
                "verified": torch.equal(target[:used].cpu(), source[:used])}

    @staticmethod
    def idle(seconds):
        time.sleep(SETTLE_S)
        start, cpu_start = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        return {"cpu_per_s": (time.process_time() - cpu_start) / (time.perf_counter() - start)}


def main():
    worker = Worker(int(sys.argv[1]), torch.cuda.device_count())
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        work = {"copy": worker.copies, "limit": worker.limit, "flow": worker.flow,
                "queue": worker.queue, "idle": worker.idle}[request.pop("do")]
        answer = work(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
