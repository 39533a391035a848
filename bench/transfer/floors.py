"""A2: braid beside what the machine does without it: raw sockets, memcpy, fio."""
import ctypes
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import loop

HERE = pathlib.Path(__file__).resolve().parent
FLOOR_SIZE, FLOOR_BATCH = 1 << 20, 16


class LeftOut(Exception):
    """Cannot be run here; says why."""


def socket_gbps(seconds):
    """1 MB x 16 over one connection, each batch answered by a byte."""
    whole = FLOOR_SIZE * FLOOR_BATCH
    listener = socket.create_server((loop.HOST, 0))
    reader = os.fork()
    if reader == 0:
        connection, _ = listener.accept()
        memory = bytearray(whole)
        view = memoryview(memory)
        while True:
            got = 0
            while got < whole:
                count = connection.recv_into(view[got:])
                if count == 0:
                    os._exit(0)
                got += count
            connection.sendall(b"x")
    connection = socket.create_connection(listener.getsockname())
    source = bytes(whole)
    batches, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        connection.sendall(source)
        connection.recv(1)
        batches += 1
    took = time.perf_counter() - begun
    connection.close()
    os.waitpid(reader, 0)
    return batches * whole / took / 1e9


def memcpy_gbps(seconds):
    """From memory that two processes share to memory of its own: the same pages as braid's."""
    there, here = loop.Memory(True), loop.Memory(True)
    places = loop.MEMORY_BYTES // FLOOR_SIZE
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        offset = count % places * FLOOR_SIZE
        ctypes.memmove(here.address + offset, there.address + offset, FLOOR_SIZE)
        count += 1
    return count * FLOOR_SIZE / (time.perf_counter() - begun) / 1e9


def fio_gbps(file, op, seconds):
    done = subprocess.run(["fio", "--name=floor", f"--rw={op}", f"--bs={FLOOR_SIZE}", f"--iodepth={FLOOR_BATCH}",
                           "--ioengine=io_uring", "--direct=1", f"--filename={file}", "--time_based",
                           f"--runtime={max(1, round(seconds))}", "--output-format=json"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise LeftOut("fio: " + (done.stderr.strip() or done.stdout.strip())[-200:])
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0][op]["bw_bytes"] / 1e9


def file_gbps(file, op, seconds):
    """The same by braid, from a folder that its own engine exports."""
    transfer = loop.braid_module()
    memory = loop.Memory(op == "write")
    operation, right = {"read": (transfer.READ, transfer.MAY_READ), "write": (transfer.WRITE, transfer.MAY_WRITE)}[op]
    engine = transfer.Transfer(listen=f"{loop.HOST}:0", addresses=(loop.HOST,), providers=("tcp;ofi_rxm",))
    engine.register_memory(memory.address, loop.MEMORY_BYTES, 0)
    engine.export_folder("floor", str(file.parent), right)
    segment = engine.open_file(engine.open_segment(engine.name()), f"floor/{file.name}", right)
    whole = FLOOR_SIZE * FLOOR_BATCH
    places, batches, begun = loop.MEMORY_BYTES // whole, 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        offsets = [batches % places * whole + i * FLOOR_SIZE for i in range(FLOOR_BATCH)]
        batch = engine.submit(segment, operation, [memory.address + at for at in offsets], offsets,
                              [FLOOR_SIZE] * FLOOR_BATCH)
        if not engine.wait(batch, 60) or any(engine.outcomes(batch)):
            raise RuntimeError(f"a {op} of the file has failed")
        engine.forget(batch)
        batches += 1
    took = time.perf_counter() - begun
    engine.close()
    moved = min(batches, places) * whole
    if file.read_bytes()[:moved] != memory.map[:moved]:
        raise RuntimeError(f"WRONG BYTES after a {op} of the file")
    return batches * whole / took / 1e9


def braid_gbps(provider, op, seconds):
    words = [sys.executable, str(HERE / "loop.py"), "braid", "--provider", provider, "--op", op, "--size",
             str(FLOOR_SIZE), "--batch", str(FLOOR_BATCH), "--seconds", str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.strip().splitlines()[-1])["gbps"]


def of_floor(row, options, what, bar, braid, floor):
    """Each turn measures both."""
    pairs = [(braid(), floor()) for _ in range(options.turns)]
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    return row("A2", what, statistics.median(ratios), bar, True,
               f"{ratios[0]:.2f} to {ratios[-1]:.2f}; {ours:.2f} GB/s, floor {theirs:.2f}")


def run_a2(row, options):
    seconds = options.seconds
    rows = [of_floor(row, options, f"tcp, {op}, of raw sockets", 0.85,
                     lambda op=op: braid_gbps("tcp;ofi_rxm", op, seconds), lambda: socket_gbps(seconds))
            for op in ("read", "write")]
    rows += [of_floor(row, options, f"shm, {op}, of memcpy", 0.8, lambda op=op: braid_gbps("mapped,shm", op, seconds),
                      lambda: memcpy_gbps(seconds)) for op in ("read", "write")]
    if shutil.which("fio") is None:
        print("A2   files: left out: fio is not installed")
        return rows
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = pathlib.Path(folder) / "floor"
        with file.open("wb") as out:
            for _ in range(loop.MEMORY_BYTES >> 20):
                out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
        try:
            for op in ("read", "write"):
                rows.append(of_floor(row, options, f"file, {op} past the page cache, of fio", 0.9,
                                     lambda op=op: file_gbps(file, op, seconds),
                                     lambda op=op: fio_gbps(file, op, seconds)))
        except LeftOut as reason:
            print(f"A2   files: left out: {reason}")
    return rows
