"""Row A9 for real: four processes that write over four rails of 400 Mbit, one with eight times the threads."""
import os
import pathlib
import shutil
import subprocess
import time

RAILS = 4
RATE = "400mbit"
BLOCK_BYTES = 1 << 20
THREADS = (32, 4, 4, 4)
SETTLE_S = 3
BIN_S = 0.01


def why_not(build):
    """Why it cannot be run here; None: it can."""
    if os.geteuid() != 0:
        return "it needs root"
    if not all(shutil.which(tool) for tool in ("ip", "tc")):
        return "it needs iproute2"
    if not (build / "tests" / "transfer_owner").exists():
        return "it needs build/tests/transfer_owner"
    return None


def sh(words):
    subprocess.run(words.split(), check=True, capture_output=True)


class Rails:
    """Two network namespaces with limited links between them, as long as the block lasts."""

    def __enter__(self):
        self.here, self.there = (f"braid{side}{os.getpid()}" for side in ("h", "t"))
        for space in (self.here, self.there):
            sh(f"ip netns add {space}")
            sh(f"ip -n {space} link set lo up")
        for rail in range(RAILS):
            sh(f"ip -n {self.here} link add r{rail} type veth peer name r{rail} netns {self.there}")
            for space, last in ((self.here, 1), (self.there, 2)):
                sh(f"ip -n {space} address add 10.216.{rail}.{last}/24 dev r{rail}")
                sh(f"ip -n {space} link set r{rail} up")
            sh(f"tc -n {self.here} qdisc add dev r{rail} root tbf rate {RATE} burst 256kb latency 50ms")
        return self

    def __exit__(self, *_):
        for space in (self.here, self.there):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


class Owner:
    def __init__(self, build, space, last):
        words = [build / "tests" / "transfer_owner", f"netns={space}", "provider=tcp;ofi_rxm", "insecure=1",
                 f"bytes={BLOCK_BYTES}"] + [f"address=10.216.{rail}.{last}" for rail in range(RAILS)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name, *self.addresses = self.process.stdout.readline().split()
        if not self.addresses:
            raise RuntimeError("an engine does not start")

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def moved(self):
        return int(self.ask("moved"))

    def end(self):
        self.process.kill()
        self.process.wait()


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def left_alone(writer, others, seconds):
    """What the one that is left carries in the end, GB/s, and the seconds until it has 95 % of that."""
    for other in others:
        other.process.kill()
    begun = time.perf_counter()
    seen = [(0.0, writer.moved())]
    while seen[-1][0] < seconds:
        time.sleep(BIN_S)
        seen.append((time.perf_counter() - begun, writer.moved()))
    half = len(seen) // 2
    final = (seen[-1][1] - seen[half][1]) / (seen[-1][0] - seen[half][0])
    for (since, bytes_then), (until, bytes_now) in zip(seen, seen[1:]):
        if bytes_now - bytes_then >= 0.95 * final * (until - since):
            return final / 1e9, since
    return final / 1e9, seconds


def measure(build, seconds):
    """(GB/s of each, GB/s of one that is left alone, milliseconds until it has that)."""
    with Rails() as rails:
        target = Owner(build, rails.there, 2)
        writers = []
        try:
            for threads in THREADS:
                writers.append(Owner(build, rails.here, 1))
                said = writers[-1].ask(f"load {target.name} {target.addresses[2]} {BLOCK_BYTES} 1 {threads}")
                if said != "loading":
                    raise RuntimeError(said)
            time.sleep(SETTLE_S)
            begun, before = time.perf_counter(), [writer.moved() for writer in writers]
            time.sleep(seconds)
            bytes_each = [writer.moved() - then for writer, then in zip(writers, before)]
            gbps = [each / (time.perf_counter() - begun) / 1e9 for each in bytes_each]
            alone_gbps, alone_s = left_alone(writers[-1], writers[:-1], 1)
        finally:
            for owner in [target, *writers]:
                owner.end()
    return gbps, alone_gbps, alone_s * 1e3
