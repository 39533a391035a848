"""Engines of others, as `braid fabric bench --against` drives them.

A peer is a program with one argument, `target` or `writer`: the bench starts one process of each.
It asks by lines of JSON on standard input and waits for a line on standard output after each:

  {"do": "open", "provider": "tcp;ofi_rxm", "pattern": "paged", "memory_file": 5,
   "memory_bytes": 134217728, "target": ADDRESS}
        memory_file: an open file, to be mapped: the memory to write from (writer) or to be written
        (target). provider: what braid uses in this race; the peer takes what is like it.
        The target answers {"address": ADDRESS}: any JSON, which the writer is given as "target".
        {"missing": CAUSE}: not installed. {"not_applicable": CAUSE}: has nothing like it.
  {"do": "serve"}     target: from now on writes are to land at once
  {"do": "rest"}      target: no more writes come for a while: leave the processors to others
  {"do": "prepare", "size_bytes": 8192, "count": 16384, "depth": 1024, "pages_at_once": 256}
        writer: all that can be done once for many writes. See Load.
  {"do": "write"}     writer: the load. The clock runs. Answers once all bytes are visible at the
        target. The bench looks itself, too: who says so too early is timed until they are.

All answers are objects: {} if there is nothing to say, {"error": CAUSE} if it failed. The bench
verifies every byte. It kills both processes in the end.

A program of your own takes part by its path: `--against plain,./my_peer.py`.
"""

import ctypes
import json
import mmap
import os
import select
import sys


class Missing(Exception):
    """Something is not installed. `debian_packages` are those that the wheel needs besides."""

    def __init__(self, cause, debian_packages=()):
        folder = os.path.dirname(os.path.abspath(__file__))
        first = f"apt-get install {' '.join(debian_packages)} && " if debian_packages else ""
        super().__init__(
            f"{cause}. {first}python3 -m venv peers && "
            f"peers/bin/pip install --no-deps -r {folder}/requirements.txt, "
            "then --python peers/bin/python")


class NotApplicable(Exception):
    """This engine has nothing like the provider or the pattern."""


class Memory:
    def __init__(self, file, size_bytes):
        self.map = mmap.mmap(file, size_bytes, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.file = file
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size_bytes = size_bytes


class Load:
    """`count` writes of `size_bytes`, at most `depth` at once. Pages: a write has `pages_at_once` of
    them. Places are counted in sizes, and are the same in both memories."""

    def __init__(self, question):
        self.size_bytes = question["size_bytes"]
        self.count = question["count"]
        self.pages_at_once = question["pages_at_once"]
        self.writes_at_once = max(1, question["depth"] // self.pages_at_once)

    def writes(self):
        """The places of each write, in order. The pages of a write lie apart."""
        writes = self.count // self.pages_at_once
        return [range(first, self.count, writes) for first in range(writes)]


class Peer:
    """What a peer defines. A process is either the target or the writer."""

    def open_target(self, provider, pattern, memory):
        """Its address, as JSON."""
        raise NotImplementedError

    def open_writer(self, provider, pattern, memory, target):
        raise NotImplementedError

    def progress(self):
        """The target's side, called again and again while it serves. False: nothing to do; threads
        of the engine's own do it."""
        return False

    def prepare(self, load):
        raise NotImplementedError

    def write(self):
        raise NotImplementedError


def keep_under_way(items, at_once, start, has_ended):
    """Starts all items in order, with `at_once` of them under way. `start` gives what `has_ended`
    is asked with, or None if it has ended already."""
    under_way = []
    for item in items:
        while len(under_way) >= at_once:
            under_way = [handle for handle in under_way if not has_ended(handle)]
        handle = start(item)
        if handle is not None:
            under_way.append(handle)
    while under_way:
        under_way = [handle for handle in under_way if not has_ended(handle)]


def _open(peer, role, question):
    memory = Memory(question["memory_file"], question["memory_bytes"])
    try:
        if role == "target":
            address = peer.open_target(question["provider"], question["pattern"], memory)
            return {"address": address}
        peer.open_writer(question["provider"], question["pattern"], memory, question["target"])
        return {}
    except Missing as cause:
        return {"missing": str(cause)}
    except NotApplicable as cause:
        return {"not_applicable": str(cause)}


def _answer(peer, role, question):
    does = question["do"]
    try:
        if does == "open":
            return _open(peer, role, question)
        if does == "prepare":
            peer.prepare(Load(question))
        elif does == "write":
            peer.write()
        return {}
    except Exception as cause:  # whatever it is: the bench shows it to the user
        return {"error": f"{type(cause).__name__}: {cause}"}


def _questions(peer):
    unread, serves = b"", False
    while True:
        if b"\n" in unread:
            line, unread = unread.split(b"\n", 1)
            question = json.loads(line)
            serves = question["do"] == "serve"
            yield question
        elif serves and not select.select([0], [], [], 0)[0]:
            serves = peer.progress()
        else:
            part = os.read(0, 65536)
            if not part:
                return
            unread += part


def main(peer):
    answers = os.dup(1)
    os.dup2(2, 1)  # engines print what they like; answers go elsewhere
    role = sys.argv[1]
    for question in _questions(peer):
        os.write(answers, json.dumps(_answer(peer, role, question)).encode() + b"\n")
    os._exit(0)  # without the ends of engines, which may wait for each other
