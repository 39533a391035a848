#!/usr/bin/env python3
"""Random programs on real GPUs, natively and under braid: the same memory, errors and order.

  stress.py [--build FOLDER] [--seconds S] [--seed N] [--mover auto|kernel|copy-engine]

The programs are those of tests/stress (HACKING.md), for as many of the machine's GPUs as there are, 4 at
most. A difference or a hang is printed with its seed and the commands that replay that program. Ends with:
N passed, N failed, N skipped.
"""
import argparse
import pathlib
import subprocess
import sys
import time

from support.gpus import NEEDS_TWO, count_gpus
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first program; without it, the time's")
    parser.add_argument("--mover", default="auto", choices=("auto", "kernel", "copy-engine"))
    return parser.parse_args()


def main():
    options = parse()
    seed = options.seed if options.seed is not None else int(time.time()) * 1000
    words = [options.build / "tests" / "stress_compare", "--server", "none", "--mover", options.mover,
             "--programs", "1000000000", "--batch", "10", "--limit", "60", "--seconds", str(options.seconds), "--seed", str(seed)]
    verdicts = Verdicts()
    if count_gpus() < 2:
        verdicts.add("skipped", f"stress {options.mover}", NEEDS_TWO)
        return verdicts.end()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    verdicts.add("passed" if done.returncode == 0 else "failed", f"stress {options.mover}",
                 (done.stdout + done.stderr).strip())
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
