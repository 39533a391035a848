#!/usr/bin/env python3
"""examples/transfer: an owner and who uses its memory, each of which verifies its bytes.

  example_test.py PROGRAM [SCRIPT]    SCRIPT: the same in Python; either serves the other
"""
import itertools
import os
import subprocess
import sys

TIMEOUT_S = 200
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}


def run(*command):
    return subprocess.run(command, env=CLEAN, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def owner_and_user(owner, user):
    with subprocess.Popen([*owner, "own"], env=CLEAN, stdout=subprocess.PIPE, text=True) as process:
        try:
            name = process.stdout.readline().strip()
            used = run(*user, "use", name)
            assert (used.returncode, used.stdout) == (0, "verified what was read\n"), (owner, user, used)
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "verified what was written\n"), (owner, user, output)


def main(program, *script):
    ways = [[program], *([sys.executable, each] for each in script)]
    for owner, user in itertools.product(ways, ways):
        owner_and_user(owner, user)
    for way in ways:
        lost = run(*way, "use", "braid://127.0.0.1:1")
        assert lost.returncode == 1 and "127.0.0.1:1" in lost.stderr, lost
        assert "usage: " in run(*way).stderr, way


if __name__ == "__main__":
    main(*sys.argv[1:])
