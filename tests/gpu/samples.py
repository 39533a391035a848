#!/usr/bin/env python3
"""Runs NVIDIA's CUDA samples, unmodified, natively and under `braid run` as it comes.

  samples.py --checkout FOLDER [--out FOLDER]  builds the samples of a checkout of NVIDIA/cuda-samples, and runs them
  samples.py --fetch [--out FOLDER]            clones that repository first
  samples.py --binaries FOLDER                 runs what was built before
  samples.py ... --only-build                  builds and runs nothing
  samples.py ... [--braid FILE] [--rounds N] [--option=--mover=kernel ...] [NAME...]

Each sample must end under braid with the exit code that it has natively, and print the same lines:
numbers are masked (most are times), and lines are compared as a set, since threads print some of them
in any order. A sample that does not end well natively is skipped. Nothing of the samples is part of the
project. Ends with: N passed, N failed, N skipped.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/NVIDIA/cuda-samples"
TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Sample:
    folder: str                # below Samples/; its last part is the sample's name
    flags: tuple = ()          # of nvcc
    more: tuple = ()           # sources elsewhere in the checkout
    random: str = ""           # of lines that it prints by chance, natively too

    @property
    def name(self):
        return self.folder.rsplit("/", 1)[-1]


INTRODUCTION, CONCEPTS = "0_Introduction", "2_Concepts_and_Techniques"
FEATURES, DOMAIN, PERFORMANCE = "3_CUDA_Features", "5_Domain_Specific", "6_Performance"
PROCESSES = ("Common/helper_multiprocess.cpp",)
SAMPLES = [
    *(Sample(f"{INTRODUCTION}/{name}") for name in (
        "asyncAPI", "simpleMultiGPU", "simpleMultiCopy", "simpleStreams", "simpleCallback",
        "simpleZeroCopy", "simpleP2P", "simpleHyperQ", "vectorAdd", "matrixMul", "mergeSort",
        "systemWideAtomics")),
    # It draws the sizes of its tasks by the time of day, and small ones run on the host.
    Sample(f"{INTRODUCTION}/UnifiedMemoryStreams", ("-lcublas", "-Xcompiler", "-fopenmp"),
           random="executing on host"),
    Sample(f"{INTRODUCTION}/simpleIPC", more=PROCESSES),
    Sample("1_Utilities/bandwidthTest"),  # in checkouts before 13.0
    *(Sample(f"{CONCEPTS}/{name}") for name in (
        "reduction", "scan", "sortingNetworks", "streamOrderedAllocation", "streamOrderedAllocationP2P",
        "histogram", "convolutionSeparable")),
    Sample(f"{CONCEPTS}/streamOrderedAllocationIPC", ("-lcuda",), PROCESSES),
    *(Sample(f"{FEATURES}/{name}") for name in (
        "simpleCudaGraphs", "StreamPriorities", "graphMemoryNodes")),
    Sample(f"{FEATURES}/cdpSimplePrint", ("-rdc=true", "-lcudadevrt")),
    Sample(f"{PERFORMANCE}/transpose"),
    *(Sample(f"{folder}/concurrentKernels") for folder in (INTRODUCTION, CONCEPTS, PERFORMANCE)),
    Sample(f"{DOMAIN}/MonteCarloMultiGPU", ("-lcurand",)),
    *(Sample(f"{DOMAIN}/{name}") for name in ("BlackScholes", "fastWalshTransform")),
]


def masked(output, random):
    """The lines that a program printed, without their numbers, order and repetitions."""
    text = re.sub(r"0x[0-9a-fA-F]+", "#", output)
    text = re.sub(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", "#", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return {line for line in lines if line and not (random and random in line)}


def sources_of(checkout, sample):
    folder = checkout / "Samples" / sample.folder
    own = [path for path in sorted(folder.rglob("*")) if path.suffix in (".cu", ".cpp")]
    # Some .cu files are included by others.
    included = {name for path in own for name in
                re.findall(r'#include "([^"]+\.cu)"', path.read_text(encoding="utf-8", errors="replace"))}
    return [path for path in own if path.name not in included] + \
        [checkout / name for name in sample.more]


def build(checkout, out, sample, target):
    """"" or why it was not built."""
    sources = sources_of(checkout, sample)
    if not sources:
        return "is not in this checkout"
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    stubs = pathlib.Path(nvcc).resolve().parents[1] / "lib64/stubs"
    words = [nvcc, "-O2", "-std=c++17", f"-arch={target}", "-cudart", "static", "-w", "-I",
             checkout / "Common", "-I", sources[0].parent, "-I", checkout / "Samples" / sample.folder / "inc",
             "-L", stubs, "-Xlinker", "-s", "-o", out / sample.name, *sources, *sample.flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"is not built: {done.stderr[-600:]}"


def build_all(checkout, out, samples, target, jobs):
    out.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        reasons = pool.map(lambda sample: build(checkout, out, sample, target), samples)
        for sample, why in zip(samples, reasons):
            print(f"{sample.name} {why or 'is built'}", flush=True)


def run(words, folder):
    """(exit code or None for a hang, output, the last of what was said)."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    try:
        exit_code, output, errors = run_group(words, clean, TIMEOUT_S, folder)
    except DidNotEnd as hang:
        return None, "", str(hang)[-1500:]
    return exit_code, output, (output + errors)[-1500:]


