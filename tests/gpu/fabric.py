#!/usr/bin/env python3
"""Writes between GPUs of two processes, through braid's fabric: every byte is verified.

  fabric.py [--build FOLDER]

Between GPU 0 and GPU 1 (where there is one GPU, between two processes on it): by copies into shared
memory (of cuMemAlloc, shared by the driver's handles, and mapped memory, shared by file
descriptors), and staged over each provider of libfabric. Ends with: N passed, N failed, N skipped.
"""
import argparse
import os
import pathlib
import sys

from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
WIRES = ("local", "shm", "tcp;ofi_rxm", "net")
SIZES = ("--memory", "64M", "--sizes", "100000,1M", "--pages", "8K", "--turns", "1")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args(arguments)
    program = options.build / "bin" / "fabric_gpu"
    verdicts = Verdicts()
    for wire, kind in [("local", "mapped"), *((wire, "plain") for wire in WIRES)]:
        words = [str(program), "--over", wire, "--kind", kind, *SIZES]
        try:
            code, output, errors = run_group(words, os.environ, TIMEOUT_S)
        except DidNotEnd as hung:
            verdicts.add("failed", f"{wire}, {kind}", str(hung))
            continue
        verdicts.add("failed" if code else "passed", f"GPU to GPU over {wire}, {kind} memory",
                     (output + errors).strip())
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
