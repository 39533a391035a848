#!/usr/bin/env python3
"""pkg-config alone tells what a program needs to be built with a library of an installed tree.

  pkg_config_test.py PKG-CONFIG PREFIX LIBRARY VERSION SOURCE COMPILER [FLAG...]
"""
import os
import pathlib
import subprocess
import sys
import tempfile


def main(pkg_config, prefix, library, version, source, compiler, *flags):
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": f"{prefix}/lib/pkgconfig", "LD_LIBRARY_PATH": f"{prefix}/lib"}
    for question in (["--exact-version", version], ["--cflags", "--libs"]):
        found = subprocess.run([pkg_config, *question, library], capture_output=True, text=True, check=False,
                               env=environment)
        assert found.returncode == 0, found.stderr
    with tempfile.TemporaryDirectory(prefix="braid-pkg-config-") as folder:
        program = pathlib.Path(folder) / library
        subprocess.run([compiler, "-std=c++17", *flags, source, "-o", program, *found.stdout.split()], check=True)
        subprocess.run([program], env=environment, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
