"""include/braid/transfer_abi.h, by ctypes: the names without `braid_transfer_`, errors as exceptions,
limits in seconds.

    with transfer.Transfer(listen="10.0.0.7:4750") as engine:            # the owner
        engine.register_memory(address, size, transfer.MAY_READ)         # data_ptr(), ctypes.addressof(...)
        print(engine.name())

    with transfer.Transfer(addresses=["10.0.0.8"]) as engine:            # whoever reads there
        engine.register_memory(local, size, 0)
        there = engine.open_segment("braid://10.0.0.7:4750")
        address, size, rights = engine.ranges(there)[0]
        causes = engine.submit_and_wait(there, transfer.READ, [local], [address], [size], limit_s=10)

examples/transfer.py is both as a program. The header says what each call means. What a call cannot take is a TypeError
or a ValueError that names the argument, before the library is called.

The library is the one that BRAID_TRANSFER_LIBRARY names, or else as _library.py says.
"""
import array
import contextlib
import ctypes
import os
import struct
import sys
import threading
import time
import weakref

from braid import _arguments as take, _library as libraries

READ, WRITE = 0, 1
BULK, URGENT = 0, 1
MAY_READ, MAY_WRITE = 1, 2
(DONE, NO_SEGMENT, LOCAL_MEMORY, OUTSIDE, NOT_ALLOWED, NO_FILE, FILE_ERROR, DEADLINE, CANCELLED, PEER_LOST,
 TOO_MUCH, OTHER_VERSION, WAYS_FAILED, GPU_ERROR, NO_WAY) = range(15)
OTHER_SECRET, NO_STORE, NO_SPACE, READ_ONLY, DEVICE_ERROR, STORE_REFUSES = range(16, 22)
PENDING, NO_CAUSE = 100, 101
TEXT, JSON, PROMETHEUS = 1, 2, 3
NOTIFICATION_BYTES = 3072
# Calls that wait for longer see after this time that another thread closes the engine.
TURN_S = 0.1
_TURN = take.limit("TURN_S", TURN_S)


class Error(Exception):
    """`cause`: one of the constants, as OTHER_SECRET; NO_CAUSE if the message alone says what is wrong.
    `status`: the braid_status (braid.h) of the call, 0 where it was none of the library's."""

    def __init__(self, message, cause=NO_CAUSE, status=0):
        super().__init__(message)
        self.cause, self.status = cause, status


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("name", ctypes.c_char_p),
                ("listen", ctypes.c_char_p), ("addresses", ctypes.POINTER(ctypes.c_char_p)),
                ("address_count", ctypes.c_size_t), ("nics", ctypes.c_char_p),
                ("providers", ctypes.POINTER(ctypes.c_char_p)), ("provider_count", ctypes.c_size_t),
                ("secret_file", ctypes.c_char_p), ("allow_unauthenticated", ctypes.c_int),
                ("is_unpinned", ctypes.c_int),
                ("store", ctypes.c_char_p), ("gpu_memory", ctypes.c_int)]


class Request(take.Structure):
    _fields_ = [("segment", ctypes.c_uint64), ("local", ctypes.c_void_p),
                ("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("operation", ctypes.c_int), ("urgency", ctypes.c_int),
                ("limit_us", ctypes.c_uint64)]


def request(segment, operation, local, address, size_bytes, urgency=BULK, limit_s=0):
    """For submit_requests and explain_request; `limit_s` is its deadline, 0 none. One below 0 has passed."""
    return Request(segment, local, address, size_bytes, operation, urgency, take.deadline_us("limit_s", limit_s))


class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("rights", ctypes.c_int)]


class Outcome(ctypes.Structure):
    _fields_ = [("cause", ctypes.c_int), ("delivered_bytes", ctypes.c_uint64)]


# Outcomes as an array of ints, of which each has its cause in the first: sooner than structures.
OUTCOME_INTS = ctypes.sizeof(Outcome) // ctypes.sizeof(ctypes.c_int)


