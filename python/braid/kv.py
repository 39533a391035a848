"""include/braid/kv_abi.h, by ctypes: the names without `braid_kv_`, errors as exceptions.

    base, segments = kv.segments_of([(layer.data_ptr(), layer.stride(0) * layer.element_size()) for layer in layers])
    with kv.Rotation(segments, gpu_slots, host_slots, [kv.Rank(kv.current_context(), base, stream.cuda_stream)]) as cache:
        cache.poll()
        cache.apply(kv.END_USE, preempted)
        cache.submit(evict=preempted, load=resumed)
        cache.apply(kv.BEGIN_USE, resumed)
        cache.begin_step()
        block = cache.create()           # this step's kernels, in `stream`, write at cache.gpu_slots([block])[0]
        cache.apply(kv.SEAL, full)
        cache.end_step()

An engine's tensors, `layers`, stay its own: a block is one slot of each. A step's stream is not the legacy default
one. kv_abi.h says what is ordered, who owns what, which threads may call and what failure leaves behind. The library
is the one that BRAID_KV_LIBRARY names, or else as _library.py says.
"""
import ctypes
import dataclasses
import os
import threading
import weakref

from braid import _arguments as take, _library as libraries

ADD_REFERENCE, RELEASE, BEGIN_USE, END_USE, SEAL, REOPEN, DROP_HOST, LOSE = range(8)
DIRTY, SEALED, SYNCING, SYNCED, HOST_ONLY, LOADING, LOST = range(7)
BLOCK_FIRST, LAYER_FIRST = 0, 1
ORDERED, POLLED = 0, 1
BY_DRIVER, BY_KERNEL, BY_COPY_ENGINES = range(3)
NO_LIMIT = 2**64 - 1
# Refusals; FAILED is no block's doing.
(NOT_REFUSED, UNKNOWN_BLOCK, WRONG_STATE, IN_USE, SHARED, COPYING, NO_GPU_SLOT, NO_HOST_SLOT, STEP_NOT_ENDED,
 FAILED) = range(10)
NO_SLOT = 2**32 - 1
_ARGUMENT = 1  # BRAID_ERROR_ARGUMENT


class Error(Exception):
    """`status`: the braid_status (braid.h) of the call, 0 where there was none. `cuda_result` is the driver's answer
    where it was the driver that refused, else 0. `submitted`: of submit, what of the plan is under way all the same."""

    def __init__(self, words, cuda_result=0, status=0):
        super().__init__(words)
        self.cuda_result, self.status, self.submitted = cuda_result, status, None


class Refused(Error):
    """An operation on a block that changed nothing; `done` blocks of the list came before it."""

    def __init__(self, words, refusal, done, status=0):
        super().__init__(words, status=status)
        self.refusal, self.done = refusal, done


class Model(take.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("layers", "kv_heads", "head_size", "element_bytes", "block_tokens")]


class Segment(take.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("gpu_base_bytes", "gpu_stride_bytes", "size_bytes")]


class Rank(take.Structure):
    """A GPU of the group: its context, the address of its cache, and the stream of its steps."""
    _fields_ = [("context", ctypes.c_void_p), ("cache", ctypes.c_uint64), ("compute", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("segments", ctypes.POINTER(Segment)),
                ("segment_count", ctypes.c_size_t), ("gpu_slots", ctypes.c_uint32), ("host_slots", ctypes.c_uint32),
                ("ranks", ctypes.POINTER(Rank)), ("rank_count", ctypes.c_size_t), ("engine", ctypes.c_void_p),
                ("copy_batch", ctypes.c_void_p), ("last_error", ctypes.c_void_p), ("last_cuda_error", ctypes.c_void_p),
                ("prepare", ctypes.c_void_p), ("mover", ctypes.c_int), ("remote_rank_count", ctypes.c_uint32),
                ("report_deadline_ms", ctypes.c_uint64)]


class _Plan(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("evict", ctypes.POINTER(ctypes.c_uint64)),
                ("evict_count", ctypes.c_size_t), ("load", ctypes.POINTER(ctypes.c_uint64)),
                ("load_count", ctypes.c_size_t), ("landing", ctypes.c_int), ("no_write_through", ctypes.c_int),
                ("down_bytes", ctypes.c_uint64), ("up_bytes", ctypes.c_uint64)]


class _Submitted(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("down_bytes", ctypes.c_uint64), ("up_bytes", ctypes.c_uint64),
                ("evictions_left", ctypes.c_size_t), ("loads_left", ctypes.c_size_t),
                ("refused", ctypes.POINTER(ctypes.c_uint64)), ("refusals", ctypes.POINTER(ctypes.c_int)),
                ("refused_count", ctypes.c_size_t)]


class _Report(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("synced", ctypes.POINTER(ctypes.c_uint64)),
                ("synced_count", ctypes.c_size_t), ("loaded", ctypes.POINTER(ctypes.c_uint64)),
                ("loaded_count", ctypes.c_size_t), ("failed", ctypes.POINTER(ctypes.c_uint64)),
                ("failed_count", ctypes.c_size_t), ("cause", ctypes.c_char_p)]


class _Applied(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("step", ctypes.c_uint64), ("failed_batches", ctypes.c_size_t)]


class Block(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("state", ctypes.c_int), ("gpu_slot", ctypes.c_uint32),
                ("host_slot", ctypes.c_uint32), ("references", ctypes.c_uint32), ("users", ctypes.c_uint32)]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("block_bytes", ctypes.c_uint64), ("blocks", ctypes.c_size_t * 7),
                *((name, ctypes.c_uint32) for name in
                  ("gpu_slots_free", "gpu_slots_fenced", "host_slots_free", "host_slots_fenced")),
                ("accelerated_bytes", ctypes.c_uint64), ("native_bytes", ctypes.c_uint64)]


