#!/usr/bin/env python3
"""Programs with copies under tools and settings that people use, natively and under `braid run`.

  compatibility.py [--build FOLDER] [--document FILE] [--option=--mover=kernel ...] [NAME...]

Each row is a tool or a setting with a small program. The program must end, verify its bytes, and print
the same lines as natively. The table says: ok (and how many MB braid carried: 0 MB is braid that stays
out), differs, hangs, exit code N, or that a tool is missing. A row that fails natively too is not
braid's, and is skipped. --document writes the table between the marks of docs/compatibility.md. Ends
with: N passed, N failed, N skipped.
"""
import argparse
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Callable

from support.processes import DidNotEnd, run_group
from support.tools import mps, nothing, tool
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/gpu/programs"
MARKS = ("<!-- results -->", "<!-- end of results -->")
SIZE_BYTES = str(48_000_001)
BESIDE_COPIES = "cudaMalloc,cudaFree,kernel.l,graph.capture,cudaHostRegister,cudaMemcpyAsync.pinned"
BESIDE = ("--no-times", "--limit", "20", "--size", str(64 << 20), "--direction", "h2d", "--only", BESIDE_COPIES)
# name: (words below the build folder, or a Python program; what it says of itself)
SUBJECTS = {
    "beside": (("tests/gpu_programs/meanwhile", *BESIDE), r"\S+ (?:target|relay) h2d \w+: ok"),
    "driver": (("tests/gpu_programs/timing", SIZE_BYTES), r'\{"copies".*\}'),
    "green": (("tests/gpu_programs/green", SIZE_BYTES), r"\w[\w ,']+: every byte is right"),
    "torch": (("tensors.py",), r"every tensor is right"),
    "profiled": (("profiled.py",), r"the profiler saw the kernels"),
}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    subject: str
    environment: tuple = ()          # of (name, value)
    tool: str = ""                   # that must be there
    before: tuple = ()               # the tool and its words; the tool runs braid, or the native program
    is_inside: bool = False          # braid runs the tool
    around: Callable = nothing
    timeout_s: int = 120


