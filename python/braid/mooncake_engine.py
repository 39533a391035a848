"""The interface of `mooncake.engine.TransferEngine` (the wheel mooncake-transfer-engine) on braid, for
programs that use it unchanged: python/door on PYTHONPATH makes `from mooncake.engine import ...` this
module. Both ends are braid's. docs/transfer.md says what differs.

Protocols, device names and metadata servers are accepted, logged, and not obeyed: braid finds the ways by itself,
and peers are asked at the host and port of their names. BRAID_FABRIC_NICS names the interfaces that are rails, and
BRAID_TRANSFER_PROVIDERS their providers ("shm,tcp;ofi_rxm"). Source of the interface:
kvcache-ai/Mooncake, mooncake-integration/transfer_engine/transfer_engine_py.cpp.
"""
import ctypes
import enum
import functools
import logging
import os
import re
import socket

from braid import _arguments as take, transfer
from braid._managed_memory import ManagedMemory
from braid._segments import LOST, Segments

log = logging.getLogger("braid.mooncake")

# Of the first block of managed memory; pages that nobody touches cost nothing.
MANAGED_BYTES = 256 << 20
EVERYTHING = transfer.MAY_READ | transfer.MAY_WRITE
# What a call logs. An argument of a wrong type raises TypeError, as it does in the wheel.
REFUSED = (transfer.Error, ValueError, OSError)
SUPPORT_EFA = SUPPORT_HIP = SUPPORT_MNNVL = SUPPORT_INTRA_NVLINK = SUPPORT_CUDA = SUPPORT_MUSA = False


class TransferOpcode(enum.IntEnum):
    Read = transfer.READ
    Write = transfer.WRITE


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """Both are str or bytes, as in the wheel. Whoever receives them has str."""

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg


class InnerTransferEngine:
    """Keeps an engine open. It has no calls, as in the wheel, whose store takes nothing but an engine of its own."""

    def __init__(self, engine):
        self._engine = engine


def _answers(answer):
    """Of a call that is refused, which is logged."""
    def of_call(call):
        @functools.wraps(call)
        def answered(*arguments, **named):
            try:
                return call(*arguments, **named)
            except REFUSED as error:
                log.error("%s: %s", call.__name__, error)
                return answer
        return answered
    return of_call


def _listed(text):
    return [each.strip() for each in text.split(",") if each.strip()]


def _host_and_port(name):
    """Of "host", "host:80", "10.0.0.7:80", "::1", "[::1]" and "[::1]:80". The port is "0" if there is none."""
    if name.count(":") > 1 and not name.startswith("["):
        return name, "0"
    found = re.fullmatch(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]+))?", name)
    if found is None:
        raise ValueError(f"local_hostname is {name!r}. Write host, host:port or [IPv6 address]:port")
    return found[1] or found[2], found[3] or "0"


def _address_of(host):
    """Of IPv4 if it has such: peers may know the host by that alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"local_hostname is {host!r}: {error}. Name this host, or an address of it") from error
    return min(found, key=lambda each: each[0] != socket.AF_INET)[4][0]


def _without_password(url):
    return re.sub(r"^(\w+://)?.*@", r"\1", str(url), flags=re.DOTALL)


def _opened(local_hostname, metadata_server):
    take.text("local_hostname", local_hostname)
    host, port = _host_and_port(local_hostname)
    address, port = _address_of(host), "0" if metadata_server == "P2PHANDSHAKE" else port
    return transfer.Transfer(listen=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
                             addresses=() if os.environ.get("BRAID_FABRIC_NICS") else (address,),
                             providers=_listed(os.environ.get("BRAID_TRANSFER_PROVIDERS", "")), gpu_memory=_has_cuda())


def _limit_s(size_bytes):
    """Of a batch of so many bytes, as in the wheel: one that moves 1 GB in a second has its time. Text that begins with
    no number is 0."""
    number = re.match(r"\s*[-+]?[0-9]+", os.environ.get("MC_TRANSFER_TIMEOUT", "30"))
    return max(5, int(number[0]) if number else 0) + size_bytes / 1e9


def _bytes(argument, text):
    """Of str or bytes. What is no UTF-8 is in str as `surrogateescape`."""
    return text.encode(errors="surrogateescape") if isinstance(text, str) else take.data(argument, text)


def _has_cuda():
    """Whether the process has loaded the driver: whoever has memory of a GPU has."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return True
    except OSError:
        return False


class _NotOpen:
    """The engine before `initialize`: each call of it fails as calls of an engine do."""

    def __getattr__(self, name):
        raise transfer.Error("the engine is not initialized. Call initialize, which returns 0, first")


