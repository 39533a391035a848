#!/usr/bin/env python3
"""Runs unmodified programs natively and under `braid run`, and holds the two to account.

  programs.py [--build FOLDER] [--server PROFILE] [--mover MOVER] [--jobs N] [NAME...]

Each program verifies every byte by itself, and ends with a line that says what it copied, by kind
(tests/gpu/programs/program.h). Under braid it must print exactly what it prints natively (one that may
differ from run to run by itself: what it prints natively in two runs), and braid's
statistics must show each kind of copy under the outcome that it should have: what can be carried was
carried, over more than one link, and the rest was passed on. Runs on the machine's GPUs, or with
--server on an emulated one, where only those programs run that need no kernels of their own.

Ends with one line: N passed, N failed, N skipped. Exits with 77 when nothing could run.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from support.gpus import NEEDS_TWO, count_gpus
from support.processes import DidNotEnd, run_group
from support.repeated import NativeRuns
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What becomes of each kind of copy (programs/program.h, docs/statistics.md).
OUTCOMES = {"pinned": "accelerated", "small": "below_threshold", "pageable": "staged",
            "managed": "not_linear", "imported": "not_linear", "narrow": "not_linear",
            "captured": "capturing"}
# By option: what the statistics call the movers that it allows. "auto" is braid's choice for each copy.
MOVERS = {"kernel": ("kernel",), "copy-engine": ("copy_engine",), "auto": ("kernel", "copy_engine")}
# Fixed, so that the outcome of a copy follows from what it is.
OPTIONS = ["--costs", "none", "--threshold", "2M", "--pageable", "2"]
SIZE = "SIZE"  # among arguments: stands for
SIZES = {"emulated": 6_000_001, "gpu": 48_000_001}  # bytes of a program's copies; odd on purpose


class Failure(Exception):
    """Why a program, or what braid says of it, is wrong."""


class NotComparable(Exception):
    """Why a program cannot be held to what it prints natively."""


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    program: str = ""                # "": the same as the name
    arguments: tuple = (SIZE,)
    size_factor: int = 1
    options: tuple = ()              # of braid run
    visible: str = ""                # CUDA_VISIBLE_DEVICES
    movers: tuple = ("kernel", "copy-engine")
    gpu_only: bool = False           # needs kernels of its own, the runtime, or real processes
    complaint: str = ""              # of what braid says, in one line; "": it says nothing
    may_be_silent: bool = False      # braid may say that in any number of lines
    pinned: str = "accelerated"      # the outcome of copies of pinned memory
    may_be_native: tuple = ()        # outcomes that some copies may have instead of `accelerated`,
    least_share: float = 0.5         # while more than this share of the bytes must be carried
    is_cut_short: bool = False       # ends with copies in flight, so paths count fewer bytes
    least_accelerated: int = 0       # of a program that does not count its copies: bytes
    only_prints: bool = False        # the same as natively, and how much is carried is braid's choice
    may_vary: bool = False           # natively: it runs twice, and what differs is not compared
    opens_beside: bool = False       # relays open beside it: some copies, or all, come before
    paths_to_gpu_0: int = 0          # how many links its copies must use; 0: more than one
    every_gpu: bool = False          # paths_to_gpu_0 is the number of the machine's GPUs
    timeout_s: int = 180             # on 4 GPUs several processes wait a minute for contexts


MIB = 1 << 20
RUNTIME_SIZES = (1 << 12, 1 * MIB, 16 * MIB, 256 * MIB)
CASES = [
    # Behind a gate more streams wait at once than relays have channels for.
    Case("block_release", may_be_native=("saturated",)),
    Case("spin_release", gpu_only=True, may_be_native=("saturated",)),
    Case("relay_fails", size_factor=20, gpu_only=True, is_cut_short=True,
         complaint="has refused bytes that it was to relay", may_be_silent=True),
    Case("destinations"),
    Case("imported", gpu_only=True),
    Case("huge", arguments=(str((4 << 30) + 17),), gpu_only=True, timeout_s=300),
    Case("captures"),
    *(Case(f"held.{how}", "held", arguments=(how, SIZE), only_prints=True, movers=tuple(MOVERS),
           least_accelerated=SIZES["emulated"], gpu_only=how not in ("free", "unregister", "successor"))
      for how in ("free", "unregister", "library", "module", "successor", "wait", "spin")),
    # A kernel of braid's would find no room.
    Case("held.persistent", "held", arguments=("persistent", SIZE), only_prints=True, gpu_only=True,
         movers=("copy-engine", "auto"), least_accelerated=SIZES["emulated"]),
    Case("forks"),
    Case("lifecycle"),
    Case("endings", is_cut_short=True),
    *(Case(f"{name}.beside", name, opens_beside=True, may_be_native=("not_ready",),
           is_cut_short=name == "endings")
      for name in ("endings", "forks", "lifecycle", "destinations")),
    # Copy engines carry no batches and no rows.
    Case("shapes", movers=("kernel", "auto")),
    # 24 streams at once, and channels for as few as two of them.
    Case("threads", may_be_native=("not_ready", "saturated"), least_share=0.05),
    Case("timing"),
    Case("lent.all", "lent", size_factor=4, visible="1", options=("--lend", "all"), every_gpu=True),
    Case("lent.list", "lent", size_factor=4, visible="1", options=("--lend", "0"),
         movers=("kernel",), paths_to_gpu_0=2),
    Case("green", gpu_only=True, only_prints=True, movers=tuple(MOVERS)),
    Case("profiled", "profiled.py", arguments=(), gpu_only=True, only_prints=True, movers=tuple(MOVERS)),
    *(Case(name, f"{name}.py", arguments=(), gpu_only=True, only_prints=True, movers=tuple(MOVERS),
           may_vary=name == "generating")
      for name in ("training", "generating")),
    Case("runtime_copies", gpu_only=True, movers=("kernel", "auto")),
    Case("runtime_order", gpu_only=True, may_be_native=("saturated",), least_share=0.25),
    Case("meanwhile", arguments=("--no-times",), gpu_only=True, only_prints=True,
         movers=tuple(MOVERS), least_accelerated=64 << 30, timeout_s=400),
    Case("runtime_lent.shared", "runtime_lent_shared", size_factor=4, visible="1",
         options=("--lend", "all"), gpu_only=True, movers=("kernel",), every_gpu=True),
    Case("runtime_lent.static", "runtime_lent_static", size_factor=4, visible="1",
         options=("--lend", "all"), gpu_only=True, movers=("kernel",), pinned="no_relay",
         complaint="runtime_lent_static holds CUDA's runtime library statically"),
    Case("runtime_ctypes", "runtime_ctypes.py", gpu_only=True),
    Case("runtime_client", "../runtime_client", arguments=tuple(map(str, RUNTIME_SIZES)),
         gpu_only=True, movers=("kernel",), least_accelerated=2 * 10 * (16 + 256) * MIB),
    Case("tensors", "tensors.py", arguments=("",), gpu_only=True, movers=("kernel",),
         least_accelerated=5 * 256 * MIB),
    Case("tensors.lent", "tensors.py", arguments=("1",), visible="1", options=("--lend", "all"),
         gpu_only=True, movers=("kernel",), least_accelerated=5 * 256 * MIB, every_gpu=True),
]


class Machine:
    """Where the programs run: the machine's GPUs, or an emulated server."""

    def __init__(self, build, server, only_mover):
        self.build, self.server, self.only_mover = build, server, only_mover
        self.braid = str(build / "bin" / "braid")
        self.programs = build / "tests" / "gpu_programs"
        self.clean = {name: value for name, value in os.environ.items()
                      if not name.startswith("BRAID_") and name != "CUDA_VISIBLE_DEVICES"}
        self.gpu_count = self.count_gpus()

    def movers_of(self, case):
        return [mover for mover in case.movers if self.only_mover in ("", mover)]

    def count_gpus(self):
        if self.server:
            profile = self.build / "share" / "braid" / "profiles" / f"{self.server}.json"
            return len(json.loads(profile.read_text(encoding="utf-8"))["gpus"])
        return count_gpus()

    def words_of(self, case):
        size = SIZES["emulated" if self.server else "gpu"] * case.size_factor
        arguments = [str(size) if word == SIZE else word for word in case.arguments if word]
        program = case.program or case.name
        if program.endswith(".py"):
            return ["python3", str(ROOT / "tests/gpu/programs" / program), *arguments]
        return [str((self.programs / program).resolve()), *arguments]

    def why_skipped(self, case):
        if case.gpu_only and self.server:
            return "needs a real GPU"
        if self.gpu_count < 2:
            return NEEDS_TWO
        words = self.words_of(case)
        if words[0] == "python3":
            has_torch = subprocess.run(["python3", "-c", "import torch"], capture_output=True,
                                       check=False).returncode == 0
            return "" if has_torch else "PyTorch is not installed"
        return "" if os.access(words[0], os.X_OK) else f"{words[0]} was not built"

    def environment(self, case, native):
        more = {"CUDA_VISIBLE_DEVICES": case.visible} if case.visible else {}
        if native and self.server:
            more["LD_LIBRARY_PATH"] = str(self.build / "lib/braid/emulator")
            more["BRAID_SERVER"] = str(self.build / f"share/braid/profiles/{self.server}.json")
        return {**self.clean, **more}


