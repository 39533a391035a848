"""Rows of `run` on real rails: links between network namespaces, processes of one host."""
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import floors
import links
import loop
import timeline

HERE = pathlib.Path(__file__).resolve().parent
STREAM = str(HERE / "stream.py")
RAILS = 4


def need_links():
    reason = links.missing()
    if reason:
        raise floors.LeftOut(reason)


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


def over(links_, *words, is_round_robin=False):
    sides = [*["--round-robin"] * is_round_robin, "--providers", "tcp;ofi_rxm", "--addresses"]
    return streaming([*sides, links_.addresses(links_.there)], [*sides, links_.addresses(links_.here)], *words,
                     namespaces=(links_.here, links_.there))


def well(said):
    return said["failed"] == 0 and said["is_right"]


def ended_well(row, name, *all_said):
    """No request has failed, and every byte is right: a row of its own."""
    failed, requests = (sum(said[key] for said in all_said) for key in ("failed", "requests"))
    return row(name, f"of {requests} requests, all well", float(all(map(well, all_said))), 1, True,
               f"{failed} failed" + ("" if all(said["is_right"] for said in all_said) else "; WRONG BYTES"))


def run_a3(row, options):
    need_links()
    said, rows = [], []
    with links.Links(RAILS, options.megabit) as all_:
        for threads in (1, 16):
            with over(all_, "--threads", threads, "--seconds", options.real_seconds, "--sample-ms", 50) as (me, _):
                said.append(me.hear())
            rows.append(row("A3", f"{threads} threads, of four rails", said[-1]["gbps"] / all_.gbps(), 0.92, True,
                            f"{said[-1]['gbps']:.4f} GB/s"))
    return [ended_well(row, "A3", *said), *rows]


def run_a4(row, options):
    need_links()
    said, rows = [], []
    slow = options.megabit // 10
    with links.Links(RAILS, options.megabit) as all_:
        all_.limit(RAILS - 1, slow)
        for threads in (1, 16):
            with over(all_, "--threads", threads, "--seconds", options.real_seconds, "--sample-ms", 50) as (me, _):
                said.append(me.hear())
            rows.append(row("A4", f"one at 10 %, {threads} threads, of the sum",
                            said[-1]["gbps"] / all_.gbps(*[options.megabit] * (RAILS - 1), slow), 0.90, True,
                            f"{said[-1]['gbps']:.4f} GB/s"))
        # Sixteen requests that wait for the slow rail take seconds.
        single = ["--threads", 16, "--batch", 1, "--sample-ms", 50, "--seconds", max(options.real_seconds, 10)]
        for is_round_robin in (False, True):
            with over(all_, *single, is_round_robin=is_round_robin) as (me, _):
                said.append(me.hear())
    ours, theirs = said[-2:]
    return [ended_well(row, "A4", *said), *rows,
            row("A4", "1 MB by 16 threads, times round robin", ours["gbps"] / theirs["gbps"], 5, True,
                f"{ours['gbps']:.4f} GB/s, round robin {theirs['gbps']:.4f}"),
            row("A4", "p99 of 1 MB, of round robin's", ours["batch_p99_us"] / theirs["batch_p99_us"], 0.3, False,
                f"{ours['batch_p99_us'] / 1e3:.1f} ms, round robin {theirs['batch_p99_us'] / 1e3:.1f}")]


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
                  2 + 3 * times) as (me, _):
            time.sleep(1.5)
            quiet = time.monotonic()
            time.sleep(times)
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
    whole = line.gbps(quiet, faults[0][0])
    heals = [line.reaches(0.9 * whole * (RAILS - 1) / RAILS, begun, ended) for begun, ended, _ in faults]
    drawn(options, "A5.svg", "A rail vanishes, and comes back", line, said["ways"], faults)

    return [ended_well(row, "A5", said),
            row("A5", f"{times} times: 90 % of what is left in 50 ms", within(heals, 0.05), 0.95, True,
                f"{whole:.4f} GB/s before; {shown(heals)}"),
            returns(row, line, whole, quiet, [ended for _, ended, _ in faults])]


def within(found, limit):
    return sum(one is not None and one <= limit for one in found) / len(found)


def shown(found):
    return "ms: " + " ".join("never" if one is None else f"{one * 1e3:.0f}" for one in found)


def returns(row, line, whole, quiet, mended):
    """After half a second no window of 100 ms, as in A6, falls short. One of 20 ms does without a fault too, where the host
    holds a process up for 2 ms. Half seconds before the first fault, twice as many, say how many are whole here."""
    half, width = 0.5, 0.1
    found = [line.reaches(0.9 * whole, at, min(at + 2 * half, line.times[-1]), width) for at in mended]
    spans = [quiet + i * half for i in range(2 * len(mended))]
    undisturbed = [sum(line.reaches(0.9 * whole, at, at + half, each) == 0 for at in spans) for each in (width, 0.02)]
    return row("A5", "back at 90 % within 500 ms", within(found, half), 1, True,
               f"{shown(found)}; without a fault {undisturbed[0]} of {len(spans)} half seconds are whole, and "
               f"{undisturbed[1]} by windows of 20 ms")


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
    return [ended_well(row, "A6", said),
            row("A6", "worst 100 ms, of the other three", min(bins) / rest, 0.85, True,
                f"median {statistics.median(bins) / rest:.2f}")]


