#!/usr/bin/env python3
"""Transfers of GPU memory between two processes, and of files to a GPU: every byte is verified, nothing is timed.

  transfer.py [--build FOLDER]

Between GPU 0 and GPU 1 (where there is one GPU, between two processes on it): over each rail that reaches
GPUs by itself, and over all of them as an engine has them by default. Within a process: between host memory
and the GPU, and from a file. (build/tests/gpu_transfer_test has the rights, ends and faults; bench/transfer/run A12 has the
rates: the turns here are over before relays are open.) Ends with: N passed, N failed, N skipped.
"""
import argparse
import json
import os
import pathlib
import sys

from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
RAILS = ("", "local", "shm+gpu", "tcp;ofi_rxm+gpu")
SIZES = ("--memory", "64M", "--turns", "1", "--turn-ms", "20")


def unverified(output):
    """Why not each row says that its bytes are right; None if each does."""
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    wrong = [row["what"] for row in rows if not row["verified"]]
    if wrong:
        return "wrong bytes: " + ", ".join(wrong)
    return None if rows else "nothing was verified"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args(arguments)
    program = str(options.build / "bin" / "transfer_gpu")
    verdicts = Verdicts()
    runs = [(f"GPU to GPU of another process over {rail or 'all rails'}",
             ["--only", "peer", *(["--providers", rail] if rail else [])]) for rail in RAILS]
    runs += [("host and GPU", ["--only", "host"]), ("file to GPU", ["--only", "file"])]
    for what, words in runs:
        try:
            code, output, errors = run_group([program, *words, *SIZES], os.environ, TIMEOUT_S)
        except DidNotEnd as hung:
            verdicts.add("failed", what, str(hung))
            continue
        why = unverified(output)
        if code or why:
            verdicts.add("failed", what, "; ".join(filter(None, (why, errors.strip(), f"exit code {code}"))))
        else:
            verdicts.add("passed", what)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