SMALL_SHM = ("unshare", "-m", "sh", "-c",
             'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh")
NO_SHM = ("unshare", "-m", "sh", "-c",
          'mount -t tmpfs -o ro,size=64k tmpfs /dev/shm && exec "$@"', "sh")
DEBUGGER = ("cuda-gdb", "-batch", "-nx", "-ex", "set confirm off", "-ex", "set pagination off",
            "-ex", "set startup-with-shell off", "-ex", "run", "-ex", "info program", "--args")
COMPUTE = ("ncu", "--target-processes", "all", "--metrics", "gpu__time_duration.sum")
SANITIZER = ("compute-sanitizer", "--target-processes", "all", "--error-exitcode", "99", "--tool")
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
ROWS = [
    Row("nothing else", "beside"),
    Row("nothing else, PyTorch", "torch"),
    Row("PyTorch's profiler (CUPTI)", "profiled"),
    Row("Nsight Compute, outside", "beside", tool="ncu", before=COMPUTE, timeout_s=240),
    Row("Nsight Compute, inside", "beside", tool="ncu", before=COMPUTE, is_inside=True, timeout_s=240),
    Row("Nsight Systems", "beside", tool="nsys",
        before=("nsys", "profile", "--force-overwrite", "true", "-o", "/tmp/braid-compatibility")),
    *(Row(f"compute-sanitizer, {what}", "driver", tool="compute-sanitizer", before=(*SANITIZER, what),
          timeout_s=240) for what in ("memcheck", "racecheck", "synccheck", "initcheck")),
    Row("cuda-gdb, outside", "beside", tool="cuda-gdb", before=DEBUGGER, timeout_s=240),
    Row("cuda-gdb, inside", "beside", tool="cuda-gdb", before=DEBUGGER, is_inside=True, timeout_s=240),
    *(Row(f"{name}={value}", subject, ((name, value),)) for name, value, subject in (
        ("CUDA_LAUNCH_BLOCKING", "1", "beside"), ("CUDA_LAUNCH_BLOCKING", "1", "torch"),
        ("CUDA_MODULE_LOADING", "EAGER", "beside"), ("CUDA_MODULE_LOADING", "EAGER", "torch"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", "beside"), ("CUDA_DEVICE_MAX_CONNECTIONS", "1", "torch"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32", "beside"), ("CUDA_DISABLE_PERF_BOOST", "1", "beside"),
        (ALLOCATOR, "expandable_segments:True", "torch"),
        (ALLOCATOR, "backend:cudaMallocAsync", "torch"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "torch"))),
    Row("green contexts", "green"),
    Row("/dev/shm of 64 KB", "beside", tool="unshare", before=SMALL_SHM),
    Row("/dev/shm that nobody can write to", "beside", tool="unshare", before=NO_SHM),
    Row("MPS", "beside", tool="nvidia-cuda-mps-control", around=mps),
    Row("MPS, PyTorch", "torch", tool="nvidia-cuda-mps-control", around=mps),
]


class Bench:
    def __init__(self, build, options):
        self.build, self.options = build, options
        self.clean = {name: value for name, value in os.environ.items()
                      if not name.startswith("BRAID_")}

    def program(self, subject):
        words = list(SUBJECTS[subject][0])
        if words[0].endswith(".py"):
            return ["python3", str(PROGRAMS / words[0]), *words[1:]]
        return [str(self.build / words[0]), *words[1:]]

    def words(self, row, braid):
        before = [tool(row.before[0]), *row.before[1:]] if row.before else []
        if not braid:  # a tool sees another program become this one, as it does with braid
            starter = ["env"] if before and not row.is_inside else []
            return [*before, *starter, *self.program(row.subject)]
        if row.is_inside:
            return [*braid, *before, *self.program(row.subject)]
        return [*before, *braid, *self.program(row.subject)]

    def run(self, row, braid):
        """(result, the program's own lines, the last that was said)."""
        with row.around() as more:
            environment = {**self.clean, **dict(row.environment), **more}
            try:
                exit_code, output, errors = run_group(self.words(row, braid), environment, row.timeout_s)
            except DidNotEnd as hang:
                return "hangs", [], str(hang)[-1500:]
        lines = sorted(re.findall(SUBJECTS[row.subject][1], output))  # tools print between them
        if exit_code != 0:
            return f"exit code {exit_code}", lines, (output + errors)[-1500:]
        # Tools end well whatever became of the program.
        return "ok" if lines else "the program has not ended", lines, (output + errors)[-1500:]

    def run_under_braid(self, row):
        """The same, and bytes that braid carried, by its own account."""
        with tempfile.TemporaryDirectory() as folder:
            braid = [str(self.build / "bin/braid"), "run", "--stats", "json",
                     "--stats-file", f"{folder}/%p", *self.options, "--"]
            result = self.run(row, braid)
            carried = sum(carried_by(path) for path in pathlib.Path(folder).iterdir())
        return (*result, carried)


def carried_by(path):
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["braid"]["entry_points"]
    except (ValueError, KeyError):
        return 0
    return sum(entry.get("accelerated", {}).get("bytes", 0) for entry in entries.values())


@functools.cache
def has_torch():
    return subprocess.run(["python3", "-c", "import torch"], capture_output=True,
                          check=False).returncode == 0


def why_not(bench, row):
    if row.tool and not tool(row.tool):
        return "tool missing"
    program = bench.program(row.subject)
    if program[0] == "python3":
        return "" if has_torch() else "PyTorch missing"
    if not os.access(program[0], os.X_OK):
        return "was not built"
    return ""


def judge(bench, row):
    """(passed, failed or skipped; natively; under braid; what to say of a failure)."""
    why = why_not(bench, row)
    if why:
        return "skipped", why, "", ""
    try:
        native, native_lines, said = bench.run(row, [])
        if native != "ok":
            return "skipped", native, "", said
        result, lines, said, carried = bench.run_under_braid(row)
    except (OSError, subprocess.SubprocessError) as error:
        return "skipped", f"cannot be set up: {type(error).__name__}", "", str(error)
    if result == "ok" and lines != native_lines:
        result = "differs"
    is_well = result == "ok"
    return ("passed" if is_well else "failed", native,
            f"ok, {carried / 1e6:.0f} MB carried" if is_well else result, "" if is_well else said)


def machine():
    words = [tool("nvidia-smi") or "true", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    asked = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    gpu, _, driver = (asked[0] if asked else "?").partition(", ")
    return f"{len(asked)} x {gpu}, driver {driver}"


def table_row(row, native, result):
    return f"{beginning_of(row)} {native} | {result or '-'} | {datetime.date.today().isoformat()} |"


def beginning_of(row):
    return f"| {row.name} | `{row.subject}` |"


def table(lines):
    return "\n".join(["| beside | program | natively | under `braid run` | tried |", "|---|---|---|---|---|", *lines])


def write_document(file, tried):
    """Rows that were not tried now stay as they are, in the order of ROWS."""
    before, _, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
    old, _, after = rest.partition(MARKS[1])
    lines = []
    for row in ROWS:
        line = tried.get(row) or next((line for line in old.splitlines()
                                       if line.startswith(beginning_of(row))), None)
        lines += [line] if line else []
    file.write_text(f"{before}{MARKS[0]}\n{machine()}\n\n{table(lines)}\n{MARKS[1]}{after}",
                    encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--option", action="append", default=[], help="of braid run")
    parser.add_argument("names", nargs="*", help="parts of rows' names")
    arguments = parser.parse_args()
    bench = Bench(arguments.build.resolve(), arguments.option)
    verdicts, tried = Verdicts(), {}
    for row in ROWS:
        if arguments.names and not any(name.lower() in row.name.lower() for name in arguments.names):
            continue
        kind, native, result, said = judge(bench, row)
        tried[row] = table_row(row, native, result)
        verdicts.add(kind, f"{row.name} ({row.subject})", f"natively {native}"
                     + (f"; under braid {result}" if result else "") + (f"\n{said}" if said else ""))
        if arguments.document:  # a run that is cut short has what it found
            write_document(arguments.document, tried)
    print(table(tried.values()))
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
