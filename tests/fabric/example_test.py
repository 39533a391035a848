#!/usr/bin/env python3
"""The examples that write between processes of this host: they verify their bytes.

  example_test.py fabric_write PROGRAM
  example_test.py kv_push PROGRAM [--gpu]
"""
import contextlib
import re
import signal
import subprocess
import sys

TIMEOUT_S = 300


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def start(*command):
    """The process, and the address that it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    word, address = process.stdout.readline().split()
    assert word == "address", word
    return process, address


@contextlib.contextmanager
def killed_at_end(*processes):
    """Those that still run: who waits for one that has failed would wait for ever."""
    with contextlib.ExitStack() as all_processes:
        for process in processes:
            all_processes.enter_context(process)
            all_processes.callback(process.kill)
        yield


def fabric_write(program):
    owner, address = start(program, "own", "127.0.0.1")
    with killed_at_end(owner):
        writer = run(program, "write", "127.0.0.1", address)
        output, _ = owner.communicate(timeout=TIMEOUT_S)
        assert writer.returncode == 0 and "GB/s" in writer.stdout, writer.stdout + writer.stderr
        assert owner.returncode == 0 and "verified" in output, (owner.returncode, output)
    for wrong in ("not-hex!", address[:-1]):
        writer = run(program, "write", "127.0.0.1", wrong)
        assert writer.returncode == 1 and "is no address" in writer.stderr, (writer.returncode, writer.stderr)


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
    first = subprocess.Popen([*prefill, "first"])
    with killed_at_end(decoder, first):
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
    kv_push_ends_without_prefillers(program, *options)
    # On a busy machine all may be decoded before the prefiller stands still, or the other one does not get far.
    assert any(kv_push_goes_on(program, *options) for _ in range(5))


def kv_push_ends_without_prefillers(program, *options):
    """The only one is killed in the middle, and nobody comes instead: the decoder says so."""
    patience_s = 6  # the prefiller starts within it too
    command = [program, "decode", "127.0.0.1", "400", "--patience", str(patience_s), *options]
    decoder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with killed_at_end(decoder):
        address = decoder.stdout.readline().split()[1]
        only = subprocess.Popen([program, "prefill", "127.0.0.1", address, *options, "--name", "only"])
        with killed_at_end(only):
            lines = [decoder.stdout.readline()]
            while "to only" not in lines[-1]:
                lines.append(decoder.stdout.readline())
                assert lines[-1], lines
            only.kill()
            output, error = decoder.communicate(timeout=TIMEOUT_S)
    assert decoder.returncode == 1 and re.search("only (has died|is lost)", output), (output, error)
    assert re.search(rf"\d+ requests have waited for {patience_s} s: no prefiller is here", error), error


def kv_push_goes_on(program, *options):
    """One of two prefillers stands still in the middle: the other gets its requests, and the decoder
    waits for nobody. When it goes on it learns that it was given up. False: nothing was left to do, or the
    other one has ended no more meanwhile than it may have had before."""
    decoder, address = start(program, "decode", "127.0.0.1", "60", *options)
    prefill = [program, "prefill", "127.0.0.1", address, *options, "--name"]
    stopped, other = (subprocess.Popen([*prefill, name]) for name in ("stopped", "other"))
    with killed_at_end(decoder, stopped, other):
        lines = []

        def read_until(word):
            while not lines or word not in lines[-1]:
                line = decoder.stdout.readline()
                if not line:
                    return False
                lines.append(line)
            return True

        try:
            assert read_until("to stopped"), lines
            stopped.send_signal(signal.SIGSTOP)
            at_stop = len(lines)
            if not read_until("stopped is silent"):
                assert "60 requests: 60 decoded, every byte is right" in "".join(lines), lines
                return False
            goes_on = sum("to other" in line for line in lines[at_stop:]) >= 3  # two may have been its own before
        finally:
            stopped.send_signal(signal.SIGCONT)
        output = "".join(lines) + decoder.stdout.read()
        assert decoder.wait(TIMEOUT_S) == 0, output
        assert re.search(r"to stopped: \d+ of \d+ immediates, lost", output), output
        assert re.search(r"60 requests: \d+ decoded, every byte is right", output), output
        assert (stopped.wait(TIMEOUT_S), other.wait(TIMEOUT_S)) == (0, 0), output
    return goes_on


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
