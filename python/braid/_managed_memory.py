"""Memory that an engine hands out in pieces."""
import ctypes
import mmap
import threading


class ManagedMemory:
    """For allocate_managed_buffer, first fit."""

    def __init__(self, size_bytes):
        self.memory = mmap.mmap(-1, size_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.free = [(0, size_bytes)]
        self.taken = {}  # sizes by address
        self.lock = threading.Lock()

    def allocate(self, size_bytes):
        size_bytes = max(4096, (size_bytes + 4095) // 4096 * 4096)
        with self.lock:
            for i, (offset, room) in enumerate(self.free):
                if room >= size_bytes:
                    self.free[i] = (offset + size_bytes, room - size_bytes)
                    self.taken[self.address + offset] = size_bytes
                    return self.address + offset
        return 0

    def give_back(self, address, size_bytes):
        size_bytes = max(4096, (size_bytes + 4095) // 4096 * 4096)
        with self.lock:
            if self.taken.get(address) != size_bytes:
                raise ValueError(f"no buffer of {size_bytes} bytes was allocated at 0x{address:x}")
            del self.taken[address]
            self.free.append((address - self.address, size_bytes))
            self.free.sort()
            merged = []
            for offset, room in self.free:
                if merged and sum(merged[-1]) == offset:
                    merged[-1] = (merged[-1][0], merged[-1][1] + room)
                elif room:
                    merged.append((offset, room))
            self.free = merged
