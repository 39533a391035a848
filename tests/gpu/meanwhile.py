#!/usr/bin/env python3
"""What an operation costs while copies are under way: natively, and beside it under `braid run`.

  meanwhile.py [--build FOLDER] [--sides native,default,kernel,...] [--json FILE] [-- OPTION...]

A side is `native`, `default` (braid as it comes), or a mover. OPTIONs are the program's
(tests/gpu/programs/meanwhile.cu): --only cudaFree,lazy --direction h2d --thread other --limit 5. An
operation that hangs is named, and the rest is run by a new process. Verdicts: `slow` is an
operation that takes half again as long as natively and 5 ms more, `late` the same of the copies beside
it. Ends with: N passed, N failed, N skipped; slow is not failed, except that with --strict it is.
"""
import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

from support.gpus import NEEDS_TWO, count_gpus
from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 400
HANG_EXIT_CODE = 9  # of the program
MOST_HANGS = 12
KEY = ("operation", "gpu", "direction", "thread")


def is_much_more(braid_ms, native_ms):
    return braid_ms > 1.5 * native_ms + 5


def words_of(build, side, options):
    program = str(build / "tests" / "gpu_programs" / "meanwhile")
    prefix = [] if side == "native" else [str(build / "bin" / "braid"), "run"]
    if side not in ("native", "default"):
        prefix += ["--opening", "wait", "--mover", side]
    return [*prefix, *(["--"] if prefix else []), program, *options]


def run_once(build, side, options, file):
    """(exit code, what it printed, why it failed or "")."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    words = [*words_of(build, side, options), "--no-times", "--json", str(file)]
    try:
        exit_code, output, errors = run_group(words, clean, TIMEOUT_S)
    except DidNotEnd as hang:
        return -1, "", str(hang)[-2000:]
    why = f"exit code {exit_code}: {errors.strip()[-2000:]}" if exit_code else ""
    return exit_code, output, why


def run_side(build, side, options):
    """({operation: its times}, what it printed without times, [why it failed]). It goes on behind a hang."""
    printed, reasons, after = "", [], []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "times.json"
        for _ in range(MOST_HANGS):
            exit_code, output, why = run_once(build, side, [*options, *after], file)
            printed += output
            reasons += [why] if why else []
            hang = re.search(r"hang: (?:the copies beside |before |after )?(.*)$", why, re.M)
            if exit_code != HANG_EXIT_CODE or not hang:
                break
            after = ["--after", hang.group(1)]
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {tuple(row[name] for name in KEY): row for row in rows}, printed, reasons


def verdict(native, row):
    words = []
    if is_much_more(row["operation_ms"], native["operation_ms"]):
        words.append("slow")
    if is_much_more(row["copies_ms"], native["copies_ms"]):
        words.append("late")
    return " ".join(words)


def print_table(times, sides):
    print("operation gpu direction thread | " + " | ".join(f"{side} ms (copies)" for side in sides))
    slow = 0
    for key, native in times[sides[0]].items():
        cells, verdicts = [], []
        for side in sides:
            row = times[side].get(key)
            cells.append(f"{row['operation_ms']:8.2f} ({row['copies_ms']:6.1f})" if row else "-")
            verdicts.append(verdict(native, row) if row else "")
        slow += any(verdicts)
        said = "; ".join(f"{side} {said}" for side, said in zip(sides, verdicts) if said)
        print(f"{' '.join(key):60} | {' | '.join(cells)}" + (f" | {said}" if said else ""))
    print(f"{slow} operations are slow, or their copies late")
    return slow


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--sides", default="native,default")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--strict", action="store_true", help="slow is failed")
    parser.add_argument("options", nargs="*", help="of the program")
    arguments = parser.parse_args()
    sides = arguments.sides.split(",")
    verdicts = Verdicts()
    if count_gpus() < 2:
        verdicts.add("skipped", "meanwhile", NEEDS_TWO)
        return verdicts.end()
    times, failed, printed = {}, {}, {}
    for side in sides:
        times[side], printed[side], why = run_side(arguments.build.resolve(), side, arguments.options)
        if not why and printed[side] != printed[sides[0]]:
            why = [f"does not print what {sides[0]} does:\n{printed[side]}"]
        if why:
            failed[side] = why
        verdicts.add("failed" if why else "passed", side, "; ".join(why))
    slow = print_table(times, sides)
    if arguments.json:
        rows = {side: list(found.values()) for side, found in times.items()}
        arguments.json.write_text(json.dumps({"sides": rows, "failed": failed}, indent=1) + "\n",
                                  encoding="utf-8")
    if arguments.strict and slow:
        verdicts.add("failed", "times", f"{slow} operations are slow, or their copies late")
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