def run(words, environment, timeout_s, how):
    """What a process and its children printed; it must end in time and well."""
    try:
        exit_code, output, errors = run_group(words, environment, timeout_s)
    except DidNotEnd as hang:
        raise Failure(f"{how}: {hang}") from None
    if exit_code != 0:
        raise Failure(f"{how}: exit code {exit_code}\n{output}{errors}")
    return output, errors


def copies_of(output):
    """{kind: Counter of calls and bytes} of all the processes of a program."""
    copies = collections.defaultdict(collections.Counter)
    for line in output.splitlines():
        if line.startswith('{"copies":'):
            for kind, counted in json.loads(line)["copies"].items():
                copies[kind].update(counted)
    return copies


def run_under_braid(machine, case, mover):
    """(what it printed, braid's statistics of all its processes)."""
    with tempfile.TemporaryDirectory() as folder:
        server = ["--server", machine.server] if machine.server else []
        words = [machine.braid, "run", *server, *OPTIONS, "--mover", mover, "--stats", "json",
                 "--opening", "background" if case.opens_beside else "wait",
                 "--stats-file", f"{folder}/%p", *case.options, "--", *machine.words_of(case)]
        output, errors = run(words, machine.environment(case, native=False), case.timeout_s, mover)
        reports = [json.loads(path.read_text(encoding="utf-8"))["braid"]
                   for path in pathlib.Path(folder).iterdir()]
    said = [line for line in errors.splitlines() if line.startswith("braid: ")]
    is_too_much = any(case.complaint not in line for line in said)
    if is_too_much or not (case.may_be_silent or len(said) == bool(case.complaint)):
        raise Failure(f"{mover}: braid was to say '{case.complaint}':\n{errors}")
    return output, reports


