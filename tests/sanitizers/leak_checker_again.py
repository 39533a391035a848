#!/usr/bin/env python3
"""Runs tests of another build. The leak checker stops all threads when a process ends, and sometimes
cannot stop one that is ending too: a test that failed so, and no other, runs once more, and again.

    leak_checker_again.py CTEST FOLDER PATTERN
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

FAULT = "LeakSanitizer has encountered a fatal error"
TRIES = 3


def run(ctest, folder, pattern, report):
    done = subprocess.run([ctest, "--test-dir", folder, "-R", pattern, "--output-on-failure", "--no-tests=error",
                           "--output-junit", report, "--test-output-size-failed", str(1 << 30)], check=False)
    if done.returncode == 0:
        return []
    failed = [case for case in xml.etree.ElementTree.parse(report).iter("testcase") if case.get("status") == "fail"]
    for case in failed:
        if FAULT not in (case.findtext("system-out") or ""):
            sys.exit(f"{case.get('name')} has failed")
    return [case.get("name") for case in failed] or sys.exit("no test has failed, and not all is well")


def main():
    ctest, folder, pattern = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(TRIES):
            names = run(ctest, folder, pattern, pathlib.Path(scratch) / "report.xml")
            if not names:
                return
            pattern = "^(" + "|".join(map(re.escape, names)) + ")$"
    sys.exit(f"the leak checker has failed {TRIES} times: {names}")


if __name__ == "__main__":
    main()