@dataclasses.dataclass
class Submitted:
    """What a plan came to. `refused`: (block, refusal) pairs; `refusal_words` says it in words."""
    down_bytes: int
    up_bytes: int
    evictions_left: int
    loads_left: int
    refused: list


@dataclasses.dataclass
class Report:
    """`failed`: blocks that a rank of another process could not copy after all, and `cause`: see kv_abi.h."""
    synced: list
    loaded: list
    failed: list
    cause: str


@dataclasses.dataclass
class Applied:
    """What a worker's commands came to. `step`: to be launched now, or 0."""
    step: int
    failed_batches: int


_loaded = None
_loading = threading.Lock()


def _library():
    global _loaded
    with _loading:
        if _loaded is not None:
            return _loaded
        library = ctypes.CDLL(libraries.find("kv"))
        for name, result in (("last_error", ctypes.c_char_p), ("refusal_words", ctypes.c_char_p),
                             ("host_block", ctypes.c_void_p), ("begin_step", ctypes.c_uint64),
                             ("close", None), ("wait", None), ("worker_host_block", ctypes.c_void_p),
                             ("worker_close", None), ("worker_wait", None)):
            getattr(library, "braid_kv_" + name).restype = result
        _loaded = library  # whoever sees it sees its result types
    return _loaded


def _call(name, *arguments):
    status = getattr(_library(), "braid_kv_" + name)(*arguments)
    if status != 0:
        raise _last_error(status)


def _last_error(status=0):
    return Error(_library().braid_kv_last_error().decode(), _library().braid_kv_last_cuda_error(), status)


def refusal_words(refusal):
    """Why, for people: "a copy to or from the block is under way"."""
    return _library().braid_kv_refusal_words(take.choice("refusal", refusal)).decode()


def _answer(kind):
    return kind(struct_bytes=ctypes.sizeof(kind))


def _bytes(name, *arguments):
    """What a call hands out, copied."""
    there, size_bytes = ctypes.c_void_p(), ctypes.c_size_t()
    _call(name, *arguments, ctypes.byref(there), ctypes.byref(size_bytes))
    return ctypes.string_at(there, size_bytes.value) if size_bytes.value else b""


class _Handle:
    """What a library calls something by, until it is closed: at the latest when nobody refers to its owner any more,
    or the interpreter ends. What has to outlive it is kept until then. A child process leaves it to the parent."""

    def __init__(self, close, kept=None):
        self.value = ctypes.c_void_p()
        self._close, self._kept = close, kept  # `_library` may not be called while garbage is collected: it locks
        self._process = os.getpid()

    def close(self):
        value, self.value.value = self.value.value, None
        if value and os.getpid() == self._process:
            self._close(ctypes.c_void_p(value))
        self._kept = None


class _Closing:
    """Its `_handle` is closed by `close`, or as `_Handle` says. Whoever lets go of the last reference to it waits as
    `close` does."""

    def _open(self, handle):
        self._handle, self._finalizer = handle, weakref.finalize(self, handle.close)

    def close(self):
        self._handle.close()
        self._finalizer.detach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def _opened(self):
        """NULL would blame a block, or pass for an answer."""
        if not self._handle.value:
            raise Error(f"this {type(self).__name__} is closed. Open another one", status=_ARGUMENT)
        return self._handle.value


def _slots(argument, count):
    return take.number(argument, count, ctypes.c_uint32)


