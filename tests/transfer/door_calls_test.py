#!/usr/bin/env python3
"""Answers of the engine with Mooncake's interface, where those of the wheel (0.3.13) are easily missed.

  door_calls_test.py DOOR-FOLDER LIBRARY
"""
import ctypes
import mmap
import os
import pathlib
import sys
import time

os.environ["BRAID_TRANSFER_LIBRARY"] = sys.argv[2]
sys.path[:0] = [sys.argv[1], str(pathlib.Path(sys.argv[1]).parent)]

from mooncake.engine import SUPPORT_MUSA, TransferEngine, TransferNotify, TransferOpcode, Write  # noqa: E402


def opened():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


pages = mmap.mmap(-1, 1 << 16)
page = ctypes.addressof(ctypes.c_char.from_buffer(pages))
theirs, mine = page, page + (1 << 15)
owner, there = opened()
engine, here = opened()
assert engine.register_memory(mine, 1 << 15) == 0

# The first buffer is what the owner has registered: an engine has none of its own until it is asked for one. Whoever
# wrote to another one was told that it was done, and the owner saw nothing.
assert engine.get_first_buffer_address(there) == 0, "the owner has registered nothing yet"
assert owner.register_memory(theirs, 1 << 15) == 0
assert engine.get_first_buffer_address(there) == theirs
assert engine.write_bytes_to_buffer(mine, b"a layer", 7) == 0
assert engine.transfer_sync_write(there, mine, engine.get_first_buffer_address(there), 7) == 0
assert pages[:7] == b"a layer"
managed = owner.allocate_managed_buffer(5000)
assert managed != 0 and owner.free_managed_buffer(managed, 5000) == 0

# Texts are str or bytes, and come as they were given.
told = [("layers", "all"), (b"layers", b"all of them"), ("caf\udce9", b"\xff\x00 no text"), ("", "caf\u00e9")]
seen = []
for name, message in told:
    assert engine.transfer_sync(there, mine, theirs, 64, TransferOpcode.Write, TransferNotify(name, message)) == 0
end = time.monotonic() + 60
while len(seen) < len(told) and time.monotonic() < end:
    seen += [(each.name, each.msg) for each in owner.get_notifies()]
assert seen == [("layers", "all"), ("layers", "all of them"), ("caf\udce9", "\udcff\0 no text"), ("", "caf\u00e9")], seen
for wrong in (TransferNotify("layers", 5), TransferNotify(5, "all")):
    try:
        engine.transfer_sync(there, mine, theirs, 64, TransferOpcode.Write, wrong)
        raise AssertionError("a number was taken for a text")
    except TypeError as error:
        assert "notify." in str(error) and "is 5" in str(error), error

assert TransferEngine.TransferOpcode.Write is TransferOpcode.Write is Write and not SUPPORT_MUSA

# A time limit that is no number is the least that there is.
for limit in ("abc", "", "40s", "-3", "7"):
    os.environ["MC_TRANSFER_TIMEOUT"] = limit
    assert engine.transfer_sync_write(there, mine, theirs, 64) == 0, limit
print("every answer is right")
