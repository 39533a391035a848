#!/usr/bin/env python3
"""examples/rotate on the emulated server: all ways have the same outputs, and each has moved its bytes as it says.

  example_test.py ROTATE [OPTION ...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    record = pathlib.Path(folder) / "ways.json"
    code = subprocess.run([*sys.argv[1:], "--json", str(record)], check=False).returncode
    assert code == 0, f"exit code {code}"
    ways = {way["way"]: way for way in json.loads(record.read_text(encoding="utf-8"))}

assert all(way["is_equal"] for way in ways.values()), ways
assert sorted(ways) == ["all fit", "recomputation", "rotation, every link", "rotation, one link"], ways
for name in ("rotation, one link", "rotation, every link"):
    assert ways[name]["down_bytes"] > 0 and ways[name]["up_bytes"] > 0, ways[name]
    assert ways[name]["computed_tokens"] == ways["all fit"]["computed_tokens"], ways[name]
every_link = ways["rotation, every link"]
assert every_link["several_links_bytes"] == every_link["down_bytes"] + every_link["up_bytes"], every_link
assert ways["rotation, one link"]["several_links_bytes"] == 0, ways["rotation, one link"]
assert ways["recomputation"]["computed_tokens"] > ways["all fit"]["computed_tokens"], ways["recomputation"]
