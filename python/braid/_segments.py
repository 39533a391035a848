"""The segments that are open, by their names, for a program that closes none: those of peers that have ended are closed
when others are opened."""
import threading

from braid import _arguments as take, transfer

OPEN_LIMIT_S = 10
FIRST_LOOK = 64  # as many names are open when those of peers that have ended are first looked for
# The peer may have been restarted under its old name.
LOST = {transfer.PEER_LOST, transfer.NO_SEGMENT}


class Segments:
    """Any thread."""

    def __init__(self, engine):
        self._engine = engine
        self._lock = threading.Lock()
        self._numbers = {}  # by name
        self._look_at = FIRST_LOOK

    def number(self, name):
        """Opens it, unless it is open."""
        take.text("the segment's name", name)
        with self._lock:
            number = self._numbers.get(name)
        if number is not None:
            return number
        number = self._opened(name)
        with self._lock:
            known = self._numbers.setdefault(name, number)
            looks = len(self._numbers) >= self._look_at
        if known != number:  # another thread has opened it meanwhile
            self._engine.close_segment(number)
        if looks:
            self._drop_lost()
        return known

    def ranges_now(self, name):
        """Of whoever has the name now: the segment for transfers may be of one that has ended."""
        known = self.number(name)
        try:
            number = self._opened(name)
        except transfer.Error as error:
            if error.cause == transfer.PEER_LOST:  # the same one, which was given up
                self.drop(name, known)
            raise
        try:
            return self._engine.ranges(number)
        finally:
            self._engine.close_segment(number)

    def drop(self, name, number):
        """Of a peer that is lost. Threads that have just looked it up are told NO_SEGMENT."""
        with self._lock:
            if self._numbers.get(name) != number:
                return
            del self._numbers[name]
        self._engine.close_segment(number)

    def _opened(self, name):
        """A port is behind the last colon: "[::1]:4750" and "::1:4750" are the same peer."""
        full = name if "://" in name or ":" not in name else "braid://" + name
        try:
            return self._engine.open_segment(full, OPEN_LIMIT_S)
        except transfer.Error as error:
            if error.cause != transfer.TOO_MUCH or not self._drop_lost():
                raise
            return self._engine.open_segment(full, OPEN_LIMIT_S)

    def _drop_lost(self):
        """True: there was one. Twice as many names as are left then are open before the next look."""
        with self._lock:
            open_now = dict(self._numbers)
        lost = {name: number for name, number in open_now.items() if self._is_lost(number)}
        for name, number in lost.items():
            self.drop(name, number)
        with self._lock:
            self._look_at = max(FIRST_LOOK, 2 * len(self._numbers))
        return bool(lost)

    def _is_lost(self, number):
        try:
            self._engine.explain(number, 1)
        except transfer.Error as error:
            return error.cause in LOST
        return False
