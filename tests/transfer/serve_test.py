#!/usr/bin/env python3
"""`braid serve`: files alone, and memory of a GPU; another process reads them and compares every byte. And where
peers of other hosts reach it.

  serve_test.py BRAID LIBRARY EMULATOR-FOLDER PROFILE
"""
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
BRAID, LIBRARY, EMULATOR, PROFILE = sys.argv[1:5]
os.environ["BRAID_TRANSFER_LIBRARY"] = LIBRARY
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from braid import transfer  # noqa: E402

SIZE = 3_000_001
LOCAL = ["--address", "127.0.0.1", "--listen", "127.0.0.1:0"]


@contextlib.contextmanager
def serving(*words, lines=2, **environment):
    """What it says first, a line each."""
    with serving_at(*LOCAL, *words, lines=lines, **environment) as said:
        yield said


@contextlib.contextmanager
def serving_at(*words, lines=2, **environment):
    command = [BRAID, "serve", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **environment)) as served:
        try:
            yield [served.stdout.readline().strip() for _ in range(lines)]
            served.terminate()
            report = served.stdout.read()
            assert served.wait(60) == 0, report
        finally:
            served.kill()


def files_alone():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    data = random.Random(seed).randbytes(SIZE)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "file").write_bytes(data)
        with serving("--memory", 0, "--export", f"kv={folder}") as (name, said):
            assert said == "no memory, files alone", said
            engine = transfer.Transfer(listen="127.0.0.1:0", addresses=("127.0.0.1",))
            memory = mmap.mmap(-1, SIZE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            engine.register_memory(address, SIZE, 0)
            segment = engine.open_segment(name)
            assert engine.ranges(segment) == []
            file = engine.open_file(segment, "kv/file", transfer.MAY_READ)
            batch = engine.submit(file, transfer.READ, [address], [0], [SIZE])
            assert engine.wait(batch, 60) and engine.outcomes(batch) == [transfer.DONE]
            assert memory[:] == data
            engine.close()


def nothing_at_all():
    done = subprocess.run([BRAID, "serve", *LOCAL, "--memory", "0"], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and "nothing is to be served" in done.stderr, done


def braid(*words, **environment):
    return subprocess.run([BRAID, *words], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, **environment))


def what_others_ask():
    for words in (["serve", "--memory", "-1"], ["serve", "--seconds", "-5"], ["rails", "x", "--explain", "--size", "-1"]):
        done = braid(*words)
        assert done.returncode == 1 and f"'{words[-1]}' is not 0 or more" in done.stderr, done
    done = braid("segments", "192.0.2.2:4750")
    assert done.returncode == 1 and "Write braid://192.0.2.2:4750" in done.stderr, done
    said = [(["segments", "--count", "2"], "--count is for --watch. Add --watch, or leave it out"),
            (["rails", "--interval", "2"], "--interval is for --watch. Add --watch, or leave it out"),
            (["rails", "--explain"], "Write: braid rails --explain NAME"),
            (["serve", "--memory", "1000T", "--seconds", "1"], "Name a --memory that this host has free"),
            (["serve", "--export", "kv=/none", "--seconds", "1"], "Make the folder, or name another"),
            (["serve", "--secret-file", "/none", "--seconds", "1"], "head -c 32 /dev/urandom > /none; chmod 600 /none")]
    for words, remedy in said:
        done = braid(*words)
        assert done.returncode == 1 and remedy in done.stderr, (words, done)
    with tempfile.TemporaryDirectory() as folder:
        for words in (["segments", "nosuch"], ["rails", "nosuch"], ["tebench", "--target_seg_name", "nosuch"]):
            done = braid(*words, BRAID_RUNTIME_DIR=folder)
            assert done.returncode == 1 and "`braid segments` lists the names" in done.stderr, (words, done)
    with serving("--memory", "1M") as (name, _):
        done = braid("rails", name, "--allow-unauthenticated")
        assert done.returncode == 0 and done.stdout.startswith("no links yet"), done


def limited():
    """Without the refusal that is tested, this process ends alone, and the host keeps its memory."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))


def more_memory_than_is_left_is_refused():
    all_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    size = f"{2 * all_gib + 64}G"
    for words in (["serve", "--memory", size, "--seconds", "1"], ["tebench", "--pair", "--total_buffer_size", size]):
        done = subprocess.run([BRAID, *words, *LOCAL[:2]], capture_output=True, text=True, check=False, preexec_fn=limited)
        assert done.returncode == 1 and re.search("(host has|groups have) .* left", done.stderr), (words, done)


def address_of_a_nic():
    """None: this host has loopback alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rails"
        done = braid("rails", "--nics", "^none", "--allow-unauthenticated", "--json", str(file))
        return json.loads(file.read_text())[-1]["address"] if done.returncode == 0 else None


def peers_reach_what_the_name_says():
    address = address_of_a_nic()
    if address is None:
        print("no NIC but loopback: what other hosts reach is not tested")
        return
    trusting = ["--allow-unauthenticated", "--memory", "1M"]
    for words in (["--listen", f"{address}:0"], ["--listen", "0.0.0.0:0", "--address", address],
                  ["--listen", "[::]:0", "--nics", "^none"]):
        with serving_at(*words, *trusting) as (name, _):
            assert name.startswith(f"braid://{address}:"), (words, name)
            done = braid("segments", name, "--allow-unauthenticated")
            assert done.returncode == 0 and re.search(rf"tcp;ofi_rxm +{re.escape(address)} ", done.stdout), done
    with tempfile.TemporaryDirectory() as folder:
        plot = pathlib.Path(folder) / "ways.svg"
        done = braid("tebench", "--pair", "--listen", f"{address}:0", "--allow-unauthenticated", "--provider",
                     "tcp;ofi_rxm", "--total_buffer_size", "1M", "--max_block_size", "4K", "--duration", "0.1",
                     "--warm_up", "0", "--plot", str(plot))
        assert done.returncode == 0 and f"{address} to {address}" in plot.read_text(), done


def addresses_that_nobody_reaches():
    elsewhere = "198.51.100.1"  # RFC 5737: of documentation
    said = [(["serve", "--listen", "0.0.0.0:4999"], "'0.0.0.0' listens at every address", "--nics"),
            (["serve", "--address", "0.0.0.0"], "'0.0.0.0' stands for all", "127.0.0.1"),
            (["serve", "--listen", ":4999"], "':4999' has no host", "host:port"),
            (["serve", "--listen", f"{elsewhere}:4999"], f"'{elsewhere}' is no address of this host", "127.0.0.1"),
            (["serve", "--address", elsewhere], f"'{elsewhere}' is no address of this host", "127.0.0.1"),
            (["fabric", "doctor", "--address", elsewhere], f"'{elsewhere}' is no address of this host", "127.0.0.1")]
    with tempfile.NamedTemporaryFile() as secret:  # without one, all of these are refused
        secret.write(random.randbytes(32))
        secret.flush()
        for words, wrong, remedy in said:
            more = ["--seconds", "1"] if words[0] == "serve" else []
            done = braid(*words, *more, BRAID_FABRIC_SECRET_FILE=secret.name)
            text = done.stderr + done.stdout  # a doctor prints what it finds
            assert done.returncode == 1 and wrong in text and remedy in text, done


def memory_of_a_gpu():
    """tebench reads and writes it, and compares."""
    emulated = {"LD_LIBRARY_PATH": EMULATOR, "BRAID_SERVER": PROFILE}
    with serving("--memory", "4M", "--gpu", 0, **emulated) as (name, said):
        assert "memory of GPU 0 of 4194304 bytes" in said, said
        words = [BRAID, "tebench", "--address", "127.0.0.1", "--gpu-memory", "--target_seg_name", name,
                 "--total_buffer_size", "4M", "--start_block_size", "64K", "--max_block_size", "64K", "--duration",
                 "0.2", "--warm_up", "0", "--check_consistency"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False,
                              env=dict(os.environ, **emulated))
        assert done.returncode == 0, done


def main():
    files_alone()
    nothing_at_all()
    what_others_ask()
    more_memory_than_is_left_is_refused()
    peers_reach_what_the_name_says()
    addresses_that_nobody_reaches()
    memory_of_a_gpu()
    print("what is served is right")


if __name__ == "__main__":
    main()
