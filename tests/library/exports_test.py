#!/usr/bin/env python3
"""A library of braid's exports what its C header declares and nothing else, needs only the C library,
and the header alone is C.

  exports_test.py LIBRARY HEADER C-COMPILER
"""
import pathlib
import re
import subprocess
import sys

library, header, compiler = sys.argv[1:]


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


exported = {line.split()[-1] for line in lines("nm", "-D", "--defined-only", library)}
declared = set(re.findall(r"BRAID_API[^;(]*\b(braid_\w+)\(", pathlib.Path(header).read_text("utf-8")))
assert exported == declared and declared, f"{exported ^ declared} are only declared or only exported"

needed = [re.search(r"\[(.*)\]", line).group(1) for line in lines("readelf", "-dW", library)
          if "(NEEDED)" in line]
strangers = [name for name in needed if not re.match(r"lib(c|m|dl)\.so|ld-linux", name)]
assert not strangers, f"needs {strangers}"

subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                "-I", str(pathlib.Path(header).parents[1]), "-x", "c", "-include", header, "/dev/null"], check=True)
