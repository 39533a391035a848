"""include/braid/transfer_abi.h, by ctypes: the names without `braid_transfer_`, errors as exceptions.

The library is the one that BRAID_TRANSFER_LIBRARY names, or else as _library.py says.
"""
import ctypes
import weakref

from braid import _library as libraries

READ, WRITE = 0, 1
BULK, URGENT = 0, 1
MAY_READ, MAY_WRITE = 1, 2
DONE, NO_SEGMENT, PEER_LOST, PENDING = 0, 1, 9, 100
TEXT, JSON, PROMETHEUS = 1, 2, 3
NOTIFICATION_BYTES = 3072


class Error(Exception):
    pass


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("name", ctypes.c_char_p),
                ("listen", ctypes.c_char_p), ("addresses", ctypes.POINTER(ctypes.c_char_p)),
                ("address_count", ctypes.c_size_t), ("nics", ctypes.c_char_p),
                ("providers", ctypes.POINTER(ctypes.c_char_p)), ("provider_count", ctypes.c_size_t),
                ("secret_file", ctypes.c_char_p), ("allow_unauthenticated", ctypes.c_int),
                ("is_unpinned", ctypes.c_int),
                ("store", ctypes.c_char_p), ("gpu_memory", ctypes.c_int)]


class Request(ctypes.Structure):
    _fields_ = [("segment", ctypes.c_uint64), ("local", ctypes.c_void_p),
                ("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("operation", ctypes.c_int), ("urgency", ctypes.c_int),
                ("limit_us", ctypes.c_uint64)]


class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("rights", ctypes.c_int)]


class Outcome(ctypes.Structure):
    _fields_ = [("cause", ctypes.c_int), ("delivered_bytes", ctypes.c_uint64)]


class Notification(ctypes.Structure):
    _fields_ = [("segment", ctypes.c_uint64), ("name", ctypes.c_char_p),
                ("payload", ctypes.c_char_p), ("payload_bytes", ctypes.c_size_t)]


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
        raise Error(_library.braid_transfer_last_error().decode())


def cause_name(cause):
    global _library
    if _library is None:
        _library = _load()
    return _library.braid_transfer_cause_name(ctypes.c_int(cause)).decode()


