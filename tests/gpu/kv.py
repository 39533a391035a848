#!/usr/bin/env python3
"""KV caches that rotate, on real GPUs: the tests of tests/kv, examples/rotate, bench/kv's bytes, and, where PyTorch is,
examples/rotate_torch.py.

  kv.py [--build FOLDER] [--json FILE]

examples/rotate serves the same requests with a cache in which they fit, by rotation over the GPU's own link,
by rotation over every link, and by computing again: outputs are equal bit for bit. With one GPU every link is
its own one. FILE gets what each way took. Ends with: N passed, N failed, N skipped.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

from support.processes import DidNotEnd, run_group
from support.verdicts import Verdicts

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
TESTS = ("kv_rotation_test", "kv_braid_test", "kv_library_test", "kv_processes_test")
# 32 requests of 10 blocks of 64 KiB, of which the GPU holds half. (Its kernels are simple, and slow.)
LOAD = ("--layers", "8", "--requests", "32", "--prompt", "128", "--output", "32", "--slots", "160")
BENCH = ("--bytes", "64M", "--turns", "1", "--kernels", "20")


def counts_of(report):
    """How many tests of a GoogleTest report ran, and how many were waived."""
    tests = [test for suite in report["testsuites"] for test in suite["testsuite"]]
    waived = sum(test["result"] == "SKIPPED" for test in tests)
    return len(tests) - waived, waived


def run_tests(verdicts, name, program, environment):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        code, output, errors = run_group([str(program), f"--gtest_output=json:{file}"],
                                         dict(environment, BRAID_TEST_DRIVER="libcuda.so.1"), TIMEOUT_S)
        if code or not file.is_file():
            verdicts.add("failed", name, f"exit code {code}\n{(output + errors)[-8000:]}")
            return
        ran, waived = counts_of(json.loads(file.read_text(encoding="utf-8")))
    verdicts.add("passed" if ran else "skipped", name, f"{ran} tests, {waived} waived")


def run_program(verdicts, name, words, environment):
    code, output, errors = run_group(words, environment, TIMEOUT_S)
    verdicts.add("failed" if code else "passed", name, (output + errors).strip()[-8000:])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--json", type=pathlib.Path, help="of examples/rotate")
    options = parser.parse_args(arguments)
    build = options.build.resolve()
    libraries = build / "lib"
    environment = dict(os.environ, BRAID_LIBRARY=str(libraries / "libbraid.so.0"),
                       BRAID_KV_LIBRARY=str(libraries / "libbraid_kv.so.0"),
                       LD_LIBRARY_PATH=f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    rotate = [str(build / "tests" / "rotate"), *LOAD]
    if options.json is not None:
        rotate += ["--json", str(options.json)]
    cases = [(run_tests, name, build / "tests" / name) for name in TESTS]
    cases += [(run_program, "examples/rotate", rotate),
              (run_program, "bench/kv", [str(build / "bin" / "rotation"), *BENCH])]
    torch = [sys.executable, str(ROOT / "examples" / "rotate_torch.py")]
    verdicts = Verdicts()
    if importlib.util.find_spec("torch"):
        cases.append((run_program, "examples/rotate_torch.py", torch))
    else:
        verdicts.add("skipped", "examples/rotate_torch.py", "PyTorch is not installed")
    for run, name, what in cases:
        try:
            run(verdicts, name, what, environment)
        except DidNotEnd as hung:
            verdicts.add("failed", name, str(hung)[-8000:])
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
