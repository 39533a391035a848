"""NIXL with its UCX backend, over tcp or over shared memory.

A transfer has ended when UCX has flushed it. Nobody is notified, which saves NIXL a message that
braid sends: its writes carry an immediate.
"""

import os

from peer import Missing, NotApplicable, Peer, keep_under_way, main

# What UCX may use. It connects over tcp before it uses shared memory.
TRANSPORTS = {
    "tcp;ofi_rxm": {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
    "net": {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
    "shm": {"UCX_TLS": "sm,tcp", "UCX_NET_DEVICES": "lo,memory"},
    "local": {"UCX_TLS": "sm,tcp", "UCX_NET_DEVICES": "lo,memory"},
}
NVIDIA_DRIVER = "/dev/nvidiactl"  # where it is, NIXL refuses a UCX without a transport for GPUs
PATTERNS = ("single", "paged")


class Nixl(Peer):
    def _open(self, name, provider, pattern, memory):
        if provider not in TRANSPORTS:
            raise NotApplicable(f"NIXL's UCX has nothing like the provider {provider}")
        if pattern not in PATTERNS:
            raise NotApplicable(f"NIXL has nothing like the pattern {pattern}")
        for variable, value in TRANSPORTS[provider].items():
            if variable == "UCX_TLS" and os.path.exists(NVIDIA_DRIVER):
                value += ",cuda_copy"
            os.environ.setdefault(variable, value)
        os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
        try:
            import numpy
            from nixl_cu12 import nixl_agent, nixl_agent_config
        except ImportError as cause:
            raise Missing(f"NIXL is not installed ({cause})") from cause
        self.numpy = numpy
        self.memory = memory
        # Without its thread: it would share two processors with the one that polls.
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False))
        self.agent.register_memory([(memory.address, memory.size_bytes, 0, "")], "DRAM")

    def open_target(self, provider, pattern, memory):
        self._open("target", provider, pattern, memory)
        return {"metadata": self.agent.get_agent_metadata().hex(), "base": memory.address}

    def open_writer(self, provider, pattern, memory, target):
        self._open("writer", provider, pattern, memory)
        self.target = self.agent.add_remote_agent(bytes.fromhex(target["metadata"]))
        if isinstance(self.target, bytes):
            self.target = self.target.decode()
        self.target_base = target["base"]
        self.lists, self.requests = [], []

    def progress(self):
        self.agent.get_new_notifs()
        return True

    def _places(self, agent, base, load):
        places = self.numpy.zeros((load.count, 3), dtype=self.numpy.uint64)
        places[:, 0] = base + load.size_bytes * self.numpy.arange(load.count)
        places[:, 1] = load.size_bytes
        return self.agent.prep_xfer_dlist(agent, places, "DRAM")

    def prepare(self, load):
        for request in self.requests:
            request.release()
        for places in self.lists:
            places.release()
        self.load = load
        here = self._places("NIXL_INIT_AGENT", self.memory.address, load)
        there = self._places(self.target, self.target_base, load)
        self.lists = [here, there]
        self.requests = []
        for places in load.writes():
            indices = self.numpy.array(places, dtype=self.numpy.int32)
            request = self.agent.make_prepped_xfer("WRITE", here, indices, there, indices)
            self.requests.append(request)

    @staticmethod
    def _is_done(state):
        if state == "ERR":
            raise RuntimeError("a transfer has failed")
        return state == "DONE"

    def write(self):
        def start(request):
            return None if self._is_done(self.agent.transfer(request)) else request

        def has_ended(request):
            return self._is_done(self.agent.check_xfer_state(request))

        keep_under_way(self.requests, self.load.writes_at_once, start, has_ended)


main(Nixl())
