"""Mooncake's transfer engine, over tcp. Threads of its own write and are written to.

It says that a write has ended once its socket has taken the bytes. The bench goes on waiting.
"""

from peer import Missing, NotApplicable, Peer, keep_under_way, main

# Libraries that its wheel leaves to the system.
DEBIAN_PACKAGES = ("libibverbs1", "libnl-3-200", "libnuma1")
PROVIDERS = ("tcp;ofi_rxm", "net")
PATTERNS = ("single", "paged")


class Mooncake(Peer):
    def _open(self, provider, pattern, memory):
        if provider not in PROVIDERS:
            raise NotApplicable(f"Mooncake's wheel writes over tcp, and has nothing like {provider}")
        if pattern not in PATTERNS:
            raise NotApplicable(f"Mooncake has nothing like the pattern {pattern}")
        try:
            from mooncake.engine import TransferEngine
        except ImportError as cause:
            raise Missing(f"Mooncake is not installed ({cause})", DEBIAN_PACKAGES) from cause
        self.memory = memory
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("its engine does not start")
        if self.engine.register_memory(memory.address, memory.size_bytes) != 0:
            raise RuntimeError("it does not register the memory")

    def open_target(self, provider, pattern, memory):
        self._open(provider, pattern, memory)
        return {"engine": f"127.0.0.1:{self.engine.get_rpc_port()}", "base": memory.address}

    def open_writer(self, provider, pattern, memory, target):
        self._open(provider, pattern, memory)
        self.target = target["engine"]
        self.target_base = target["base"]

    def prepare(self, load):
        self.load = load
        self.writes = [[place * load.size_bytes for place in places] for places in load.writes()]

    def _start(self, write):
        offset = write[0]
        batch = self.engine.transfer_submit_write(
            self.target, self.memory.address + offset, self.target_base + offset,
            self.load.size_bytes)
        if batch in (0, 2**64 - 1):
            raise RuntimeError("a write cannot be started")
        return batch

    def _has_ended(self, batch):
        state = self.engine.transfer_check_status(batch)
        if state < 0:
            raise RuntimeError(f"a write has failed ({state})")
        return state == 1

    def _write_pages(self):
        # At once, since it can only ask after the first part of a batch that has been started.
        for first in range(0, len(self.writes), self.load.writes_at_once):
            writes = self.writes[first:first + self.load.writes_at_once]
            offsets = [offset for write in writes for offset in write]
            failed = self.engine.batch_transfer_sync_write(
                self.target, [self.memory.address + offset for offset in offsets],
                [self.target_base + offset for offset in offsets],
                [self.load.size_bytes] * len(offsets))
            if failed:
                raise RuntimeError("a batch has failed")

    def write(self):
        if self.load.pages_at_once > 1:
            self._write_pages()
        else:
            keep_under_way(self.writes, self.load.writes_at_once, self._start, self._has_ended)


main(Mooncake())
