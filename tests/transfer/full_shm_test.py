#!/usr/bin/env python3
"""A full /dev/shm, which others fill too, ends nobody: a peer that is there goes on, and one that finds no room takes TCP.
/dev/shm is to be one of this process's own (says.py --private-shm).

  full_shm_test.py PYTHON-FOLDER LIBRARY
"""
import ctypes
import json
import mmap
import os
import subprocess
import sys

python, library = sys.argv[1:3]
os.environ["BRAID_TRANSFER_LIBRARY"] = library
sys.path.insert(0, python)
from braid import transfer  # noqa: E402

SIZE = 8 << 20
MS_REMOUNT = 32
memory = mmap.mmap(-1, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))


def opened():
    engine = transfer.Transfer(listen="127.0.0.1:0", addresses=("127.0.0.1",), providers=("shm", "tcp;ofi_rxm"))
    engine.register_memory(address, SIZE, transfer.MAY_READ | transfer.MAY_WRITE)
    return engine


if len(sys.argv) > 3:  # an owner
    with opened() as engine:
        print(engine.name(), address, flush=True)
        sys.stdin.read()
    sys.exit(0)


class Owner:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, *sys.argv, "owner"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.name, there = self.process.stdout.readline().split()
        self.there = int(there)

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.process.returncode


def write_to(segment, owner, size):
    outcomes = engine.submit_and_wait(segment, transfer.WRITE, [address], [owner.there], [size], 60)
    assert outcomes == [transfer.DONE], [transfer.cause_name(each) for each in outcomes]


def carried(way):
    """Whether the engine has moved bytes by it."""
    ways = json.loads(engine.report())["braid_transfer"]["ways"]
    return any(each["way"].startswith(way) and each["delivered_bytes"] > 0 for each in ways)


def fill():
    """No page more is to be had there."""
    room = os.statvfs("/dev/shm")
    used = (room.f_blocks - room.f_bfree) * room.f_bsize
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"tmpfs", b"/dev/shm", None, MS_REMOUNT, f"size={used}".encode()) == 0, ctypes.get_errno()


with opened() as engine:
    first, second = Owner(), Owner()
    segment = engine.open_segment(first.name, 30)
    for _ in range(100):
        write_to(segment, first, 4096)
        if carried("shm"):
            break
    assert carried("shm"), engine.report()
    fill()
    for _ in range(10):
        write_to(segment, first, SIZE)
    write_to(engine.open_segment(second.name, 30), second, SIZE)
    assert carried("tcp"), engine.report()
    first.end()
    second.end()
print("nobody has ended")
