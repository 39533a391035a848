"""A peer for `braid fabric bench --against`: it copies into the target's memory, and needs nothing.

BRAID_COPY_PEER makes it misbehave: `corrupt`: a byte is wrong; `early`: it says that it is done
before it is; `die`: the writer ends in the middle; `missing`; `not_over_shm`; `noise`: it prints on
standard output.
"""

import os
import sys
import threading

sys.path.insert(0, os.environ["BRAID_PEER_FOLDER"])

from peer import Memory, Missing, NotApplicable, Peer, keep_under_way, main  # noqa: E402

FAULT = os.environ.get("BRAID_COPY_PEER", "")
LATE_SECONDS = 0.3


class Copy(Peer):
    def open_target(self, provider, pattern, memory):
        if FAULT == "missing":
            raise Missing("the copier is not installed", ["copier"])
        if FAULT == "not_over_shm" and provider == "shm":
            raise NotApplicable(f"the copier has nothing like {provider}")
        self.memory = memory
        return f"/proc/{os.getpid()}/fd/{memory.file}"

    def open_writer(self, provider, pattern, memory, target):
        self.memory = memory
        self.there = Memory(os.open(target, os.O_RDWR), memory.size_bytes)

    def progress(self):
        return False

    def prepare(self, load):
        self.load = load

    def _copy(self, places):
        size_bytes = self.load.size_bytes
        for place in places:
            begin, end = place * size_bytes, (place + 1) * size_bytes
            self.there.map[begin:end] = self.memory.map[begin:end]

    def write(self):
        if FAULT == "noise":
            print("a library says something")
        if FAULT == "die":
            os._exit(3)
        if FAULT == "early":
            late = threading.Timer(LATE_SECONDS, self._write_all)
            late.start()
            return
        self._write_all()
        if FAULT == "corrupt":
            last = (self.load.count // 2) * self.load.size_bytes
            self.there.map[last:last + 1] = b"\0"

    def _write_all(self):
        keep_under_way(self.load.writes(), self.load.writes_at_once, self._copy, lambda _: True)


main(Copy())