class Notification(ctypes.Structure):
    _fields_ = [("segment", ctypes.c_uint64), ("name", ctypes.c_char_p),
                ("payload", ctypes.c_char_p), ("payload_bytes", ctypes.c_size_t)]


# Of a Request.
ROW_WORDS = 6
_OPERATION_AND_URGENCY = struct.Struct("=ii")


def _rows(segment, operation, local, there, sizes, urgency, limit_us):
    """Requests one behind the other, in words: an array of structures takes ten times as long to fill."""
    segment, operation = take.whole("segment", segment), take.whole("operation", operation, ctypes.c_int)
    both = _OPERATION_AND_URGENCY.pack(operation, take.whole("urgency", urgency, ctypes.c_int))
    local, there, sizes = take.wholes("local", local), take.wholes("there", there), take.wholes("sizes", sizes)
    if not len(local) == len(there) == len(sizes):
        raise ValueError(f"the lists differ in length: local has {len(local)}, there {len(there)}, "
                         f"sizes {len(sizes)}")
    row = array.array("Q", (segment, 0, 0, 0, int.from_bytes(both, sys.byteorder), limit_us))
    rows = row * len(local)
    rows[1::ROW_WORDS], rows[2::ROW_WORDS], rows[3::ROW_WORDS] = local, there, sizes
    return rows


def _told_by(segment, notification):
    return None if notification is None else (segment, *take.parts("notification", notification, "name, bytes"))


def _notification(told):
    if told is None:
        return None
    segment, name, payload = told
    payload = take.data("the notification's bytes", payload)
    return ctypes.byref(Notification(take.number("the notification's segment", segment),
                                     take.text("the notification's name", name), payload, len(payload)))


def _load():
    library = ctypes.CDLL(libraries.find("transfer"))
    library.braid_transfer_last_error.restype = ctypes.c_char_p
    library.braid_transfer_cause_name.restype = ctypes.c_char_p
    return library


_library = None


def _call(name, *arguments):
    global _library
    if _library is None:
        _library = _load()
    status = getattr(_library, "braid_transfer_" + name)(*arguments)
    if status != 0:
        raise Error(_library.braid_transfer_last_error().decode(errors="replace"),
                    _library.braid_transfer_last_cause(), status)


def _text(call, *arguments):
    """The text of a call that says how long it is. It may have grown by the time that it is fetched."""
    needed = ctypes.c_size_t()
    call(*arguments, None, ctypes.c_size_t(0), ctypes.byref(needed))
    while True:
        buffer = ctypes.create_string_buffer(needed.value + 4096)
        try:
            call(*arguments, buffer, ctypes.c_size_t(len(buffer)), ctypes.byref(needed))
            return buffer.value.decode(errors="replace")
        except Error:
            if needed.value <= len(buffer):
                raise


def topology(devices=()):
    """Which RDMA devices of this host are near which memory: {"cpu:0": [[the nearest], [all others]], ...}, as text."""
    names = take.texts("devices", devices)
    return _text(_call, "topology", names, ctypes.c_size_t(len(names)))


def cause_name(cause):
    global _library
    if _library is None:
        _library = _load()
    return _library.braid_transfer_cause_name(take.choice("cause", cause)).decode()


_forks = 0  # between the first import of this module and this process


