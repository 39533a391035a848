#!/usr/bin/env python3
"""examples/fabric_write between two processes of this host: the bytes are verified.

  example_test.py PROGRAM
"""
import subprocess
import sys

TIMEOUT_S = 60


def main(program):
    with subprocess.Popen([program, "own", "127.0.0.1"], stdout=subprocess.PIPE, text=True) as owner:
        word, address = owner.stdout.readline().split()
        assert word == "address", word
        writer = subprocess.run([program, "write", "127.0.0.1", address], capture_output=True,
                                text=True, timeout=TIMEOUT_S, check=False)
        output, _ = owner.communicate(timeout=TIMEOUT_S)
        assert writer.returncode == 0 and "GB/s" in writer.stdout, writer.stdout + writer.stderr
        assert owner.returncode == 0 and "verified" in output, (owner.returncode, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