def judge(sample, program, braid, options, rounds):
    """(passed, failed or skipped; what there is to say)."""
    folder = program.parent
    exit_code, native, said = run([str(program)], folder)
    if exit_code is None:
        return "skipped", "does not end natively"
    if exit_code != 0:
        return "skipped", f"exit code {exit_code} natively: {said[-200:]}"
    for turn in range(rounds):
        code, output, said = run([str(braid), "run", *options, "--", str(program)], folder)
        if code is None:
            return "failed", f"round {turn}: hangs: {said}"
        if code != exit_code:
            return "failed", f"round {turn}: exit code {code}, natively {exit_code}: {said}"
        if differ := masked(native, sample.random) ^ masked(output, sample.random):
            return "failed", f"round {turn}: prints something else: {sorted(differ)[:6]}"
    return "passed", ""


def fetch(folder):
    subprocess.run(["git", "clone", "--depth", "1", "--quiet", REPOSITORY, str(folder)], check=True)
    return folder


def chosen(names):
    """The samples by name, each once."""
    found = collections.OrderedDict()
    for sample in SAMPLES:
        if not names or sample.name in names:
            found.setdefault(sample.name, []).append(sample)
    return found


def pick(checkout, candidates):
    """Of the places where checkouts of other ages have a sample, the one that exists."""
    for sample in candidates:
        if (checkout / "Samples" / sample.folder).is_dir():
            return sample
    return candidates[0]


def prepare(arguments, scratch):
    """The folder with the programs."""
    if arguments.binaries:
        return arguments.binaries.resolve()
    checkout = fetch(scratch / "checkout") if arguments.fetch else arguments.checkout.resolve()
    out = (arguments.out or scratch / "binaries").resolve()
    samples = [pick(checkout, candidates) for candidates in chosen(arguments.names).values()]
    build_all(checkout, out, samples, arguments.target, arguments.jobs)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--checkout", type=pathlib.Path)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--binaries", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only-build", action="store_true")
    parser.add_argument("--target", default="native", help="nvcc's -arch")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--braid", type=pathlib.Path, default=ROOT / "build/bin/braid")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="of braid run")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    verdicts = Verdicts()
    if not (arguments.checkout or arguments.fetch or arguments.binaries):
        verdicts.add("skipped", "samples", "none were given: --checkout, --fetch or --binaries")
        return verdicts.end()
    with tempfile.TemporaryDirectory() as scratch:
        binaries = prepare(arguments, pathlib.Path(scratch))
        if arguments.only_build:
            return 0
        for name, candidates in chosen(arguments.names).items():
            program = binaries / name
            kind, said = judge(candidates[0], program, arguments.braid.resolve(), arguments.option,
                               arguments.rounds) \
                if os.access(program, os.X_OK) else ("skipped", "was not built")
            verdicts.add(kind, name, said)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