def outcomes_of(reports):
    """{outcome: Counter of calls and bytes} over all processes and entry points."""
    outcomes = collections.defaultdict(collections.Counter)
    for report in reports:
        for entry_point in report["entry_points"].values():
            for outcome, counted in entry_point.items():
                outcomes[outcome].update(counted)
    return outcomes


def check_outcomes(case, copies, outcomes):
    expected = collections.defaultdict(collections.Counter)
    for kind, counted in copies.items():
        expected[case.pinned if kind == "pinned" else OUTCOMES[kind]].update(counted)
    found = {outcome: counted.copy() for outcome, counted in outcomes.items() if counted}
    least_bytes = case.least_share * copies["pinned"]["bytes"]
    if outcomes[case.pinned]["bytes"] <= least_bytes and not case.opens_beside:
        raise Failure(f"braid carried too little: {json.dumps(outcomes)}")
    for outcome in case.may_be_native:
        if outcome in found:
            found.setdefault("accelerated", collections.Counter()).update(found.pop(outcome))
    if found != expected:
        raise Failure(f"outcomes {json.dumps(outcomes)}, expected {json.dumps(expected)}")


def check_paths(machine, case, reports, accelerated, is_staging):
    """The bytes by path are those that were carried, and each direction used several links."""
    paths = [path for report in reports for path in report["paths"] if path["bytes"]]
    carried = sum(path["bytes"] for path in paths)
    if carried > accelerated and not is_staging:
        raise Failure(f"the paths count {carried} bytes, {accelerated} were carried")
    if carried < accelerated and not case.is_cut_short:
        raise Failure(f"the paths count {carried} bytes only, {accelerated} were carried")
    # A link that was found busy is left alone for a while, so it need not have been used.
    left_alone = {relay["gpu"] for report in reports for relay in report["relays"]
                  if relay["congested"] or relay["shared"]}
    wanted = machine.gpu_count if case.every_gpu else case.paths_to_gpu_0
    is_helped = case.pinned == "accelerated" and not case.is_cut_short and not case.opens_beside
    for direction in ("h2d", "d2h") if is_helped else ():
        links = {path["via"] for path in paths
                 if path["direction"] == direction and path["target"] == 0}
        most = len(links | left_alone)
        if not links or most < 2 or (wanted and not len(links) <= wanted <= most):
            raise Failure(f"{direction}: GPU 0 used the links of GPUs {sorted(links)}")
    by_relays = sum(path["bytes"] for path in paths if path["via"] != path["target"])
    return by_relays / carried if carried else 0


