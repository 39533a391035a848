#!/usr/bin/env python3
"""Two processes that know Mooncake's interface alone, on braid: what the wheel's own tests of initiator
and target do, with every byte compared.

  door_test.py DOOR-FOLDER LIBRARY
"""
import ctypes
import gc
import json
import mmap
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

door, library = sys.argv[1:3]
if "TARGET" not in os.environ:
    environment = dict(os.environ, PYTHONPATH=door, BRAID_TRANSFER_LIBRARY=library, TARGET="1")
    target = subprocess.Popen([sys.executable, *sys.argv], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        port = target.stdout.readline().strip()
        environment["TARGET"] = "127.0.0.1:" + port
        environment["TARGET_PROCESS"] = str(target.pid)
        done = subprocess.run([sys.executable, *sys.argv], env=environment, check=False, timeout=400)
        target.stdin.close()
        sys.exit(done.returncode or target.wait(60))
    finally:
        target.kill()

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode  # noqa: E402
from braid import mooncake_engine  # noqa: E402

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
if os.environ["TARGET"] == "1":
    assert engine.allocate_managed_buffer(mooncake_engine.MANAGED_BYTES) != 0
    print(engine.get_rpc_port(), flush=True)
    sys.stdin.read()
    names = [each.name for each in engine.get_notifies()]
    assert names == ["layers", "caf\udce9"], names
    sys.exit(0)

there = os.environ["TARGET"]
seed = random.randrange(1 << 30)
print("seed", seed)
randomness = random.Random(seed)
here = f"127.0.0.1:{engine.get_rpc_port()}"
topology = json.loads(engine.get_local_topology())
nodes = [int(each.name[4:]) for each in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")] or [0]
devices = {each.name for each in pathlib.Path("/sys/class/infiniband").glob("*")}
assert f"cpu:{min(nodes)}" in topology, topology
for near, others in topology.values():
    assert sorted(near + others) == sorted(devices), topology
assert all(both == [[], []] for both in json.loads(engine.get_local_topology("none,such")).values())
assert engine.get_first_buffer_address(here) == 0, "nothing is registered"
source = engine.allocate_managed_buffer(mooncake_engine.MANAGED_BYTES)
target = engine.get_first_buffer_address(there)
assert source != 0 and target != 0

for _ in range(100):
    data = randomness.randbytes(randomness.randrange(16, 256))
    assert engine.write_bytes_to_buffer(source, data, len(data)) == 0
    assert engine.transfer_sync_write(there, source, target, len(data)) == 0
    engine.write_bytes_to_buffer(source, bytes(len(data)), len(data))
    assert engine.transfer_sync_read(there, source, target, len(data)) == 0
    assert engine.read_bytes_from_buffer(source, len(data)) == data

for is_async in (False, True):
    for _ in range(5):
        rows = [randomness.randbytes(randomness.randrange(32, 70_000)) for _ in range(100)]
        sources = [source + i * 70_000 for i in range(100)]
        targets = [target + i * 70_000 for i in range(100)]
        sizes = [len(row) for row in rows]
        for at, row in zip(sources, rows):
            engine.write_bytes_to_buffer(at, row, len(row))
        if is_async:
            batch = engine.batch_transfer_async_write(there, sources, targets, sizes)
            assert batch > 0 and engine.get_batch_transfer_status([batch]) == 0
        else:
            assert engine.batch_transfer_sync_write(there, sources, targets, sizes) == 0
        for at, row in zip(sources, rows):
            engine.write_bytes_to_buffer(at, bytes(len(row)), len(row))
        if is_async:
            batch = engine.batch_transfer_async_read(there, sources, targets, sizes)
            assert batch > 0 and engine.get_batch_transfer_status([batch]) == 0
        else:
            assert engine.batch_transfer_sync_read(there, sources, targets, sizes) == 0
        for at, row in zip(sources, rows):
            assert engine.read_bytes_from_buffer(at, len(row)) == row

assert engine.transfer_sync(there, source, target, 64, TransferOpcode.Write,
                            TransferNotify("layers", "all")) == 0
assert engine.transfer_sync(there, source, target, 64, TransferOpcode.Write,
                            TransferNotify("caf\udce9", "no text")) == 0
batch = engine.transfer_submit_write(there, source, target, 4096)
while (status := engine.transfer_check_status(batch)) == 0:
    pass
assert status == 1
assert engine.transfer_sync_read(there, source, 4096, 64) == -1, "outside of its memory"
assert engine.transfer_sync_read("127.0.0.1:1", source, target, 64) == -1, "nobody listens there"

# Managed memory grows by blocks. A buffer lies within one, and peers find the first block as before.
half = mooncake_engine.MANAGED_BYTES // 2
grown = [engine.allocate_managed_buffer(half) for _ in range(5)]
assert 0 not in grown and len(set(grown)) == 5, grown
assert engine.get_first_buffer_address(here) == source
for managed in grown:
    data = randomness.randbytes(4096)
    assert engine.write_bytes_to_buffer(managed + half - 4096, data, 4096) == 0
    assert engine.transfer_sync_write(there, managed + half - 4096, target, 4096) == 0
    assert engine.transfer_sync_read(there, managed, target, 4096) == 0
    assert engine.read_bytes_from_buffer(managed, 4096) == data
assert all(engine.free_managed_buffer(managed, half) == 0 for managed in grown)
whole = engine.allocate_managed_buffer(3 * half)
registered = engine._engine.ranges(engine._segments.number(here))
assert any(at <= whole and whole + 3 * half <= at + size for at, size, _ in registered), (whole, registered)
assert engine.free_managed_buffer(whole, 3 * half) == 0
assert engine.allocate_managed_buffer(1 << 60) == engine.allocate_managed_buffer(1 << 63) == 0
managed = engine.allocate_managed_buffer(100_000)
assert managed != 0 and engine.free_managed_buffer(managed, 100_000) == 0

assert engine.batch_register_memory([source, target], [64]) == -1, "one capacity is missing"
assert engine.batch_transfer_sync_write(there, [source], [target], [64, 64]) == -1

# An argument of a wrong type raises TypeError, as in the wheel; a value that is none has the answer of a failure.
wrong_types = {"local_hostname": ("initialize", None, "P2PHANDSHAKE", "rdma", ""), "buffer_addr": ("register_memory", None, 64),
               r"capacities\[0\]": ("batch_register_memory", [source], [None]), "length": ("allocate_managed_buffer", None),
               "segment": ("send_probe", None), r"buffers\[0\]": ("transfer_sync_write", there, None, target, 64),
               "opcode": ("transfer_sync", there, source, target, 64, None), "batch_id": ("transfer_check_status", None),
               "notify": ("transfer_sync", there, source, target, 64, TransferOpcode.Write, "layers"),
               "batch_ids": ("get_batch_transfer_status", None), "device_name": ("get_local_topology", 5),
               "src_ptr": ("write_bytes_to_buffer", source, None, 4), "source_address": ("read_bytes_from_buffer", None, 4)}
for argument, (name, *arguments) in wrong_types.items():
    try:
        getattr(engine, name)(*arguments)
        raise AssertionError(f"{name}{tuple(arguments)} was taken")
    except TypeError as error:
        assert re.search(f"{argument}.* is ", str(error)), error
assert engine.transfer_sync_write(there + "\0", source, target, 64) == -1
assert engine.transfer_sync_write(there, source, target, 2**64 + 64) == -1
assert engine.write_bytes_to_buffer(source, b"1234", 5) == -1, "src_ptr ends before"
assert engine.free_managed_buffer(managed, 100_000) == -1, "it is free already"
assert engine.initialize("127.0.0.1\0", "P2PHANDSHAKE", "rdma", "") == -1

# Before `initialize` calls fail as others do: nothing is raised.
closed = TransferEngine()
failures = {"register_memory": (source, 64), "unregister_memory": (source,), "batch_register_memory": ([source], [64]),
            "transfer_sync_write": (there, source, target, 64), "transfer_sync_read": (there, source, target, 64),
            "get_batch_transfer_status": ([1],), "transfer_check_status": (1,), "send_probe": (there,),
            "get_rpc_port": (), "free_managed_buffer": (source, 64)}
for name, arguments in failures.items():
    assert getattr(closed, name)(*arguments) == -1, name
nothing = {"transfer_submit_write": (there, source, target, 64), "get_first_buffer_address": (there,),
           "allocate_managed_buffer": (64,), "get_engine_ptr": ()}
for name, arguments in nothing.items():
    assert getattr(closed, name)(*arguments) == 0, name
assert closed.get_notifies() == [] and closed.get_engine() is None

# A number that is none does not hide the batches beside it, which are waited for and told once.
batch = engine.transfer_submit_write(there, source, target, 64)
assert engine.get_batch_transfer_status([1 << 40, batch]) == -1
assert engine.transfer_check_status(batch) == -1


def is_stopped(process):
    """Each thread of it: after the signal they run on for a while."""
    tasks = pathlib.Path(f"/proc/{process}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def wait_until(is_so, limit_s=60):
    end = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.001)
    assert is_so()


def threads():
    return len(os.listdir("/proc/self/task"))


def threads_that_stay():
    """Once those of engines before have ended."""
    count, since = threads(), time.monotonic()
    end = since + 60
    while time.monotonic() < since + 0.2:
        assert time.monotonic() < end, "threads come and go"
        time.sleep(0.01)
        if threads() != count:
            count, since = threads(), time.monotonic()
    return count


def ways():
    """How many the engine has, to all peers."""
    return engine._engine.report().count('"way"')


def open_another(at="127.0.0.1", server="P2PHANDSHAKE"):
    """With managed memory, if it opens."""
    other = TransferEngine()
    opened = other.initialize(at, server, "rdma", "mlx5_0")
    return other, opened if opened != 0 or other.allocate_managed_buffer(65536) != 0 else "no memory"


def has_ipv6():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def check_moves(initiator, name, first, buffer):
    """A write from the initiator's managed memory and back."""
    data = randomness.randbytes(4096)
    assert initiator.write_bytes_to_buffer(first, data, 4096) == 0
    assert initiator.transfer_sync_write(name, first, buffer, 4096) == 0, name
    assert initiator.transfer_sync_read(name, first + 4096, buffer, 4096) == 0, name
    assert initiator.read_bytes_from_buffer(first + 4096, 4096) == data


def check_ipv6():
    for name in ("::1", "[::1]", "[::1]:0"):
        owner, opened = open_another(name)
        assert opened == 0, name
    other, opened = open_another("::1")
    assert opened == 0
    first = other.get_first_buffer_address(f"[::1]:{other.get_rpc_port()}")
    for name in (f"[::1]:{owner.get_rpc_port()}", f"::1:{owner.get_rpc_port()}"):
        check_moves(other, name, first, other.get_first_buffer_address(name))


def check_second_initialize():
    """Segments and buffers of the second engine have the numbers of those of the first."""
    other, opened = open_another()
    owners = [open_another()[0] for _ in range(2)]
    names = [f"127.0.0.1:{owner.get_rpc_port()}" for owner in owners]
    buffers = [engine.get_first_buffer_address(name) for name in names]
    pages = mmap.mmap(-1, 8192)
    page = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert opened == 0 and other.send_probe(names[0]) == 0 and other.register_memory(page, 4096) == 0
    assert other.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
    first = other.allocate_managed_buffer(8192)
    assert other.register_memory(page + 4096, 4096) == 0
    assert other.unregister_memory(page) == -1, "it was the first engine's"
    assert other.unregister_memory(page + 4096) == 0
    for name, buffer in reversed(list(zip(names, buffers))):
        check_moves(other, name, first, buffer)


def check_providers():
    os.environ["BRAID_TRANSFER_PROVIDERS"] = "tcp;ofi_rxm,"
    other, opened = open_another()
    os.environ["BRAID_TRANSFER_PROVIDERS"] = "carrier pigeon"
    assert opened == 0 and open_another()[1] == -1
    del os.environ["BRAID_TRANSFER_PROVIDERS"]
    assert other.send_probe(there) == 0
    ways = re.findall('"way":"([^ ]*)', other._engine.report())
    assert set(ways) == {"tcp;ofi_rxm"}, ways


if has_ipv6():
    check_ipv6()
assert all(open_another(name)[1] == -1 for name in ("[::1", "[::1]80", "[]", "", "127.0.0.1:", "no-such-host.invalid"))
check_second_initialize()
check_providers()
other, opened = open_another()
name, inner = f"127.0.0.1:{other.get_rpc_port()}", other.get_engine()
del other
gc.collect()
assert engine.send_probe(name) == 0, "get_engine keeps it open"
del inner
gc.collect()
assert engine.send_probe(name) == -1

# An engine that nobody refers to is closed before its memory goes.
before = threads_that_stay()
other, opened = open_another()
assert opened == 0
gone = f"127.0.0.1:{other.get_rpc_port()}"
lost = engine.get_first_buffer_address(gone)
assert engine.transfer_sync_write(gone, source, lost, 65536) == 0
del other
gc.collect()
wait_until(lambda: threads() <= before)  # the engine runs no more
ways_before = ways()
assert engine.transfer_sync_write(gone, source, lost, 65536) == -1, "its memory is gone"
wait_until(lambda: ways() < ways_before)  # nothing is kept of a peer that is lost

# A peer that comes back under its name is found there, also by those who never wait for an answer.
other, opened = open_another()
assert opened == 0
name = f"127.0.0.1:{other.get_rpc_port()}"


def restart():
    global other
    del other
    gc.collect()
    other, opened = open_another(name, "redis://not-asked")
    assert opened == 0
    return other.get_first_buffer_address(name)


def check(batch):
    while (status := engine.transfer_check_status(batch)) == 0:
        pass
    return status


first = engine.get_first_buffer_address(name)
assert engine.get_batch_transfer_status([engine.batch_transfer_async_write(name, [source], [first], [64])]) == 0
again = restart()
assert engine.send_probe(name) == 0 and engine.get_first_buffer_address(name) == again
assert engine.get_batch_transfer_status([engine.batch_transfer_async_write(name, [source], [again], [64])]) == -1
assert engine.get_batch_transfer_status([engine.batch_transfer_async_write(name, [source], [again], [64])]) == 0
again = restart()
assert check(engine.transfer_submit_write(name, source, again, 64)) == -1
assert check(engine.transfer_submit_write(name, source, again, 64)) == 1
del other
gc.collect()
assert engine.send_probe(name) == -1, "nobody is there"
assert engine.get_first_buffer_address(name) == 0


# A call that is over its time returns once nothing of it can land any more: at once, where this side
# can see to that, otherwise when its owner, which stands still, goes on. The call asks for its limit
# when it has submitted, when it has cancelled, and whenever it was not let go since.
def write_to_source(data):
    assert engine.write_bytes_to_buffer(source, data, len(data)) == 0


limits = []


def limit_s(_):
    if not limits:
        wait_until(lambda: re.search(r'"in_flight_bytes":[1-9]', engine._engine.report()))
    limits.append(0.05)
    return limits[-1]


late, untouched = randomness.randbytes(1 << 20), bytes(1 << 20)
write_to_source(late)
assert engine.transfer_sync_write(there, source, target, len(late)) == 0
usual_limit_s, mooncake_engine._limit_s = mooncake_engine._limit_s, limit_s
answers = []


def read_late():
    answers.append(engine.transfer_sync_read(there, source, target, len(late)))
    write_to_source(untouched)  # the memory is the caller's again


memory = mmap.mmap(-1, 1 << 20)
mine = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert engine.register_memory(mine, len(memory)) == 0
process = int(os.environ["TARGET_PROCESS"])
os.kill(process, signal.SIGSTOP)
try:
    wait_until(lambda: is_stopped(process))
    reading = engine.batch_transfer_async_read(there, [mine], [target], [len(memory)])
    assert engine.unregister_memory(mine) == -1, "a request uses it"
    reader = threading.Thread(target=read_late)
    reader.start()
    wait_until(lambda: len(limits) > 2 or not reader.is_alive())
finally:
    os.kill(process, signal.SIGCONT)
reader.join(60)
assert answers == [-1], answers
mooncake_engine._limit_s = usual_limit_s
assert engine.get_batch_transfer_status([reading]) == 0
assert engine.unregister_memory(mine) == 0, "it can be asked again"
assert engine.unregister_memory(mine) == -1, "it is not registered any more"
assert engine.transfer_sync_read(there, source + len(late), target, len(late)) == 0
assert engine.read_bytes_from_buffer(source + len(late), len(late)) == late, "the owner has gone on"
time.sleep(0.3)
assert engine.read_bytes_from_buffer(source, len(late)) == untouched, "it lands late"
print("every byte is right")
