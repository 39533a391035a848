#!/usr/bin/env python3
"""Runs kernels and programs under NVIDIA's compute-sanitizer, where that is installed.

  sanitizer.py [--build FOLDER]

Only what holds no stream back: the sanitizer may run one kernel at a time, and a kernel that waits
for the host to enqueue another would wait for ever. Ends with: N passed, N failed, N skipped.
"""
import argparse
import os
import pathlib
import shutil
import sys

from support.gpus import NEEDS_TWO, count_gpus
from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 180
ERRORS_FOUND = 99  # the exit code that the sanitizer is told to use
SIZE_BYTES = str(16_000_001)
# (what, the sanitizer's tools, program below the build folder, arguments, under braid). Without braid
# run the program is a test of the engine, which needs two GPUs.
RUNS = [
    ("copies and the program's kernels", ("memcheck", "racecheck", "synccheck"),
     "tests/gpu_kernels_test", ["--gtest_filter=*/KernelsTest.KernelsBehindACopySeeItsBytes/*"], False),
    ("copies and batches of every shape", ("memcheck",), "tests/multipath_transfer_test",
     ["--gtest_filter=BytesTest.AreRightAtRandomShapesOnEveryTarget:"
      "BatchTest.ScatteredSegmentsOfAnySizeArriveWhole"], False),
    # Here braid stays out.
    ("timing", ("memcheck", "initcheck"), "tests/gpu_programs/timing", [SIZE_BYTES], True),
]


def find_sanitizer():
    """The tool, or None: on PATH, or in the toolkit."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    places = [f"{home}/{below}" for home in homes if home for below in ("bin", "compute-sanitizer")]
    return shutil.which("compute-sanitizer") or \
        shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def run(words, environment):
    """"" when all is well, else why not."""
    try:
        exit_code, output, errors = run_group(words, environment, TIMEOUT_S)
    except DidNotEnd as hang:
        return f"did not end in {TIMEOUT_S} s\n{str(hang)[-4000:]}"
    output += errors
    if exit_code == ERRORS_FOUND:
        return f"errors were found\n{output[-8000:]}"
    # A tool that could not attach says nothing about the program.
    if exit_code == 0 and "ERROR SUMMARY: 0 errors" not in output \
            and "RACECHECK SUMMARY: 0 hazards" not in output:
        return f"there is no summary\n{output[-4000:]}"
    return "" if exit_code == 0 else f"exit code {exit_code}\n{output[-4000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    build = parser.parse_args().build.resolve()
    sanitizer, gpus = find_sanitizer(), count_gpus()
    environment = dict(os.environ, BRAID_TEST_DRIVER="libcuda.so.1")
    verdicts = Verdicts()
    for what, tools, program, arguments, under_braid in RUNS:
        prefix = [str(build / "bin/braid"), "run", "--costs", "none", "--opening", "wait", "--"] if under_braid else []
        for tool in tools:
            name = f"{tool}: {what}" + (" under braid" if under_braid else "")
            if sanitizer is None:
                kind, said = "skipped", "compute-sanitizer is not installed"
            elif gpus < 2 and not under_braid:
                kind, said = "skipped", NEEDS_TWO
            else:
                said = run([sanitizer, "--tool", tool, "--target-processes", "all",
                            "--error-exitcode", str(ERRORS_FOUND), *prefix,
                            str(build / program), *arguments], environment)
                kind = "failed" if said else "passed"
            verdicts.add(kind, name, said)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