def _forked():
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class _Handle:
    """The library's engine and the calls that are under way in it, which end before it is closed: threads go
    on while the interpreter ends."""

    def __init__(self):
        self.engine = ctypes.c_void_p()
        self.kept = []
        self._lock = threading.RLock()  # a signal may come while it is held, and its handler call the engine
        self._changed = threading.Condition(self._lock)
        self._calls = {}  # how many, by thread. Each thread changes its own number alone
        self._is_closing = False
        self._forks, self._process = _forks, os.getpid()

    def call(self, name, *arguments):
        if _forks != self._forks:  # whoever held the lock is in the parent; the library says what is wrong
            return _call(name, self.engine, *arguments)
        if self._is_closing:  # whoever tries again and again does not hold `close` up
            raise Error("this engine is closed. Open another one")
        me, calls = threading.get_ident(), self._calls
        calls[me] = calls.get(me, 0) + 1  # before the look at `_is_closing`, which is set before a look at `_calls`
        try:
            if self._is_closing:
                raise Error("this engine is closed. Open another one")
            _call(name, self.engine, *arguments)
        finally:
            left = calls[me] - 1
            if left > 0:
                calls[me] = left
            else:
                del calls[me]
            if self._is_closing:
                with self._lock:
                    self._changed.notify_all()

    def close(self):
        """What is kept is let go after the engine, which uses it until then. If this is interrupted while other
        threads' calls are under way, it can be called again. A signal's handler may have interrupted a call of its own
        thread, which goes on after the handler, and then finds no engine."""
        if os.getpid() == self._process:  # also after a fork that Python does not know of
            with self._changed:
                self._is_closing = True
                self._changed.wait_for(lambda: not self._is_used_by_others())
        engine, self.engine.value = self.engine.value, None
        if engine:  # else another thread closes it
            _library.braid_transfer_close(ctypes.c_void_p(engine))
            self.kept.clear()

    def _is_used_by_others(self):
        return any(thread != threading.get_ident() for thread in list(self._calls))