def way_of(said, provider):
    return next(i for i, way in enumerate(said["ways"]) if way.startswith(provider))


def carries_after_ms(said, died):
    """When tcp has delivered something first."""
    line, tcp = timeline.Timeline(said["samples"]), way_of(said, "tcp")
    carries = [time_ for time_, ways in said["samples"] if time_ > died and ways[tcp] > line.bytes_at(died, tcp)]
    return (carries[0] - died) * 1e3 if carries else 1e9


def run_a7(row, options):
    """Under load, and before a submit. Copies between processes are refused to both."""
    del options
    address = ["--addresses", loop.HOST]
    words = ["--size", 1 << 20, "--batch", 64, "--sample-ms", 1]
    with streaming(address, address, *words, "--seconds", 3) as (me, it):
        time.sleep(1)
        died = me.ask("deny")
        it.ask("deny")
        said = me.hear()
    with streaming(address, address, *words, "--seconds", 2, "--hold") as (me, it):
        me.ask("deny")
        it.ask("deny")
        submitted = me.ask("go")
        at_the_submit = me.hear()
    line = timeline.Timeline(said["samples"])
    before = line.gbps(died - 0.5, died, way_of(said, "shm"))
    after = line.gbps(died + 1, line.times[-1], way_of(said, "tcp"))
    if before == 0:
        raise floors.LeftOut("nothing goes over shm here")
    later = [time_ for time_, _ in said["samples"] if died + 0.5 < time_ < line.times[-1] - 0.1]
    pauses = sum(line.bytes_at(at + 0.1) == line.bytes_at(at) for at in later)
    return [ended_well(row, "A7", said, at_the_submit),
            row("A7", "tcp carries on after, ms", carries_after_ms(said, died), 100, False,
                f"shm {before:.2f} GB/s before, tcp {after:.2f} after"),
            row("A7", "later submits, pauses of 100 ms", float(pauses), 0, False),
            row("A7", "dead at the submit: tcp carries after, ms", carries_after_ms(at_the_submit, submitted), 100,
                False)]


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
              f"a slice takes {slice_us:.0f}; submitted late by {said['both']['urgent_lag_p50_us']:.0f}, "
              f"p99 {said['both']['urgent_lag_p99_us']:.0f}")
    return [ended_well(row, "A8", *said.values()),
            row("A8", "urgent p99 above unloaded, slices", (beside - alone) / slice_us, 1.2, False, detail),
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
    return [ended_well(row, "A9", *heard),
            row("A9", "Jain's index, one with 8 x the threads", jain, 0.97, True, detail),
            row("A9", "sum, of one process alone", sum(each) / alone, 0.95, True, detail)]


def idle_share(process, seconds):
    before = process.ask("cpu")
    time.sleep(seconds)
    return (process.ask("cpu") - before) / seconds


def program(options, name):
    found = options.build / "bin" / name
    if not found.exists():
        raise floors.LeftOut(f"there is no {found}: build {name}")
    return found


def run_a14(row, options):
    """An engine with a peer, of which nothing is asked, and the same of the fabric alone; what telemetry costs."""
    silence = program(options, "fabric_silence")
    return [*telemetry(row, options), *idle(row, silence)]


def telemetry(row, options):
    """It cannot be turned off, since the scheduler decides by it. So its time by itself is compared with what this
    process spends for a slice, all of its work included."""
    done = subprocess.run([program(options, "transfer_telemetry")], capture_output=True, text=True, check=True)
    ns = float(done.stdout.split()[1])
    size, address = 64 << 10, ["--addresses", loop.HOST, "--providers", "tcp;ofi_rxm"]
    with streaming(address, address, "--threads", 1, "--size", size, "--seconds", 8) as (me, _):
        time.sleep(1)
        before = me.ask("report")
        time.sleep(4)
        after = me.ask("report")
    slices, cpu = (after[key] - before[key] for key in ("slices", "cpu_seconds"))
    return [row("A14", "telemetry of 64 KiB, share of the initiator's CPU", ns * slices / 1e9 / cpu, 0.01, False,
                f"{ns:.0f} ns of {cpu / slices * 1e9:.0f} a slice"),
            row("A14", "a report each second, share of a core", after["report_seconds"], 0.01, False,
                f"{after['report_seconds'] * 1e6:.0f} us a report")]


def idle(row, silence):
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


ROWS = {"A2": floors.run_a2, "A3": run_a3, "A4": run_a4, "A5": run_a5, "A6": run_a6, "A7": run_a7, "A8": run_a8,
        "A9": run_a9, "A14": run_a14}
