#!/usr/bin/env python3
"""Runs an example on the emulated server: it must verify its bytes and print, for each way, a
bandwidth and that it was accelerated; alone and, as fast, under `braid run`.

  example_test.py BUILD-FOLDER COMMAND...
"""
import os
import pathlib
import re
import subprocess
import sys

SERVER = "h20x8"
TIMEOUT_S = 300


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)
    figures = re.findall(r"([\d.]+) GB/s.* accelerated$", done.stdout, re.M)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    assert "verified" in done.stdout, done.stdout
    assert len(figures) == 2 and all(float(figure) > 0 for figure in figures), done.stdout
    print(done.stdout)
    return [float(figure) for figure in figures]


def main(build, *command):
    build = pathlib.Path(build)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    braid = [str(build / "bin" / "braid"), "run", "--server", SERVER]
    alone = run([*braid, "--native", "--", *command], clean)
    under = run([*braid, "--", *command], clean)
    assert all(there >= 0.98 * here for here, there in zip(alone, under)), f"{alone} -> {under}"


if __name__ == "__main__":
    main(*sys.argv[1:])
