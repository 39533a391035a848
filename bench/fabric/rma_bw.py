#!/usr/bin/env python3
"""The raw loop of `braid fabric bench` beside fabtests' fi_rma_bw: the same writes with an immediate and
delivery-complete (so none is injected), the same window, in turns. Exit code 1 if the median of the ratios is under 0.95.

  rma_bw.py PLAIN_LOOP [--provider LIST] [--sizes LIST] [--turns N] [--rma-bw fi_rma_bw]

`ninja -C build plain_loop` builds PLAIN_LOOP. Where fi_rma_bw is not installed it says `waived`.
"""
import argparse
import re
import shutil
import statistics
import subprocess
import sys
import time

WINDOW = 64
WINDOWS_BYTES = 512 << 20  # of a turn, but WINDOWS_MAX of them
WINDOWS_MAX = 500
LIMIT_S = 120
FLOOR = 0.95


def windows_of(size):
    return max(10, min(WINDOWS_MAX, WINDOWS_BYTES // (size * WINDOW)))


def plain_mb_per_s(program, provider, size):
    done = subprocess.run([program, provider, str(size), str(WINDOW), str(windows_of(size))],
                          capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return float(done.stdout.split()[0])


def rma_bw_mb_per_s(program, provider, size):
    """Of its last line, the column MB/sec."""
    words = [program, "-e", "rdm", "-p", provider, "-o", "writedata", "-U", "-j", "0", "-S", str(size),
             "-W", str(WINDOW), "-I", str(WINDOW * windows_of(size)), "-w", str(10 * WINDOW)]
    server = subprocess.Popen(words + ["-s", "127.0.0.1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)  # it listens
        done = subprocess.run(words + ["-s", "127.0.0.2", "127.0.0.1"], capture_output=True, text=True,
                              timeout=LIMIT_S, check=True)
        server.wait(LIMIT_S)
    finally:
        server.kill()
    return float(re.split(r"\s+", done.stdout.strip().splitlines()[-1])[4])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("plain_loop")
    parser.add_argument("--provider", default="tcp;ofi_rxm,shm")
    parser.add_argument("--sizes", default="64,65536,1048576")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rma-bw", default="fi_rma_bw")
    options = parser.parse_args()
    if shutil.which(options.rma_bw) is None:
        print(f"waived: {options.rma_bw} is not installed (fabtests of libfabric)")
        return 0
    is_slower = False
    for provider in options.provider.split(","):
        for size in map(int, options.sizes.split(",")):
            pairs = [(plain_mb_per_s(options.plain_loop, provider, size),
                      rma_bw_mb_per_s(options.rma_bw, provider, size))
                     for _ in range(options.turns)]
            ratios = [plain / other for plain, other in pairs]
            ratio = statistics.median(ratios)
            is_slower = is_slower or ratio < FLOOR
            plain, other = (statistics.median(side) for side in zip(*pairs))
            print(f"{provider:12} {size:>8} plain {plain:9.2f} MB/s  fi_rma_bw {other:9.2f} MB/s  "
                  f"ratio {ratio:.3f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    return 1 if is_slower else 0


if __name__ == "__main__":
    sys.exit(main())
