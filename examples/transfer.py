#!/usr/bin/env python3
"""examples/transfer.cpp in Python: one process reads and writes the memory of another, on the same host or on two.

  transfer.py own                                    prints its name, and waits
  transfer.py use braid://127.0.0.1:40000/5f3c...    that name, in another shell

On two hosts: `own 10.0.0.7:4750`, and `use NAME 10.0.0.8` with an address of the host that it runs on. Both then need
the secret. Either may be the C++ program.
"""
import ctypes
import pathlib
import sys

# In the sources, and where braid is installed: share/doc/braid/examples, and share/braid/python.
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path += [str(FOLDER / "../python"), str(FOLDER / "../../../braid/python")]
from braid import transfer  # noqa: E402

HALF = 64 << 20  # of the owner's memory: one is read, the other is written
PART = 4 << 20   # what one request moves
PERIOD = 1 << 17


def right_bytes():
    """Of either half: they repeat themselves."""
    return bytes((place * 31 >> 9) & 255 for place in range(PERIOD)) * (HALF // PERIOD)


def own(engine, memory):
    """Lets peers read and write its memory until one says that it has done so."""
    memory[:HALF] = right_bytes()
    engine.register_memory(ctypes.addressof(memory), len(memory), transfer.MAY_READ | transfer.MAY_WRITE)
    print(engine.name(), flush=True)
    if engine.next_notification(limit_s=120) is None:
        sys.exit("nobody has written")
    if memory[HALF:] != right_bytes():
        sys.exit("wrong bytes have been written")
    print("verified what was written")


def use(engine, memory, name):
    """Reads the owner's first half, writes its second, and tells it when all of this is done."""
    memory[HALF:] = right_bytes()
    local = ctypes.addressof(memory)
    engine.register_memory(local, len(memory), 0)
    there = engine.open_segment(name)
    address, size_bytes, _ = engine.ranges(there)[0]  # what the owner has registered, at its own addresses
    if size_bytes != len(memory):
        sys.exit("the owner has other memory than this example's")
    requests = [transfer.request(there, transfer.READ if place < HALF else transfer.WRITE,
                                 local + place, address + place, PART) for place in range(0, len(memory), PART)]
    batch = engine.submit_requests(requests, notification=(there, "done", b""))
    if not engine.wait(batch, limit_s=60):
        sys.exit("the batch has not ended in time")
    for cause in engine.outcomes(batch):
        if cause != transfer.DONE:
            sys.exit(transfer.cause_name(cause))
    if memory[:HALF] != right_bytes():
        sys.exit("wrong bytes have been read")
    print("verified what was read")


def main(role="", *words):
    if not (role == "own" and len(words) <= 1 or role == "use" and len(words) in (1, 2)):
        sys.exit("usage: transfer.py own [ADDRESS:PORT] | transfer.py use NAME [ADDRESS]")
    # It ends after the engine: until then peers and requests use it.
    memory = (ctypes.c_char * (2 * HALF))()
    options = {"listen": words[0]} if role == "own" and words else {"addresses": words[1:]}
    with transfer.Transfer(**options) as engine:
        if role == "own":
            own(engine, memory)
        else:
            use(engine, memory, words[0])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except transfer.Error as error:
        sys.exit(str(error))
