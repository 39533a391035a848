#!/usr/bin/env python3
"""The examples that write between processes of this host: they verify their bytes.

  example_test.py fabric_write PROGRAM
  example_test.py kv_push PROGRAM [--gpu]
"""
import re
import signal
import subprocess
import sys

TIMEOUT_S = 120


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def start(*command):
    """The process, and the address that it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    word, address = process.stdout.readline().split()
    assert word == "address", word
    return process, address


def fabric_write(program):
    owner, address = start(program, "own", "127.0.0.1")
    with owner:
        writer = run(program, "write", "127.0.0.1", address)
        output, _ = owner.communicate(timeout=TIMEOUT_S)
        assert writer.returncode == 0 and "GB/s" in writer.stdout, writer.stdout + writer.stderr
        assert owner.returncode == 0 and "verified" in output, (owner.returncode, output)


def kv_push(program, *options):
    demo = run(program, "demo", *options)
    assert demo.returncode == 0 and "-- every byte is right" in demo.stdout, demo.stdout + demo.stderr
    for happening in (r"\d+ of 129 immediates, cancelled and confirmed",
                      r"the pages of dispatch \d+ are free", "A leaves", "C has died",
                      r"to C: \d+ of 129 immediates, lost"):
        assert re.search(happening, demo.stdout), (happening, demo.stdout)
    wrong = run(program, "demo", "--corrupt", *options)
    assert wrong.returncode == 1 and "wrong bytes" in wrong.stderr, (wrong.returncode, wrong.stderr)

    # As on two hosts: the first prefiller leaves when it is told to, and another one goes on.
    decoder, address = start(program, "decode", "127.0.0.1", "40", *options)
    prefill = [program, "prefill", "127.0.0.1", address, *options, "--name"]
    with decoder, subprocess.Popen([*prefill, "first"]) as first:
        output = ""
        while "to first" not in output:
            line = decoder.stdout.readline()
            assert line, output
            output += line
        first.send_signal(signal.SIGTERM)
        assert first.wait(TIMEOUT_S) == 0
        second = run(*prefill, "second")
        output += decoder.communicate(timeout=TIMEOUT_S)[0]
        assert decoder.returncode == 0, output
        assert "40 requests: 32 decoded, every byte is right" in output, output
        assert "first leaves" in output and second.returncode == 0, (output, second)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
