"""Memory that an engine hands out in pieces."""
import ctypes
import mmap
import threading

PAGE_BYTES = 4096


def _in_pages(size_bytes):
    return max(PAGE_BYTES, (size_bytes + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES)


class Block:
    """First fit. Two blocks that lie side by side stay apart: a piece may not leave what is registered as one."""

    def __init__(self, size_bytes):
        try:
            self.memory = mmap.mmap(-1, size_bytes)
        except (OSError, OverflowError) as error:
            raise ValueError(f"no memory of {size_bytes} bytes can be mapped ({error}). Ask for less") from error
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._free = [(self.address, size_bytes)]
        self._taken = {}  # sizes by address

    def allocate(self, size_bytes):
        """0: there is no room."""
        for i, (address, room) in enumerate(self._free):
            if room >= size_bytes:
                self._free[i] = (address + size_bytes, room - size_bytes)
                self._taken[address] = size_bytes
                return address
        return 0

    def give_back(self, address, size_bytes):
        """False: it was not allocated here."""
        if self._taken.get(address) != size_bytes:
            return False
        del self._taken[address]
        self._free.append((address, size_bytes))
        self._free.sort()
        merged = []
        for start, room in self._free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            elif room:
                merged.append((start, room))
        self._free = merged
        return True


class ManagedMemory:
    """For allocate_managed_buffer: blocks that are registered in an engine once they are needed, and live as long as it
    does."""

    def __init__(self, first_bytes, engine, rights, buffers):
        """`buffers`: the engine's, by address. It gets those of the blocks."""
        self._first_bytes, self._engine, self._rights, self._buffers = first_bytes, engine, rights, buffers
        self._lock = threading.Lock()
        self._blocks = []

    def _add(self, size_bytes):
        block = Block(size_bytes)
        self._buffers[block.address] = self._engine.register_memory(block.address, size_bytes, self._rights)
        self._engine.keep(block.memory)  # the memory alone: what refers to the engine would keep it open
        self._blocks.append(block)
        return block

    def allocate(self, size_bytes):
        size_bytes = _in_pages(size_bytes)
        with self._lock:
            for block in self._blocks:
                if (address := block.allocate(size_bytes)) != 0:
                    return address
            if not self._blocks and size_bytes <= self._first_bytes:
                return self._add(self._first_bytes).allocate(size_bytes)
            # One page more than the first one, by whose size peers find it (get_first_buffer_address).
            return self._add(max(size_bytes, self._first_bytes) + PAGE_BYTES).allocate(size_bytes)

    def give_back(self, address, size_bytes):
        size_bytes = _in_pages(size_bytes)
        with self._lock:
            if not any(block.give_back(address, size_bytes) for block in self._blocks):
                raise ValueError(f"no buffer of {size_bytes} bytes was allocated at 0x{address:x}")