def _options(segments, gpu_slots, host_slots, ranks, engine, mover):
    segments, ranks = take.instances("segments", segments, Segment), take.instances("ranks", ranks, Rank)
    mover = take.whole("mover", mover, ctypes.c_int)
    if engine is not None:
        take.instance("engine", engine, Engine)
    options = _Options(ctypes.sizeof(_Options), segments, len(segments), _slots("gpu_slots", gpu_slots),
                       _slots("host_slots", host_slots), ranks, len(ranks),
                       *(engine.options(mover) if engine is not None else ()))
    options.mover = mover
    return options


def segments(model, order, gpu_slots):
    """Of one cache that is a single range of memory, in either order."""
    count, model = ctypes.c_size_t(), take.instance("model", model, Model)
    arguments = ctypes.byref(model), take.choice("order", order), _slots("gpu_slots", gpu_slots)
    _call("segments", *arguments, None, ctypes.c_size_t(0), ctypes.byref(count))
    found = (Segment * count.value)()
    _call("segments", *arguments, found, count, ctypes.byref(count))
    return list(found)


def segments_of(tensors):
    """(the cache's beginning, segments) of tensors that hold a slot of every block each, as engines keep a tensor for
    each layer: (address, bytes from one slot to the next) of each."""
    tensors = [take.parts(f"tensors[{index}]", tensor, "address, bytes from one slot to the next")
               for index, tensor in enumerate(take.listed("tensors", tensors))]
    if not tensors:
        raise ValueError("tensors is []. Give one tensor or more")
    base = min(take.whole("a tensor's address", address) for address, _ in tensors)
    return base, [Segment(address - base, slot_bytes, slot_bytes) for address, slot_bytes in tensors]


def current_context():
    """The CUDA context of this thread: PyTorch's, once it has been used here."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    result = driver.cuCtxGetCurrent(ctypes.byref(context))
    if result != 0 or not context:
        raise Error("this thread has no CUDA context. Use the GPU first: torch.cuda.init()", result)
    return context.value


class Engine(_Closing):
    """braid's batches over every link (braid.h). Outlives the rotations that it copies for."""

    def __init__(self):
        self._braid = ctypes.CDLL(libraries.find(""))
        self._braid.braid_last_error.restype = ctypes.c_char_p
        self._braid.braid_close.restype = None
        handle = _Handle(self._braid.braid_close)
        status = self._braid.braid_open(None, ctypes.byref(handle.value))
        if status != 0:
            raise Error(self._braid.braid_last_error().decode(), self._braid.braid_last_cuda_error(), status)
        self._open(handle)

    def options(self, mover):
        copy_batch = "braid_copy_batch_sparing" if mover == BY_COPY_ENGINES else "braid_copy_batch"
        functions = (copy_batch, "braid_last_error", "braid_last_cuda_error", "braid_prepare")
        return self._opened.value, *(ctypes.cast(getattr(self._braid, name), ctypes.c_void_p).value
                                     for name in functions)


