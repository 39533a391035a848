#!/usr/bin/env python3
"""Somebody else's GPU: what a process that works on GPU 1 loses when another one's copies go through it.

  neighbours.py [--build FOLDER] [--sides native,default,kernel,...] [--modes matmul,decoder,half]
                [--seconds 2] [--mps] [--json FILE]

Process B keeps GPU 1 busy (tests/gpu/programs/neighbour.py), process A copies to and from GPU 0
(copier.cu) natively, with braid's own choice of mover (`default`), or with a mover; its relays are open. A's bandwidth idle and
beside B; B's steps a second, median and 99th percentile alone, beside A natively and with braid.
--mps: all of it under NVIDIA's MPS. Ends with: N passed, N failed, N skipped; what fails is a wrong
byte or a process that ends, no figure.
"""
import argparse
import json
import os
import pathlib
import select
import subprocess
import sys

from support.gpus import NEEDS_TWO, count_gpus
from support.tools import mps, nothing, tool
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_S = 180
MIB = 1 << 20
# (name, bytes, bytes of a segment or 0)
SHAPES = (("256 MiB", 256 * MIB, 0), ("1 GiB", 1024 * MIB, 0), ("batch of 64 KB", 256 * MIB, 64 << 10))
DIRECTIONS = ("h2d", "d2h")


class Failure(Exception):
    """A process that ended, does not answer, or has wrong bytes."""


class Child:
    """A process that says that it is ready, and answers lines with lines of JSON."""

    def __init__(self, words, environment):
        self.name = pathlib.Path(words[-1]).name
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1, env=environment)
        self.answer(START_S)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, timeout_s):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        if not ready:
            self.end()
            raise Failure(f"{self.process.args} does not answer in {timeout_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Trial:
    """Both processes, and what was measured of them."""

    def __init__(self, arguments, environment):
        self.build, self.environment = arguments.build.resolve(), environment
        self.seconds, self.modes = arguments.seconds, arguments.modes.split(",")
        self.sides = arguments.sides.split(",")
        self.children = []
        self.rows = []

    def start(self, words):
        self.children.append(Child(words, self.environment))
        return self.children[-1]

    def copier(self, side):
        words = [] if side == "native" else [str(self.build / "bin/braid"), "run", "--opening", "wait"]
        words += ["--mover", side] if side not in ("native", "default") else []
        return self.start([*words, *(["--"] if words else []),
                           str(self.build / "tests/gpu_programs/copier")])

    def copy(self, copier, direction, shape):
        copier.tell(f"{direction} {shape[1]} {shape[2]} {self.seconds}")

    def bandwidth(self, copier):
        answer = copier.answer(30 + 20 * self.seconds)
        if not answer["verified"]:
            raise Failure(f"wrong bytes: {answer}")
        return answer["gbps"]

    def work(self, neighbour, mode):
        neighbour.tell(json.dumps({"mode": mode, "seconds": self.seconds}))

    def steps(self, neighbour):
        return neighbour.answer(30 + 20 * self.seconds)

    def alone(self, neighbour):
        for mode in self.modes:
            self.work(neighbour, mode)
            self.add(side="alone", mode=mode, steps=self.steps(neighbour))

    def add(self, **row):
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def side(self, side, neighbour):
        copier = self.copier(side)
        for direction in DIRECTIONS:
            for shape in SHAPES:
                self.copy(copier, direction, shape)
                self.add(side=side, mode="", direction=direction, shape=shape[0],
                         gbps=self.bandwidth(copier))
                for mode in self.modes:
                    self.copy(copier, direction, shape)
                    self.work(neighbour, mode)
                    gbps = self.bandwidth(copier)
                    self.add(side=side, mode=mode, direction=direction, shape=shape[0], gbps=gbps,
                             steps=self.steps(neighbour))
        copier.end()

    def run(self):
        try:
            neighbour = self.start(["python3", str(ROOT / "tests/gpu/programs/neighbour.py"), "1"])
            self.alone(neighbour)
            for side in self.sides:
                self.side(side, neighbour)
            self.alone(neighbour)  # the machine is what it was
        finally:
            for child in self.children:
                child.end()


def lost(alone, beside):
    """How much of its throughput, and of its 99th percentile, a neighbour has lost, in percent."""
    return (100 * (1 - beside["steps_per_s"] / alone["steps_per_s"]),
            100 * (beside["p99_ms"] / alone["p99_ms"] - 1))


def print_table(rows):
    alone = {row["mode"]: row["steps"] for row in rows if row["side"] == "alone"}
    idle = {(row["side"], row["direction"], row["shape"]): row["gbps"] for row in rows
            if row["side"] != "alone" and not row["mode"]}
    print("| B | A | copies | A idle, GB/s | A beside B | B steps/s | loses % | median ms | p99 ms | p99 + % |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for mode, steps in alone.items():
        print(f"| {mode} | none | | | | {steps['steps_per_s']:.1f} | | {steps['median_ms']:.3f} "
              f"| {steps['p99_ms']:.3f} | |")
    for row in rows:
        if row["side"] == "alone" or not row["mode"]:
            continue
        steps = row["steps"]
        throughput, tail = lost(alone[row["mode"]], steps)
        print(f"| {row['mode']} | {row['side']} | {row['shape']} {row['direction']} "
              f"| {idle[row['side'], row['direction'], row['shape']]:.1f} | {row['gbps']:.1f} "
              f"| {steps['steps_per_s']:.1f} | {throughput:.1f} | {steps['median_ms']:.3f} "
              f"| {steps['p99_ms']:.3f} | {tail:.1f} |")


def why_not(arguments):
    if count_gpus() < 2:
        return NEEDS_TWO
    if not os.access(arguments.build / "tests/gpu_programs/copier", os.X_OK):
        return "the copier was not built"
    if arguments.mps and not tool("nvidia-cuda-mps-control"):
        return "there is no nvidia-cuda-mps-control"
    has_torch = subprocess.run(["python3", "-c", "import torch"], capture_output=True, check=False)
    return "PyTorch is not installed" if has_torch.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--sides", default="native,default")
    parser.add_argument("--modes", default="matmul,decoder,half")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    verdicts = Verdicts()
    why = why_not(arguments)
    if why:
        verdicts.add("skipped", "neighbours", why)
        return verdicts.end()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    failure = ""
    with (mps if arguments.mps else nothing)() as more:
        trial = Trial(arguments, {**clean, **more})
        try:
            trial.run()
        except Failure as why_failed:
            failure = str(why_failed)
    print_table(trial.rows)
    if arguments.json:
        arguments.json.write_text(json.dumps({"mps": arguments.mps, "failure": failure, "rows": trial.rows},
                                             indent=1) + "\n", encoding="utf-8")
    verdicts.add("failed" if failure else "passed", "neighbours", failure)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