def _texts(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def _close(engine, kept):
    """`kept` is let go after the engine, which uses it until then."""
    _library.braid_transfer_close(engine)
    kept.clear()


class Transfer:
    """An engine. Threads as transfer_abi.h says; ctypes gives the interpreter up during calls.

    It is closed by `close`, at the latest when nobody refers to it or the interpreter ends. Memory that
    is registered stays until then, or is unregistered: `keep` sees to it.
    """

    def __init__(self, listen=None, addresses=(), name=None, providers=(), secret_file=None,
                 allow_unauthenticated=False, store=None, gpu_memory=False):
        encoded = [text.encode() if text else None for text in (name, listen, secret_file, store)]
        options = Options(ctypes.sizeof(Options), encoded[0], encoded[1], _texts(addresses),
                          len(addresses), None, _texts(providers), len(providers), encoded[2],
                          int(allow_unauthenticated), 0, encoded[3], int(gpu_memory))
        self._engine = ctypes.c_void_p()
        _call("open", ctypes.byref(options), ctypes.byref(self._engine))
        self._kept = []
        self._finalizer = weakref.finalize(self, _close, self._engine, self._kept)

    def keep(self, owner):
        """The object that owns registered memory lives until the engine is closed."""
        self._kept.append(owner)

    def close(self):
        self._engine = None
        self._finalizer()

    def _text(self, name, *arguments):
        needed = ctypes.c_size_t()
        _call(name, self._engine, *arguments, None, ctypes.c_size_t(0), ctypes.byref(needed))
        buffer = ctypes.create_string_buffer(needed.value + 4096)
        _call(name, self._engine, *arguments, buffer, ctypes.c_size_t(len(buffer)), None)
        return buffer.value.decode()

    def name(self):
        return self._text("name")

    def report(self, form=JSON):
        return self._text("report", ctypes.c_int(form))

    def register_memory(self, address, size_bytes, rights):
        buffer = ctypes.c_uint64()
        _call("register_memory", self._engine, ctypes.c_void_p(address), ctypes.c_size_t(size_bytes),
              ctypes.c_int(rights), ctypes.byref(buffer))
        return buffer.value

    def allocate_memory(self, size_bytes, rights):
        """Its address and the buffer, of zeros. Processes of this host map what they may read."""
        memory, buffer = ctypes.c_void_p(), ctypes.c_uint64()
        _call("allocate_memory", self._engine, ctypes.c_size_t(size_bytes), ctypes.c_int(rights),
              ctypes.byref(memory), ctypes.byref(buffer))
        return memory.value, buffer.value

    def unregister_memory(self, buffer, limit_s=10):
        _call("unregister_memory", self._engine, ctypes.c_uint64(buffer),
              ctypes.c_uint64(int(limit_s * 1e6)))

    def open_segment(self, name, limit_s=10):
        segment = ctypes.c_uint64()
        _call("open_segment", self._engine, name.encode(), ctypes.c_uint64(int(limit_s * 1e6)),
              ctypes.byref(segment))
        return segment.value

    def export_folder(self, name, folder, rights):
        _call("export_folder", self._engine, name.encode(), folder.encode(), ctypes.c_int(rights))

    def open_file(self, segment, path, rights, limit_s=10):
        """A segment of its own: the file, by positions. `path`: "folder/file"."""
        file = ctypes.c_uint64()
        _call("open_file", self._engine, ctypes.c_uint64(segment), path.encode(), ctypes.c_int(rights),
              ctypes.c_uint64(int(limit_s * 1e6)), ctypes.byref(file))
        return file.value

    def close_segment(self, segment):
        _call("close_segment", self._engine, ctypes.c_uint64(segment))

    def ranges(self, segment):
        """(address, size, rights) of what the owner had registered when it was opened."""
        count = ctypes.c_size_t()
        _call("ranges", self._engine, ctypes.c_uint64(segment), None, ctypes.c_size_t(0),
              ctypes.byref(count))
        rows = (Range * count.value)()
        _call("ranges", self._engine, ctypes.c_uint64(segment), rows, count, ctypes.byref(count))
        return [(row.address, row.size_bytes, row.rights) for row in rows]

    def submit(self, segment, operation, local, there, sizes, notification=None, urgency=BULK):
        """Lists of addresses and sizes. `notification`: (name, bytes) for the segment's owner."""
        requests = (Request * len(sizes))()
        for request, here, far, size in zip(requests, local, there, sizes):
            request.segment, request.operation, request.urgency = segment, operation, urgency
            request.local, request.address, request.size_bytes = here, far, size
        told = None
        if notification is not None:
            name, payload = notification
            told = ctypes.byref(Notification(segment, name.encode(), payload, len(payload)))
        batch = ctypes.c_uint64()
        _call("submit", self._engine, requests, ctypes.c_size_t(len(sizes)), told,
              ctypes.byref(batch))
        return batch.value

    def wait(self, batch, limit_s):
        """Whether it has ended by the limit."""
        has_ended = ctypes.c_int()
        _call("wait", self._engine, ctypes.c_uint64(batch), ctypes.c_uint64(int(limit_s * 1e6)),
              ctypes.byref(has_ended))
        return has_ended.value != 0

    def outcomes(self, batch):
        """The cause of each request's end, DONE if it is done."""
        count = ctypes.c_size_t()
        _call("outcomes", self._engine, ctypes.c_uint64(batch), ctypes.c_size_t(0), None,
              ctypes.c_size_t(0), ctypes.byref(count))
        rows = (Outcome * count.value)()
        _call("outcomes", self._engine, ctypes.c_uint64(batch), ctypes.c_size_t(0), rows, count,
              None)
        return [row.cause for row in rows]

    def cancel(self, batch):
        _call("cancel", self._engine, ctypes.c_uint64(batch))

    def forget(self, batch):
        _call("forget", self._engine, ctypes.c_uint64(batch))

    def next_notification(self, limit_s=0):
        """(name, bytes), or None."""
        has_come, size = ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(NOTIFICATION_BYTES + 1)
        payload = ctypes.create_string_buffer(NOTIFICATION_BYTES)
        _call("next_notification", self._engine, ctypes.c_uint64(int(limit_s * 1e6)),
              ctypes.byref(has_come), name, payload, ctypes.byref(size), None)
        return (name.value.decode(), payload.raw[:size.value]) if has_come.value else None
