"""Rows of `run` on real rails: links between network namespaces, processes of one host, floors."""
import contextlib
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

import links
import loop
import timeline

HERE = pathlib.Path(__file__).resolve().parent
STREAM = str(HERE / "stream.py")
RAILS = 4
FLOOR_SIZE, FLOOR_BATCH = 1 << 20, 16


class LeftOut(Exception):
    """Cannot be run here; says why."""


def need_links():
    reason = links.missing()
    if reason:
        raise LeftOut(reason)


class Process:
    """A `stream.py`, perhaps in a network namespace. Killed at the end."""

    def __init__(self, namespace, *words):
        prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.process = subprocess.Popen([*prefix, sys.executable, STREAM, *map(str, words)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a process of stream.py has ended early")
        return json.loads(line)

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def streaming(target, initiator, *words, namespaces=(None, None)):
    """An initiator that has begun, and its target. `target`, `initiator`: words of each alone."""
    processes = [Process(namespaces[1], "target", *target)]
    try:
        said = processes[0].hear()
        processes.append(Process(namespaces[0], "initiator", *initiator, "--target", said["name"],
                                 "--address", said["address"], *words))
        processes[1].hear()
        yield processes[1], processes[0]
    finally:
        for process in processes:
            process.kill()


def over(links_, *words):
    sides = ["--providers", "tcp;ofi_rxm", "--addresses"]
    return streaming([*sides, links_.addresses(links_.there)], [*sides, links_.addresses(links_.here)], *words,
                     namespaces=(links_.here, links_.there))


def well(said):
    return said["failed"] == 0 and said["is_right"]


def run_a3(row, options):
    need_links()
    rows = []
    with links.Links(RAILS, options.megabit) as all_:
        for threads in (1, 16):
            with over(all_, "--threads", threads, "--seconds", options.real_seconds, "--sample-ms", 50) as (me, _):
                said = me.hear()
            rows.append(row("A3", f"{threads} threads, of four rails", said["gbps"] / all_.gbps(), 0.92, True,
                            f"{said['gbps']:.4f} GB/s" + ("" if well(said) else "; WRONG")))
    return rows


def run_a4(row, options):
    need_links()
    rows = []
    slow = options.megabit // 10
    with links.Links(RAILS, options.megabit) as all_:
        all_.limit(RAILS - 1, slow)
        for threads in (1, 16):
            with over(all_, "--threads", threads, "--seconds", options.real_seconds, "--sample-ms", 50) as (me, _):
                said = me.hear()
            rows.append(row("A4", f"one at 10 %, {threads} threads, of the sum",
                            said["gbps"] / all_.gbps(*[options.megabit] * (RAILS - 1), slow), 0.90, True,
                            f"{said['gbps']:.4f} GB/s; beside round robin in virtual time"))
    return rows


def drawn(options, name, title, line, ways, faults):
    if options.plot is None:
        return
    options.plot.mkdir(parents=True, exist_ok=True)
    timeline.draw(options.plot / name, title, line, ways, faults)
    print(f"     {options.plot / name}")


def run_a5(row, options):
    need_links()
    faults, times = [], options.vanishings
    with links.Links(RAILS, options.megabit) as all_:
        with over(all_, "--threads", 16, "--size", 256 << 10, "--batch", 4, "--sample-ms", 4, "--seconds",
                  2 + 2 * times) as (me, _):
            time.sleep(1.5)
            for turn in range(times):
                begun = time.monotonic()
                all_.cut(turn % RAILS)
                time.sleep(1)
                ended = time.monotonic()
                all_.mend(turn % RAILS)
                faults.append((begun, ended, "a rail has vanished"))
                time.sleep(1)
            said = me.hear()
    line = timeline.Timeline(said["samples"])
    whole = line.gbps(faults[0][0] - 1, faults[0][0])
    heals, returns = [], []
    for i, (begun, ended, _) in enumerate(faults):
        next_ = faults[i + 1][0] if i + 1 < len(faults) else line.times[-1]
        heals.append(line.reaches(0.9 * whole * (RAILS - 1) / RAILS, begun, ended))
        returns.append(line.reaches(0.9 * whole, ended, next_))
    drawn(options, "A5.svg", "A rail vanishes, and comes back", line, said["ways"], faults)

    def within(found, limit):
        return sum(one is not None and one <= limit for one in found) / times

    def shown(found):
        return "ms: " + " ".join("never" if one is None else f"{one * 1e3:.0f}" for one in found)

    return [row("A5", f"{times} times, of {said['requests']} requests well", float(well(said)), 1, True,
                f"{said['failed']} failed; {whole:.4f} GB/s before"),
            row("A5", "at 90 % of what is left within 50 ms", within(heals, 0.05), 0.95, True, shown(heals)),
            row("A5", "back at 90 % within 500 ms", within(returns, 0.5), 0.95, True, shown(returns))]


def run_a6(row, options):
    need_links()
    faults, half_s = [], 0.3
    with links.Links(RAILS, options.megabit) as all_:
        with over(all_, "--threads", 16, "--size", 256 << 10, "--batch", 4, "--sample-ms", 4, "--seconds",
                  3 + options.flap_seconds) as (me, _):
            time.sleep(1.5)
            end = time.monotonic() + options.flap_seconds
            while time.monotonic() < end:
                begun = time.monotonic()
                all_.cut(0)
                time.sleep(half_s)
                all_.mend(0)
                faults.append((begun, time.monotonic(), "the rail is gone"))
                time.sleep(half_s)
            said = me.hear()
    line = timeline.Timeline(said["samples"])
    rest = line.gbps(faults[0][0] - 1, faults[0][0]) * (RAILS - 1) / RAILS
    bins = line.bins(faults[0][0], faults[-1][1], 0.1)
    drawn(options, "A6.svg", "A rail flaps", line, said["ways"], faults)
    return [row("A6", "requests well", float(well(said)), 1, True, f"{said['failed']} of {said['requests']} failed"),
            row("A6", "worst 100 ms, of the other three", min(bins) / rest, 0.85, True,
                f"median {statistics.median(bins) / rest:.2f}")]


def run_a7(row, options):
    del options
    address = ["--addresses", loop.HOST]
    with streaming(address, address, "--size", 1 << 20, "--batch", 64, "--sample-ms", 1, "--seconds", 3) as (me, it):
        time.sleep(1)
        died = me.ask("deny")
        it.ask("deny")
        said = me.hear()
    line = timeline.Timeline(said["samples"])
    tcp = next(i for i, way in enumerate(said["ways"]) if way.startswith("tcp"))
    shm = next(i for i, way in enumerate(said["ways"]) if way.startswith("shm"))
    before = line.gbps(died - 0.5, died, shm)
    if before == 0:
        raise LeftOut("nothing goes over shm here")
    carries = [time_ for time_, ways in said["samples"] if time_ > died and ways[tcp] > line.bytes_at(died, tcp)]
    rows = [row("A7", "shm dies, none failed", float(well(said)), 1, True, f"{said['failed']} failed"),
            row("A7", "tcp carries on after, ms", (carries[0] - died) * 1e3 if carries else 1e9, 100, False,
                f"shm {before:.2f} GB/s before, tcp {line.gbps(died + 1, line.times[-1], tcp):.2f} after")]
    # Batches that are submitted later meet it at the submit: no pause of theirs is longer either.
    later = [time_ for time_, ways in said["samples"] if time_ > died + 0.5]
    step = 0.1
    pauses = sum(line.bytes_at(at + step) == line.bytes_at(at) for at in later if at + step < later[-1])
    rows.append(row("A7", "later submits, pauses of 100 ms", float(pauses), 0, False))
    return rows


def run_a8(row, options):
    need_links()
    bulk = ["--size", 64 << 20, "--batch", 1, "--threads", 2]
    urgent = ["--urgent-every-ms", 5, "--sample-ms", 50, "--seconds", options.real_seconds]
    slice_us = (64 << 10) * 8 / options.megabit
    with links.Links(RAILS, options.megabit) as all_:
        said = {}
        for name, words in (("alone", ["--threads", 0, *urgent]), ("bulk", [*bulk, *urgent[2:]]),
                            ("both", [*bulk, *urgent])):
            with over(all_, *words) as (me, _):
                said[name] = me.hear()
    alone, beside = said["alone"]["urgent_p99_us"], said["both"]["urgent_p99_us"]
    medians = [said[name]["urgent_p50_us"] for name in ("both", "alone")]
    detail = (f"p99 {beside:.0f} us, unloaded {alone:.0f}; p50 {medians[0]:.0f}, unloaded {medians[1]:.0f}; "
              f"a slice takes {slice_us:.0f}")
    return [row("A8", "urgent p99 above unloaded, slices", (beside - alone) / slice_us, 1.2, False, detail),
            row("A8", "urgent p99, times unloaded", beside / alone, 3.0, False, detail),
            row("A8", "bulk beside urgent, of bulk alone", said["both"]["gbps"] / said["bulk"]["gbps"], 0.95, True,
                f"{said['both']['gbps']:.4f} GB/s")]


def run_a9(row, options):
    """Four processes of this host write over the same rails, one with eight times the threads."""
    need_links()
    threads = (16, 2, 2, 2)
    words = ["--size", 256 << 10, "--batch", 4, "--sample-ms", 20]
    tcp = ["--providers", "tcp;ofi_rxm", "--addresses"]
    with links.Links(RAILS, options.megabit) as all_, contextlib.ExitStack() as stack:
        with over(all_, "--threads", 16, *words, "--seconds", options.real_seconds) as (me, _):
            alone = me.hear()["gbps"]
        target = Process(all_.there, "target", *tcp, all_.addresses(all_.there))
        stack.callback(target.kill)
        there = target.hear()
        several = []
        for count in threads:
            several.append(Process(all_.here, "initiator", *tcp, all_.addresses(all_.here), "--target",
                                   there["name"], "--address", there["address"], "--threads", count, *words,
                                   "--seconds", options.real_seconds + 4))
            stack.callback(several[-1].kill)
        heard = [(process.hear(), process.hear())[1] for process in several]
    lines = [timeline.Timeline(one["samples"]) for one in heard]
    begin, end = max(line.times[0] for line in lines) + 1, min(line.times[-1] for line in lines)
    each = [line.gbps(begin, end) for line in lines]
    jain = sum(each) ** 2 / (len(each) * sum(one * one for one in each))
    detail = " ".join(f"{one:.4f}" for one in each) + f" GB/s; alone {alone:.4f}"
    return [row("A9", "four processes, none failed", float(all(well(one) for one in heard)), 1, True),
            row("A9", "Jain's index, one with 8 x the threads", jain, 0.97, True, detail),
            row("A9", "sum, of one process alone", sum(each) / alone, 0.95, True, detail)]


# ---- Floors

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


def fio_gbps(file, seconds):
    done = subprocess.run(["fio", "--name=floor", "--rw=read", f"--bs={FLOOR_SIZE}", f"--iodepth={FLOOR_BATCH}",
                           "--ioengine=io_uring", "--direct=1", f"--filename={file}", "--time_based",
                           f"--runtime={max(1, round(seconds))}", "--output-format=json"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise LeftOut("fio: " + (done.stderr.strip() or done.stdout.strip())[-200:])
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e9


def file_gbps(file, seconds):
    """The same by braid, from a folder that its own engine exports."""
    transfer = loop.braid_module()
    memory = loop.Memory(False)
    engine = transfer.Transfer(listen=f"{loop.HOST}:0", addresses=(loop.HOST,), providers=("tcp;ofi_rxm",))
    engine.register_memory(memory.address, loop.MEMORY_BYTES, 0)
    engine.export_folder("floor", str(file.parent), transfer.MAY_READ)
    segment = engine.open_file(engine.open_segment(engine.name()), f"floor/{file.name}", transfer.MAY_READ)
    whole = FLOOR_SIZE * FLOOR_BATCH
    places, batches, begun = loop.MEMORY_BYTES // whole, 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        offsets = [batches % places * whole + i * FLOOR_SIZE for i in range(FLOOR_BATCH)]
        batch = engine.submit(segment, transfer.READ, [memory.address + at for at in offsets], offsets,
                              [FLOOR_SIZE] * FLOOR_BATCH)
        if not engine.wait(batch, 60) or any(engine.outcomes(batch)):
            raise RuntimeError("a read of the file has failed")
        engine.forget(batch)
        batches += 1
    took = time.perf_counter() - begun
    engine.close()
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
            rows.append(of_floor(row, options, "file, read past the page cache, of fio", 0.9,
                                 lambda: file_gbps(file, seconds), lambda: fio_gbps(file, seconds)))
        except LeftOut as reason:
            print(f"A2   files: left out: {reason}")
    return rows


def idle_share(process, seconds):
    before = process.ask("cpu")
    time.sleep(seconds)
    return (process.ask("cpu") - before) / seconds


def run_a14(row, options):
    """An engine with a peer, of which nothing is asked, and the same of the fabric alone."""
    silence = options.build / "bin" / "fabric_silence"
    if not silence.exists():
        raise LeftOut(f"there is no {silence}: build fabric_silence")
    seconds = 10
    address = ["--addresses", loop.HOST, "--providers", "tcp;ofi_rxm"]
    with streaming(address, address, "--threads", 0, "--seconds", 2 * seconds + 4) as (me, it):
        time.sleep(2)
        ours = [idle_share(process, seconds) for process in (me, it)]
    done = subprocess.run([silence, "tcp;ofi_rxm"], capture_output=True, text=True, check=False)
    words = next(line for line in done.stdout.splitlines() if line.startswith("silent:")).replace(",", "").split()
    floor = [float(word) for word in words if word.replace(".", "").isdigit()]
    return [row("A14", f"idle {name}, share of a core above fabric's", mine - theirs, 0.001, False,
                f"{mine:.4f}, fabric {theirs:.4f}")
            for name, mine, theirs in zip(("initiator", "target"), ours, floor)]


ROWS = {"A2": run_a2, "A3": run_a3, "A4": run_a4, "A5": run_a5, "A6": run_a6, "A7": run_a7, "A8": run_a8,
        "A9": run_a9, "A14": run_a14}
