"""Links between two hosts that are network namespaces: each limited, each to be cut without a word.

A link is two veth pairs that meet at a bridge in a third namespace. It is cut there: both ends stay up, and
packets go nowhere. Needs root and iproute2; `missing()` says what is not there.
"""
import os
import shutil
import subprocess


def missing():
    """Why there can be none here; nothing: there can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}: install iproute2"
    return None


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(words)}`: {done.stderr.strip()}")


class Links:
    """`here` and `there` are names of namespaces, and `address(side, rail)` is where an engine opens its rails."""

    def __init__(self, rails=4, megabit=400):
        self.rails, self.megabit = rails, megabit
        self.here, self.there, self.switch = (f"braid{os.getpid()}{side}" for side in "hts")

    def __enter__(self):
        try:
            for name in (self.here, self.there, self.switch):
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for rail in range(self.rails):
                run("ip", "-n", self.switch, "link", "add", f"bridge{rail}", "type", "bridge")
                run("ip", "-n", self.switch, "link", "set", f"bridge{rail}", "up")
                for side in (self.here, self.there):
                    self._add_end(side, rail)
            # One process for all cuts: to start one takes as long as what is measured.
            self.bridges = subprocess.Popen(["ip", "-n", self.switch, "-force", "-batch", "-"], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            return self
        except BaseException:
            self._remove()
            raise

    def __exit__(self, *_):
        self.bridges.stdin.close()
        self.bridges.wait()
        self._remove()

    def _remove(self):
        for name in (self.here, self.there, self.switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def _port(self, side, rail):
        return f"{'h' if side == self.here else 't'}{rail}"

    def _add_end(self, side, rail):
        port = self._port(side, rail)
        run("ip", "link", "add", port, "netns", side, "type", "veth", "peer", "name", port, "netns", self.switch)
        run("ip", "-n", side, "address", "add", f"{self.address(side, rail)}/24", "dev", port)
        self._limit("add", side, rail, self.megabit)
        run("ip", "-n", side, "link", "set", port, "up")
        run("ip", "-n", self.switch, "link", "set", port, "master", f"bridge{rail}", "up")

    def _limit(self, how, side, rail, megabit):
        run("tc", "-n", side, "qdisc", how, "dev", self._port(side, rail), "root", "tbf", "rate",
            f"{megabit}mbit", "burst", "64kb", "latency", "50ms")

    def address(self, side, rail):
        return f"10.215.{rail}.{1 if side == self.here else 2}"

    def addresses(self, side):
        return ",".join(self.address(side, rail) for rail in range(self.rails))

    def limit(self, rail, megabit):
        for side in (self.here, self.there):
            self._limit("change", side, rail, megabit)

    def cut(self, rail):
        self._tell(f"link set {self._port(self.there, rail)} nomaster")

    def mend(self, rail):
        self._tell(f"link set {self._port(self.there, rail)} master bridge{rail}")

    def _tell(self, line):
        self.bridges.stdin.write(line + "\n")
        self.bridges.stdin.flush()

    def gbps(self, *megabits):
        """What rails of so many Mbit/s carry together; without any: all of them."""
        return sum(megabits or [self.megabit] * self.rails) / 8e3
