#!/usr/bin/env python3
"""examples/rotate under `braid run`: what rotation leaves to the driver passes the interposer, which would move it
by kernels.

  interposed_test.py BRAID ROTATE [OPTION ...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    report = pathlib.Path(folder) / "report.json"
    command = [sys.argv[1], "run", "--server", "h200x4", "--threshold", "1", "--stats", "json", "--stats-file", report]
    code = subprocess.run([*command, "--", *sys.argv[2:]], check=False).returncode
    assert code == 0, f"exit code {code}"
    entry_points = json.loads(report.read_text(encoding="utf-8"))["braid"]["entry_points"]

assert "braid_copy_batch" in entry_points, entry_points
assert "cuMemcpyBatchAsync" not in entry_points, entry_points
