#!/usr/bin/env python3
"""A KV cache of PyTorch's tensors that rotates: what an engine such as vLLM does with python/braid/kv.py.

  rotate_torch.py [--requests N] [--prompt TOKENS] [--output TOKENS] [--at-once N] [--turn STEPS] [--layers N]

A small decoder keeps a tensor for each layer, of slots of 16 tokens, and reads it by block tables. Requests that do
not fit on the GPU together take turns there. They are served with a cache in which all fit, by rotation over the GPU's
own link, and by rotation over every link. The tokens are the same, or the exit code is 1.
"""
import argparse
import collections
import dataclasses
import pathlib
import sys
import time

# In the sources, and where braid is installed: share/doc/braid/examples, and share/braid/python.
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path += [str(FOLDER / "../python"), str(FOLDER / "../../../braid/python")]
from braid import kv  # noqa: E402

BLOCK_TOKENS, HEAD, VOCABULARY = 16, 64, 512


@dataclasses.dataclass
class Request:
    tokens: list
    target: int                                 # tokens that it ends with
    blocks: list = dataclasses.field(default_factory=list)
    cached: int = 0                             # tokens whose keys and values are in blocks
    turn: int = 0                               # steps since it came

    def is_done(self):
        return len(self.tokens) >= self.target


def blocks_of(tokens):
    return -(-tokens // BLOCK_TOKENS)


class Server:
    """`model` has the tensors: base, segments, context, stream; step(list of (tokens, cached, slots)) puts a step into
    the stream, and gives each one's next token."""

    def __init__(self, model, requests, at_once, turn_steps, gpu_slots, engine=None, mover=kv.BY_DRIVER):
        self.model, self.requests = model, requests
        self.at_once, self.turn_steps = at_once, turn_steps
        self.waiting, self.running = collections.deque(requests), []
        host_slots = sum(blocks_of(request.target) for request in requests)
        self.cache = kv.Rotation(model.segments, gpu_slots, host_slots,
                                 [kv.Rank(model.context, model.base, model.stream)], engine, mover)
        self.down_bytes = self.up_bytes = self.steps = 0

    def serve(self):
        while self.waiting or self.running:
            self.cache.poll()
            self.rotate()
            self.step()
        self.cache.wait()
        self.cache.poll()
        statistics = self.cache.statistics()
        self.cache.close()
        return statistics

    def rotate(self):
        evict, load, resumed = [], [], []
        for request in [one for one in self.running if self.waiting and one.turn >= self.turn_steps]:
            self.preempt(request)
            evict += request.blocks
        while self.waiting and len(self.running) + len(resumed) < self.at_once:
            resumed.append(self.waiting.popleft())
            load += resumed[-1].blocks
        self.move(evict, load)
        for request in resumed:
            self.cache.apply(kv.BEGIN_USE, request.blocks)
            if request.cached % BLOCK_TOKENS:
                self.reopen(request.blocks[-1:])
            request.turn = 0
            self.running.append(request)

    def reopen(self, blocks):
        """Of a request that comes back at once, the copy down of its last block may still be under way."""
        try:
            self.cache.apply(kv.REOPEN, blocks)
        except kv.Refused as refused:
            if refused.refusal != kv.COPYING:
                raise
            self.cache.wait()
            self.cache.poll()
            self.cache.apply(kv.REOPEN, blocks)

    def preempt(self, request):
        self.cache.apply(kv.END_USE, request.blocks)
        if request.cached % BLOCK_TOKENS:
            self.cache.apply(kv.SEAL, request.blocks[-1:])
        self.running.remove(request)
        self.waiting.append(request)

    def move(self, evict, load):
        """The step that comes next is ordered behind the loads. Slots may have to land first."""
        while True:
            submitted = self.cache.submit(evict, load)
            if submitted.refused:
                block, refusal = submitted.refused[0]
                raise kv.Error(f"block {block}: {kv.refusal_words(refusal)}")
            self.down_bytes += submitted.down_bytes
            self.up_bytes += submitted.up_bytes
            if not submitted.loads_left:
                return
            self.cache.wait()
            self.cache.poll()

    def step(self):
        self.cache.begin_step()
        batch = []
        for request in self.running:
            while len(request.blocks) < blocks_of(len(request.tokens)):
                request.blocks.append(self.cache.create())
            batch.append((request.tokens, request.cached, self.cache.gpu_slots(request.blocks)))
        following = self.model.step(batch)
        for request in self.running:
            self.cache.apply(kv.SEAL, request.blocks[request.cached // BLOCK_TOKENS:len(request.tokens) // BLOCK_TOKENS])
        self.cache.end_step()
        for request, token in zip(self.running, following):
            request.cached = len(request.tokens)
            request.tokens.append(token)
            request.turn += 1
        self.steps += 1
        for request in [one for one in self.running if one.is_done()]:
            self.cache.apply(kv.END_USE, request.blocks)
            self.cache.apply(kv.RELEASE, request.blocks)
            self.running.remove(request)


class TorchModel:
    """One head, random weights of a fixed seed, greedy tokens."""

    def __init__(self, layers, slots):
        import torch
        self.torch = torch
        torch.cuda.init()
        self.side = torch.cuda.Stream()
        self.cache = [torch.zeros(slots, 2, BLOCK_TOKENS, HEAD, device="cuda") for _ in range(layers)]
        self.stream, self.context = self.side.cuda_stream, kv.current_context()
        self.base, self.segments = kv.segments_of([(layer.data_ptr(), layer.stride(0) * layer.element_size())
                                                   for layer in self.cache])
        random = torch.Generator().manual_seed(7)
        draw = lambda *shape: (torch.randn(*shape, generator=random) / HEAD ** 0.5).cuda()  # noqa: E731
        self.words, self.weights = draw(VOCABULARY, HEAD), [draw(3, HEAD, HEAD) for _ in range(layers)]
        torch.cuda.synchronize()  # what comes next is in another stream

    def step(self, batch):
        with self.torch.cuda.stream(self.side):
            following = [self.follow(tokens, cached, slots) for tokens, cached, slots in batch]
            return [int(token) for token in following]

    def follow(self, tokens, cached, slots):
        torch = self.torch
        table = torch.tensor(slots, device="cuda")
        for position in range(cached, len(tokens)):
            x = self.words[tokens[position]]
            for cache, weights in zip(self.cache, self.weights):
                query, key, value = weights @ x
                cache[slots[position // BLOCK_TOKENS], :, position % BLOCK_TOKENS] = torch.stack((key, value))
                known = cache[table].transpose(0, 1).reshape(2, -1, HEAD)[:, :position + 1]
                x = x + torch.softmax(known[0] @ query, dim=0) @ known[1]
                x = x / x.norm() * HEAD ** 0.5
        return torch.argmax(self.words @ x)


def new_requests(count, prompt, output):
    return [Request([(number * 7919 + i * 104729) % VOCABULARY for i in range(prompt)], prompt + output)
            for number in range(count)]


def slots_for(at_once, tokens):
    """With room for what is still on its way to the host when others come."""
    return at_once * (blocks_of(tokens) + 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (("requests", 12), ("prompt", 100), ("output", 24), ("at-once", 4), ("turn", 4), ("layers", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    tokens, first = options.prompt + options.output, None
    with kv.Engine() as engine:
        for name, at_once, copies in (("all fit", options.requests, None), ("rotation, one link", options.at_once, None),
                                      ("rotation, every link", options.at_once, engine)):
            slots = slots_for(at_once, tokens)
            requests = new_requests(options.requests, options.prompt, options.output)
            server = Server(TorchModel(options.layers, slots), requests, at_once, options.turn, slots, copies)
            begin = time.monotonic()
            statistics = server.serve()
            seconds, served = time.monotonic() - begin, [request.tokens for request in requests]
            first = first or served
            print(f"{name:22} {seconds:7.3f} s, {server.steps:5} steps, {server.down_bytes / 1e6:8.1f} MB down, "
                  f"{server.up_bytes / 1e6:8.1f} MB up, {statistics.accelerated_bytes / 1e6:8.1f} MB over several links: "
                  f"{'equal' if served == first else 'DIFFERENT'}")
            if served != first:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