class TransferEngine:
    """Answers are the wheel's: 0 or a number above is success, -1 is not, and the log says why."""

    TransferOpcode = TransferOpcode

    def __init__(self):
        self._engine = self._managed = _NotOpen()
        self._segments = Segments(self._engine)
        self._buffers = {}  # by address
        self._submitted = {}  # (name, segment, bytes) of each batch

    # ---- Opening

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        return self.initialize_ext(local_hostname, metadata_server, protocol, device_name, "")

    @_answers(-1)
    def initialize_ext(self, local_hostname, metadata_server, protocol, device_name, metadata_type):
        """Called again, it opens another engine, as in the wheel. What belongs to the first is dropped with it: its
        numbers of segments and batches are others' here. No other thread may call this object meanwhile."""
        log.info("protocol %r, devices %r and metadata server %r are not obeyed: braid finds the ways",
                 protocol, device_name, _without_password(metadata_server))
        engine, buffers = _opened(local_hostname, metadata_server), {}
        self._engine, self._buffers = engine, buffers
        self._managed = ManagedMemory(MANAGED_BYTES, engine, EVERYTHING, buffers)
        self._segments, self._submitted = Segments(engine), {}
        return 0

    @_answers(-1)
    def get_rpc_port(self):
        """Others reach this engine at its host and this port."""
        return int(self._engine.name().split("/")[2].rpartition(":")[2])

    # ---- Memory

    @_answers(-1)
    def register_memory(self, buffer_addr, capacity, location="*"):
        address, size_bytes = take.whole("buffer_addr", buffer_addr), take.whole("capacity", capacity)
        self._buffers[address] = self._engine.register_memory(address, size_bytes, EVERYTHING)
        return 0

    @_answers(-1)
    def unregister_memory(self, buffer_addr):
        """It can be asked again where it is refused: peers may still reach the memory."""
        address = take.whole("buffer_addr", buffer_addr)
        if address not in self._buffers:
            raise ValueError(f"no memory is registered at 0x{address:x}")
        self._engine.unregister_memory(self._buffers[address])
        self._buffers.pop(address, None)
        return 0

    @_answers(-1)
    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        addresses = take.wholes("buffer_addresses", buffer_addresses)
        sizes = take.wholes("capacities", capacities)
        if len(addresses) != len(sizes):
            raise ValueError(f"{len(addresses)} addresses and {len(sizes)} capacities")
        return min([self.register_memory(*each) for each in zip(addresses, sizes)] or [0])

    def batch_unregister_memory(self, buffer_addresses):
        addresses = take.listed("buffer_addresses", buffer_addresses)
        return min([self.unregister_memory(each) for each in addresses] or [0])

    @_answers(0)
    def allocate_managed_buffer(self, length):
        """Peers that have opened this engine before reach it like any memory that is registered later."""
        return self._managed.allocate(take.whole("length", length))

    @_answers(-1)
    def free_managed_buffer(self, buffer, length):
        self._managed.give_back(take.whole("buffer", buffer), take.whole("length", length))
        return 0

    @_answers(0)
    def get_first_buffer_address(self, segment_name):
        """0: nothing is registered there. Peers do not say what was registered first: of several it is managed memory,
        or else what has the lowest address."""
        ranges = self._segments.ranges_now(segment_name)
        managed = [address for address, size, _ in ranges if size == MANAGED_BYTES]
        return (managed or [address for address, _, _ in ranges] or [0])[0]

    @_answers(-1)
    def write_bytes_to_buffer(self, dest_address, src_ptr, length):
        source = _bytes("src_ptr", src_ptr)
        address, size_bytes = take.whole("dest_address", dest_address), take.whole("length", length)
        if size_bytes > len(source):
            raise ValueError(f"length is {size_bytes}, and src_ptr has {len(source)} bytes")
        ctypes.memmove(address, source, size_bytes)
        return 0

    def read_bytes_from_buffer(self, source_address, length):
        return ctypes.string_at(take.whole("source_address", source_address), take.whole("length", length))

    # ---- Moving

    def _requests(self, target, buffers, peers, lengths, opcode, notify):
        """As `submit` takes them."""
        buffers, lengths = take.wholes("buffers", buffers), take.wholes("lengths", lengths)
        peers, opcode = take.wholes("peer_buffer_addresses", peers), take.whole("opcode", opcode, ctypes.c_int)
        if not len(buffers) == len(peers) == len(lengths):
            raise ValueError(f"{len(buffers)} buffers, {len(peers)} addresses, {len(lengths)} lengths")
        told = None
        if notify is not None:
            take.instance("notify", notify, TransferNotify)
            name = _bytes("notify.name", notify.name).decode(errors="surrogateescape")
            told = name, _bytes("notify.msg", notify.msg)
        return (self._segments.number(target), opcode, buffers, peers, lengths), told

    def _run(self, target, buffers, peers, lengths, opcode, notify):
        """The causes of its failures."""
        requests, told = self._requests(target, buffers, peers, lengths, opcode, notify)
        failed = set(self._engine.submit_and_wait(*requests, _limit_s(sum(requests[-1])), told)) - {transfer.DONE}
        if failed & LOST:
            self._segments.drop(target, requests[0])
        return failed

    def _end(self, batch):
        """The causes of its failures; None: it was not done in time. The caller's memory is its own
        again, so that a batch that was cancelled is waited for too. A peer that is lost is opened anew by the
        next transfer: it may have been restarted under its old name."""
        *opened, size_bytes = self._submitted.get(batch, (None, None, 0))
        is_in_time = self._engine.wait(batch, _limit_s(size_bytes))
        if not is_in_time:
            self._engine.cancel(batch)
            while not self._engine.wait(batch, _limit_s(0)):
                log.warning("a batch that was cancelled has not let go of its memory yet")
        failed = {cause for cause in self._engine.outcomes(batch) if cause != transfer.DONE}
        self._engine.forget(batch)
        if self._submitted.pop(batch, None) is not None and failed & LOST:
            self._segments.drop(*opened)
        return failed if is_in_time or not failed else None

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode,
                            notify=None, transport_hint=""):
        try:
            for _ in range(2):
                failed = self._run(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify)
                if not failed:
                    return 0
                if not failed & LOST:
                    break
            causes = map(transfer.cause_name, failed - {transfer.CANCELLED})
            late = ["not within the time limit"] if transfer.CANCELLED in failed else []
            log.error("transfer with %s: %s", target_hostname, ", ".join([*late, *causes]))
        except REFUSED as error:
            log.error("transfer with %s: %s", target_hostname, error)
        return -1

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None,
                      transport_hint=""):
        return self.batch_transfer_sync(target_hostname, [buffer], [peer_buffer_address], [length], opcode, notify)

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, Write)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, Read)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    @_answers(0)
    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint=""):
        """A number for get_batch_transfer_status; 0: it was not submitted."""
        requests, _ = self._requests(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, None)
        batch = self._engine.submit(*requests)
        self._submitted[batch] = target_hostname, requests[0], sum(requests[-1])
        return batch

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    @_answers(-1)
    def get_batch_transfer_status(self, batch_ids):
        """Waits until all have ended, also those beside a number that is none: 0 if all are done."""
        are_done = [self._is_done(batch) for batch in take.wholes("batch_ids", batch_ids)]
        return 0 if all(are_done) else -1

    def _is_done(self, batch):
        try:
            return self._end(batch) == set()
        except REFUSED as error:
            log.error("get_batch_transfer_status: batch %d: %s", batch, error)
            return False

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self.batch_transfer_async_write(target_hostname, [buffer], [peer_buffer_address], [length])

    @_answers(-1)
    def transfer_check_status(self, batch_id):
        """1: done; 0: under way; -1: failed. It is told once that it has ended."""
        batch_id = take.whole("batch_id", batch_id)
        if not self._engine.wait(batch_id, 0):
            return 0
        return 1 if self._end(batch_id) == set() else -1

    # ---- The rest

    def get_notifies(self):
        taken = []
        try:
            while (next_one := self._engine.next_notification()) is not None:
                taken.append(TransferNotify(next_one[0], next_one[1].decode(errors="surrogateescape")))
        except REFUSED as error:
            log.error("get_notifies: %s", error)
        return taken

    def send_probe(self, peer_server_name):
        try:
            self._segments.ranges_now(peer_server_name)
            return 0
        except REFUSED as error:
            log.info("send_probe: %s", error)
            return -1

    def warmup_efa_segment(self, segment_name):
        return self.send_probe(segment_name)

    def get_local_topology(self, device_name=""):
        """The RDMA devices near each memory, and the others; of those that `device_name` names, if it does. It
        needs no `initialize`."""
        take.text_or_none("device_name", device_name)
        return transfer.topology(_listed(device_name or ""))

    def get_engine(self):
        """None before `initialize`."""
        return None if isinstance(self._engine, _NotOpen) else InnerTransferEngine(self._engine)

    @_answers(0)
    def get_engine_ptr(self):
        """Null before `initialize`."""
        return self._engine.pointer()
