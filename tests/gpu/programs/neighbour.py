"""A process that keeps a GPU busy for a while when it is told to, and says how its steps fared.

  neighbour.py GPU
  a line of JSON {"mode": "matmul"|"decoder"|"half", "seconds": 2} is answered with one: steps a second, and the
  median and 99th percentile of a step. Modes: large bf16 matmuls; a graph of a decoder's short kernels,
  replayed without pause; the same with a pause after each step that is as long as the step.
"""
import json
import sys
import time

import torch

LAYERS, HIDDEN, BATCH = 24, 4096, 32
MATMUL, MATMULS_A_STEP = 8192, 4
IN_FLIGHT = 3
WARM_UP_STEPS = 5


class Matmuls:
    def __init__(self):
        self.left, self.right = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16)
                                 for _ in range(2))
        self.out = torch.empty_like(self.left)

    def step(self):
        for _ in range(MATMULS_A_STEP):
            torch.matmul(self.left, self.right, out=self.out)


class Decoder:
    """Layers of four thin matmuls with what stands between them, some hundred kernels a step."""

    def __init__(self):
        self.weights = [[torch.randn(HIDDEN, HIDDEN, device="cuda", dtype=torch.bfloat16) * 0.01
                         for _ in range(4)] for _ in range(LAYERS)]
        self.state = torch.randn(BATCH, HIDDEN, device="cuda", dtype=torch.bfloat16)
        warm_up = torch.cuda.Stream()
        with torch.cuda.stream(warm_up):
            self.layers()
        warm_up.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.layers()

    def layers(self):
        state = self.state
        for query, key, up, down in self.weights:
            normal = torch.nn.functional.rms_norm(state, (HIDDEN,))
            scores = torch.softmax(normal @ query, dim=-1)
            state = state + (scores * normal) @ key
            state = state + torch.nn.functional.silu(
                torch.nn.functional.rms_norm(state, (HIDDEN,)) @ up) @ down
        return state

    def step(self):
        self.graph.replay()


def one_step(work):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work.step()
    end.record()
    return begin, end


def run(work, seconds, pauses):
    """(steps a second, milliseconds of each step)."""
    steps, times_ms = [], []
    for _ in range(WARM_UP_STEPS):
        work.step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        steps.append(one_step(work))
        if pauses or len(steps) > IN_FLIGHT:
            begin, end = steps.pop(0)
            end.synchronize()
            times_ms.append(begin.elapsed_time(end))
            if pauses:
                time.sleep(times_ms[-1] / 1e3)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    times_ms += [begin.elapsed_time(end) for begin, end in steps]
    return len(times_ms) / elapsed, sorted(times_ms)


def main():
    torch.cuda.set_device(int(sys.argv[1]))
    torch.manual_seed(1)
    works = {"matmul": Matmuls(), "decoder": Decoder()}
    works["half"] = works["decoder"]
    torch.cuda.synchronize()
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        rate, times_ms = run(works[request["mode"]], request["seconds"], request["mode"] == "half")
        print(json.dumps({"steps_per_s": rate, "median_ms": times_ms[len(times_ms) // 2],
                          "p99_ms": times_ms[min(int(len(times_ms) * 0.99), len(times_ms) - 1)],
                          "steps": len(times_ms)}), flush=True)


if __name__ == "__main__":
    main()