class Transfer:
    """An engine. Threads as transfer_abi.h says; ctypes gives the interpreter up during calls.

    It is closed by `close`, at the latest when nobody refers to it or the interpreter ends. Closing ends
    `wait` and `next_notification` of other threads, and waits for their other calls. Memory that is
    registered stays until then, or is unregistered: `keep` sees to it.
    """

    def __init__(self, listen=None, addresses=(), name=None, providers=(), secret_file=None,
                 allow_unauthenticated=False, store=None, gpu_memory=False, nics=None, is_unpinned=False):
        name, listen, secret_file, store, nics = (
            take.text_or_none(*each) for each in (("name", name), ("listen", listen), ("secret_file", secret_file),
                                                       ("store", store), ("nics", nics)))
        addresses, providers = take.texts("addresses", addresses), take.texts("providers", providers)
        options = Options(ctypes.sizeof(Options), name, listen, addresses, len(addresses), nics, providers,
                          len(providers), secret_file,
                          take.flag("allow_unauthenticated", allow_unauthenticated),
                          take.flag("is_unpinned", is_unpinned), store, take.flag("gpu_memory", gpu_memory))
        self._handle = _Handle()
        _call("open", ctypes.byref(options), ctypes.byref(self._handle.engine))
        self._finalizer = weakref.finalize(self, self._handle.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def keep(self, owner):
        """The object that owns registered memory lives until the engine is closed."""
        self._handle.kept.append(owner)

    def close(self):
        self._handle.close()
        self._finalizer.detach()  # only now: whoever interrupts the line above leaves an engine to be closed

    def pointer(self):
        """The library's, for those that call it by themselves."""
        return self._handle.engine.value or 0

    def _call(self, name, *arguments):
        self._handle.call(name, *arguments)

    @staticmethod
    def _in_turns(limit_s, is_over):
        """Calls `is_over(limit_s)` until it is so, or the limit."""
        limit_s = take.seconds("limit_s", limit_s)
        end = time.monotonic() + limit_s
        while not is_over(min(limit_s, TURN_S)):
            limit_s = end - time.monotonic()
            if limit_s <= 0:
                return

    def _text(self, name, *arguments):
        return _text(self._call, name, *arguments)

    def name(self):
        return self._text("name")

    def report(self, form=JSON):
        return self._text("report", take.choice("form", form))

    def register_memory(self, address, size_bytes, rights):
        buffer = ctypes.c_uint64()
        self._call("register_memory", take.number("address", address), take.number("size_bytes", size_bytes),
                   take.choice("rights", rights), ctypes.byref(buffer))
        return buffer.value

    def allocate_memory(self, size_bytes, rights):
        """(address, buffer) of zeroed memory that is the engine's: gone once it is unregistered or the engine closed.
        Processes of this host map it if they may read it."""
        memory, buffer = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("allocate_memory", take.number("size_bytes", size_bytes), take.choice("rights", rights),
                   ctypes.byref(memory), ctypes.byref(buffer))
        return memory.value, buffer.value

    def unregister_memory(self, buffer, limit_s=10):
        self._call("unregister_memory", take.number("buffer", buffer), take.limit("limit_s", limit_s))

    def open_segment(self, name, limit_s=10):
        segment = ctypes.c_uint64()
        self._call("open_segment", take.text("name", name), take.limit("limit_s", limit_s), ctypes.byref(segment))
        return segment.value

    def export_folder(self, name, folder, rights):
        self._call("export_folder", take.text("name", name), take.text("folder", folder),
                   take.choice("rights", rights))

    def open_file(self, segment, path, rights, limit_s=10):
        """A segment of its own: the file, by positions. `path`: "folder/file"."""
        file = ctypes.c_uint64()
        self._call("open_file", take.number("segment", segment), take.text("path", path),
                   take.choice("rights", rights), take.limit("limit_s", limit_s), ctypes.byref(file))
        return file.value

    def file_bytes(self, file):
        """Its size when it was opened."""
        size_bytes = ctypes.c_uint64()
        self._call("file_bytes", take.number("file", file), ctypes.byref(size_bytes))
        return size_bytes.value

    def close_segment(self, segment):
        self._call("close_segment", take.number("segment", segment))

    def ranges(self, segment):
        """(address, size, rights) of what the owner had registered when it was opened. Those of the own segment are
        of now, and may have become more or fewer by the time that they are fetched."""
        segment, count, rows = take.number("segment", segment), ctypes.c_size_t(), ()
        self._call("ranges", segment, None, ctypes.c_size_t(0), ctypes.byref(count))
        while count.value > len(rows):
            rows = (Range * count.value)()
            self._call("ranges", segment, rows, count, ctypes.byref(count))
        return [(row.address, row.size_bytes, row.rights) for row in rows[:count.value]]

    def submit(self, segment, operation, local, there, sizes, notification=None, urgency=BULK, limit_s=0):
        """To one segment: lists of addresses and sizes. `notification`: (name, bytes) for its owner."""
        rows = _rows(segment, operation, local, there, sizes, urgency, take.deadline_us("limit_s", limit_s))
        return self._submit(rows.buffer_info()[0], len(rows) // ROW_WORDS, _told_by(segment, notification))

    def submit_and_wait(self, segment, operation, local, there, sizes, limit_s, notification=None, urgency=BULK):
        """The same, and the cause of each request's end. What has not ended by the limit, or when Ctrl-C comes, is
        cancelled and waited for: afterwards the memory is the caller's. A second Ctrl-C ends that wait."""
        limit_s = take.seconds("limit_s", limit_s)
        end = time.monotonic() + limit_s
        rows = _rows(segment, operation, local, there, sizes, urgency, 0)
        count, batch = len(rows) // ROW_WORDS, ctypes.c_uint64()
        outcomes = array.array("i", bytes(count * ctypes.sizeof(Outcome)))
        turn = _TURN if limit_s >= TURN_S else take.limit("limit_s", limit_s)
        try:
            self._call("submit_and_wait", ctypes.c_void_p(rows.buffer_info()[0]), ctypes.c_size_t(count),
                       _notification(_told_by(segment, notification)), turn,
                       ctypes.c_void_p(outcomes.buffer_info()[0]), ctypes.byref(batch))
            if not batch.value:
                return outcomes[::OUTCOME_INTS].tolist()
            if not self.wait(batch.value, end - time.monotonic()):
                self.cancel(batch.value)
            return self._taken(batch.value)
        except BaseException:
            if batch.value:
                self._give_up(batch.value)
            raise

    def _give_up(self, batch):
        """A batch that is gone already, or whose engine is closed, has ended."""
        with contextlib.suppress(Error):
            self.cancel(batch)
            self._taken(batch)

    def _taken(self, batch):
        """The causes of a batch that ends before long, which is forgotten."""
        while not self.wait(batch, 60):
            pass
        causes = self.outcomes(batch)
        self.forget(batch)
        return causes

    def submit_requests(self, requests, notification=None):
        """To any segments: what `request` makes. `notification`: (segment, name, bytes)."""
        told = None if notification is None else take.parts("notification", notification, "segment, name, bytes")
        requests = take.instances("requests", requests, Request)
        return self._submit(ctypes.addressof(requests), len(requests), told)

    def _submit(self, rows, count, told):
        batch = ctypes.c_uint64()
        self._call("submit", ctypes.c_void_p(rows), ctypes.c_size_t(count), _notification(told), ctypes.byref(batch))
        return batch.value

    def wait(self, batch, limit_s):
        """Whether it has ended by the limit."""
        batch, has_ended = take.number("batch", batch), ctypes.c_int()

        def is_over(turn_s):
            self._call("wait", batch, take.limit("limit_s", turn_s), ctypes.byref(has_ended))
            return has_ended.value != 0

        self._in_turns(limit_s, is_over)
        return has_ended.value != 0

    def _outcomes(self, batch):
        batch, first, count = take.number("batch", batch), ctypes.c_size_t(0), ctypes.c_size_t()
        self._call("outcomes", batch, first, None, ctypes.c_size_t(0), ctypes.byref(count))
        rows = (Outcome * count.value)()
        self._call("outcomes", batch, first, rows, count, None)
        return rows

    def outcomes(self, batch):
        """The cause of each request's end, DONE if it is done."""
        return [row.cause for row in self._outcomes(batch)]

    def delivered_bytes(self, batch):
        """Of each request; of a failed one: not a prefix."""
        return [row.delivered_bytes for row in self._outcomes(batch)]

    def cancel(self, batch):
        self._call("cancel", take.number("batch", batch))

    def forget(self, batch):
        self._call("forget", take.number("batch", batch))

    def event_descriptor(self):
        """Readable while batches that have ended, or notifications, have not been taken. The engine's."""
        descriptor = ctypes.c_int()
        self._call("event_descriptor", ctypes.byref(descriptor))
        return descriptor.value

    def take_ended(self, count_max=64):
        """Batches that have ended since the first call of event_descriptor, each once."""
        count_max, count = take.number("count_max", count_max), ctypes.c_size_t()
        batches = (ctypes.c_uint64 * count_max.value)()
        self._call("take_ended", batches, count_max, ctypes.byref(count))
        return list(batches[:count.value])

    def next_notification(self, limit_s=0):
        """(name, bytes, the sender's incarnation), or None. A name that is no UTF-8 has its bytes as
        `surrogateescape`."""
        has_come, size = ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(NOTIFICATION_BYTES + 1)
        payload = ctypes.create_string_buffer(NOTIFICATION_BYTES)
        sender = ctypes.create_string_buffer(33)

        def is_over(turn_s):
            self._call("next_notification", take.limit("limit_s", turn_s), ctypes.byref(has_come), name, payload,
                       ctypes.byref(size), sender)
            return has_come.value != 0

        self._in_turns(limit_s, is_over)
        if not has_come.value:
            return None
        return name.value.decode(errors="surrogateescape"), payload.raw[:size.value], sender.value.decode()

    def explain(self, segment, size_bytes, urgency=BULK, form=TEXT):
        """Which ways a request between host memory would have, and why it takes the one that it takes."""
        return self._text("explain", take.number("segment", segment), take.number("size_bytes", size_bytes),
                          take.choice("urgency", urgency), take.choice("form", form))

    def explain_request(self, one, form=TEXT):
        """The same of what `request` makes, with the hops of each way."""
        one = take.instance("one", one, Request)
        return self._text("explain_request", ctypes.byref(one), take.choice("form", form))