def check_statistics(machine, case, mover, output, reports):
    """Raises Failure, or says what braid did."""
    outcomes = outcomes_of(reports)
    accelerated = outcomes["accelerated"]["bytes"]
    if accelerated < case.least_accelerated:
        raise Failure(f"carried {accelerated} bytes, not {case.least_accelerated}")
    if case.only_prints:
        return f"{accelerated / 1e6:.0f} MB carried"
    if not case.least_accelerated:
        check_outcomes(case, copies_of(output), outcomes)
    moved = sum(report["movers"].get(name, {}).get("bytes", 0)
                for report in reports for name in MOVERS[mover])
    staged = outcomes["staged"]["bytes"]  # by a mover where a chunk gains from one
    if not accelerated <= moved <= accelerated + staged:
        raise Failure(f"{mover} moved {moved} bytes, {accelerated} were carried, {staged} staged")
    by_relays = check_paths(machine, case, reports, accelerated, outcomes["staged"]["calls"] > 0)
    return f"{accelerated / 1e6:.0f} MB carried, {100 * by_relays:.0f} % by relays"


def check_case(machine, case):
    """Raises Failure or NotComparable, or says how long each run took and what braid did."""
    def timed(work):
        start = time.monotonic()
        return work(), f"{time.monotonic() - start:.1f} s"
    words = machine.words_of(case)

    def run_natively():
        return run(words, machine.environment(case, native=True), case.timeout_s, "natively")[0]
    native, took = timed(run_natively)
    runs = NativeRuns(native, run_natively() if case.may_vary else native)
    said = [f"native {took}"]
    for mover in machine.movers_of(case):
        (output, reports), took = timed(lambda m=mover: run_under_braid(machine, case, m))
        difference = runs.difference(output)
        if (case.only_prints or not case.least_accelerated) and difference:
            raise Failure(f"{mover}: printed {difference}")
        try:
            said.append(f"{mover} {took}: {check_statistics(machine, case, mover, output, reports)}")
        except Failure as failure:
            raise Failure(f"{mover}: {failure}") from None
    if why := runs.why_not_comparable():
        raise NotComparable(f"{why}. The other lines are the same under braid")
    return "; ".join(said)


def judge(machine, case):
    """(passed, failed or skipped; what there is to say)."""
    why = machine.why_skipped(case)
    if why:
        return "skipped", why
    try:
        return "passed", check_case(machine, case)
    except Failure as failure:
        return "failed", str(failure)
    except NotComparable as why:
        return "skipped", str(why)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--server", help="an emulated server's profile; default: the machine's GPUs")
    parser.add_argument("--mover", choices=MOVERS, default="", help="default: all of a case's")
    parser.add_argument("--jobs", type=int, default=2,
                        help="programs at a time: most of their seconds go into starting CUDA")
    parser.add_argument("names", nargs="*", help="programs; default: all")
    arguments = parser.parse_args()
    machine = Machine(arguments.build.resolve(), arguments.server, arguments.mover)
    cases = [case for case in CASES if not arguments.names
             or case.name in arguments.names or case.name.split(".")[0] in arguments.names]
    if not cases:
        parser.error(f"no such program; there are {', '.join(case.name for case in CASES)}")
    verdicts = Verdicts()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda case: judge(machine, case), cases)
        for case, (kind, said) in zip(cases, results):
            verdicts.add(kind, case.name, said)
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
