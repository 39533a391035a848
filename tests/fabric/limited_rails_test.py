#!/usr/bin/env python3
"""`braid fabric bench --limited-rails`: every byte is right, and the rails are used together. Where
something is missing on this machine it says what, and the exit code is 77.

    limited_rails_test.py build/bin/braid
"""
import json
import pathlib
import subprocess
import sys
import tempfile

LEAST_RATIO = 0.3  # of the four rails' sum: more than one of them has
TRIES = 3  # a busy machine may be slow in one of them


def ratio():
    """The share of the rails' sum that the bench reaches."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "records.json"
        done = subprocess.run([sys.argv[1], "fabric", "bench", "--limited-rails", "--turns", "1", "--json", file],
                              check=False, timeout=190)
        assert done.returncode == 0, done
        record, = json.loads(file.read_text())
    if record["waived"]:
        sys.exit(77)
    assert record["verified"], record
    return record["ratio"]


def main():
    ratios = []
    while len(ratios) < TRIES and max(ratios, default=0) < LEAST_RATIO:
        ratios.append(ratio())
    assert max(ratios) >= LEAST_RATIO, ratios


if __name__ == "__main__":
    main()