class Rotation(_Closing):
    """A rotation engine. `engine`: an Engine for every link; without it, each GPU's own link, by `mover`. With an
    engine, BY_COPY_ENGINES means that only copy engines work on the cache's GPU, and kernels on the others. Of a group
    whose other ranks are in processes of their own (Worker), `remote_ranks` come after `ranks`; one that has commands
    and does not report for `report_deadline_ms` has ended. The caches have to outlive it."""

    def __init__(self, segments, gpu_slots, host_slots, ranks, engine=None, mover=BY_DRIVER, remote_ranks=0,
                 report_deadline_ms=0):
        options = _options(segments, gpu_slots, host_slots, ranks, engine, mover)
        options.remote_rank_count = take.number("remote_ranks", remote_ranks, ctypes.c_uint32)
        options.report_deadline_ms = take.number("report_deadline_ms", report_deadline_ms)
        handle = _Handle(_library().braid_kv_close, engine)
        _call("open", ctypes.byref(options), ctypes.byref(handle.value))
        self._open(handle)

    def create(self):
        """A new block's number. Refused: the GPU has no slot."""
        block, refusal = ctypes.c_uint64(), ctypes.c_int()
        try:
            _call("create", self._opened, ctypes.byref(block), ctypes.byref(refusal))
        except Error as error:
            if refusal.value:
                raise Refused(str(error), refusal.value, 0, error.status) from None
            raise
        return block.value

    def apply(self, operation, blocks):
        """In order, until one is refused."""
        done, blocks = ctypes.c_size_t(), take.numbers("blocks", blocks)
        refusal = _library().braid_kv_apply(self._opened, take.choice("operation", operation), blocks,
                                            ctypes.c_size_t(len(blocks)), ctypes.byref(done))
        if refusal == FAILED:
            raise _last_error()
        if refusal != 0:
            raise Refused(refusal_words(refusal), refusal, done.value)

    def begin_step(self):
        """The number of the step."""
        step = _library().braid_kv_begin_step(self._opened)
        if step == 0:
            raise _last_error()
        return step

    def end_step(self):
        _call("end_step", self._opened)

    def submit(self, evict=(), load=(), landing=ORDERED, writes_through=True, down_bytes=NO_LIMIT, up_bytes=NO_LIMIT):
        """Never blocks. If a copy fails, the Error says in `submitted` what the plan came to otherwise."""
        evict, load = take.numbers("evict", evict), take.numbers("load", load)
        plan = _Plan(ctypes.sizeof(_Plan), evict, len(evict), load, len(load), take.choice("landing", landing),
                     1 - take.flag("writes_through", writes_through), take.number("down_bytes", down_bytes),
                     take.number("up_bytes", up_bytes))
        answer = _answer(_Submitted)
        failure = None
        try:
            _call("submit", self._opened, ctypes.byref(plan), ctypes.byref(answer))
        except Error as error:
            failure = error
        submitted = Submitted(answer.down_bytes, answer.up_bytes, answer.evictions_left, answer.loads_left,
                              [(answer.refused[i], answer.refusals[i]) for i in range(answer.refused_count)])
        if failure is not None:
            failure.submitted = submitted
            raise failure
        return submitted

    def poll(self):
        """Never blocks."""
        report = _answer(_Report)
        _call("poll", self._opened, ctypes.byref(report))
        return Report(report.synced[:report.synced_count], report.loaded[:report.loaded_count],
                      report.failed[:report.failed_count], report.cause.decode())

    def take_commands(self, rank):
        """What that rank's worker is to apply, as bytes to send with the step; empty: nothing. Before end_step."""
        return _bytes("take_commands", self._opened, take.number("rank", rank))

    def give_report(self, rank, report):
        """Bytes of Worker.report; the next poll knows them."""
        report = take.data("report", report)
        _call("give_report", self._opened, take.number("rank", rank), report, ctypes.c_size_t(len(report)))

    def wait(self):
        _library().braid_kv_wait(self._opened)

    def find(self, block):
        found = _answer(Block)
        _call("find", self._opened, take.number("block", block), ctypes.byref(found))
        return found

    def gpu_slots(self, blocks):
        """For the block tables of a step, in one call."""
        blocks = take.numbers("blocks", blocks)
        slots = (ctypes.c_uint32 * len(blocks))()
        _call("gpu_slots", self._opened, blocks, ctypes.c_size_t(len(blocks)), slots)
        return list(slots)

    def host_block(self, rank, block):
        """The address of the host's copy, or None."""
        return _library().braid_kv_host_block(self._opened, take.number("rank", rank), take.number("block", block))

    def statistics(self):
        found = _answer(Statistics)
        _call("get_statistics", self._opened, ctypes.byref(found))
        return found


class Worker(_Closing):
    """The rank with this number of a group whose Rotation is in another process.

        try:
            applied = worker.apply(commands)    # came with the step
        except kv.Error:
            return send(worker.report())        # do not launch it: the report says why
        launch(applied.step)
        worker.end_step()
        send(worker.report())                   # with the step's outputs
    """

    def __init__(self, segments, gpu_slots, host_slots, gpu, rank, engine=None, mover=BY_DRIVER):
        options = _options(segments, gpu_slots, host_slots, [take.instance("gpu", gpu, Rank)], engine, mover)
        rank = take.number("rank", rank, ctypes.c_uint32)
        handle = _Handle(_library().braid_kv_worker_close, engine)
        _call("worker_open", ctypes.byref(options), rank, ctypes.byref(handle.value))
        self._open(handle)

    def apply(self, commands):
        """Never blocks. After an error the step must not be launched."""
        applied, commands = _answer(_Applied), take.data("commands", commands)
        _call("worker_apply", self._opened, commands, ctypes.c_size_t(len(commands)), ctypes.byref(applied))
        return Applied(applied.step, applied.failed_batches)

    def end_step(self):
        _call("worker_end_step", self._opened)

    def report(self):
        return _bytes("worker_report", self._opened)

    def wait(self):
        _library().braid_kv_worker_wait(self._opened)

    def host_block(self, host_slot):
        """The address of what lies in the slot, or None."""
        return _library().braid_kv_worker_host_block(self._opened, _slots("host_slot", host_slot))
