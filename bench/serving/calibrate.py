#!/usr/bin/env python3
"""Measures the constants of the step-time model of `braid simulate serving` on one GPU, by PyTorch
alone: matrix products of three models at 1 to 8192 tokens, attention of decodes that read 4k to
256k tokens, attention of prefill chunks, the small kernels between them, and sampling.

  calibrate.py --out calibration.json [--seconds 400]       under eight minutes on an H200
  calibrate.py --fit calibration.json                       fits a recorded grid again; no GPU needed
  calibrate.py --smoke --out /tmp/smoke.json                 seconds, on a CPU: shows that it works

What is written (fit.py has the formula):
  {"format": "braid-step-time-1", "gpu": .., "torch": .., "date": .., "command": ..,
   "constants": {"matmul_tflops": .., "weight_gbps": .., ..},        fitted to the whole grid
   "held_out_median_relative_error": {"gemm": .., .., "all": ..},    fitted to half of it
   "grid": [{"section": "gemm", "model": .., "tokens": .., "flops": .., "bytes": .., "us": ..}, ..]}
`braid simulate serving --calibration FILE` reads `format`, `gpu`, `date`, `constants` and the errors.

Kernels are recorded in a CUDA graph, as engines run decodes, and timed by events around the graph;
the median of several replays counts. Weights and KV caches are read from copies that together
exceed the L2 cache several times, as the layers of a model do.
"""
import argparse
import datetime
import json
import sys
import time

from fit import SECTIONS, fit, hold_out
from shapes import BYTES, MODELS, TINY

FORMAT = "braid-step-time-1"
TOKENS = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
          8192]
# (sequences, tokens of each)
DECODES = [(sequences, total // sequences)
           for total in (4096, 8192, 16384, 32768, 65536, 98304, 131072, 196608, 262144)
           for sequences in (1, 8, 32, 128) if total // sequences >= 128]
# (tokens of the chunk, tokens before it)
CHUNKS = [(chunk, before) for chunk in (256, 512, 1024, 2048, 4096)
          for before in (0, 1024, 4096, 16384)]
SEQUENCES = [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512]
# (sequences, tokens of each): whole layers, which no fit sees
LAYERS = [(1, 2048), (8, 2048), (32, 1024), (64, 2048), (128, 512), (128, 1024), (256, 512)]
OUT_OF_CACHE_BYTES = 256 << 20  # five times the L2 cache of an H200
REPLAYS = 9
REPLAY_US = 4000  # a graph holds about this much work


class Timer:
    """Times a body by CUDA graphs and events, or on a CPU by the clock."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def median_us(self, body, copies):
        """Of one call of body(i), i in 0..copies-1 in turn."""
        if self.device == "cpu":
            return self._by_clock(body, copies)
        torch = self.torch
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for index in range(copies + 2):  # libraries choose algorithms and allocate here
                body(index % copies)
        side.synchronize()
        begun = time.perf_counter()
        with torch.cuda.stream(side):
            for index in range(copies):
                body(index)
        side.synchronize()
        once_us = max((time.perf_counter() - begun) / copies * 1e6, 1)
        rounds = max(1, round(REPLAY_US / once_us / copies))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index in range(rounds * copies):
                body(index % copies)
        graph.replay()
        samples = []
        for _ in range(REPLAYS):
            first = torch.cuda.Event(enable_timing=True)
            last = torch.cuda.Event(enable_timing=True)
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            samples.append(first.elapsed_time(last) * 1e3 / (rounds * copies))
        del graph
        return sorted(samples)[len(samples) // 2]

    def _by_clock(self, body, copies):
        samples = []
        for index in range(3):
            begun = time.perf_counter()
            body(index % copies)
            samples.append((time.perf_counter() - begun) * 1e6)
        return sorted(samples)[1]


class Bench:
    def __init__(self, torch, device, models, deadline, small):
        self.torch, self.device, self.models = torch, device, models
        self.deadline, self.small = deadline, small
        self.timer = Timer(torch, device)
        self.grid, self.notes = [], []

    def tensor(self, *shape):
        return self.torch.randn(*shape, device=self.device, dtype=self.torch.bfloat16) * 0.02

    def copies_of(self, size_bytes):
        return 1 if self.small else max(1, -(-OUT_OF_CACHE_BYTES // max(size_bytes, 1)))

    def record(self, body, copies=1, **point):
        if time.monotonic() > self.deadline:
            self.notes.append(f"left out, out of time: {point}")
            return
        point["us"] = self.timer.median_us(body, copies)
        self.grid.append(point)

    # ---- One part of one layer: (body, copies, what its time depends on)

    def gemm_part(self, model, group, tokens):
        """`attention`: the projections before and behind attention. `mlp`: gate, up and down of one
        expert or of those that the tokens touch. `head`: logits."""
        linear = self.torch.nn.functional.linear
        if group == "mlp" and model.experts > 1:
            return self.expert_part(model, tokens)
        heads = model.heads * model.head_dim
        shapes = {"attention": [(model.qkv, model.hidden), (model.hidden, heads)],
                  "mlp": [(2 * model.intermediate, model.hidden),
                          (model.hidden, model.intermediate)],
                  "head": [(model.vocabulary, model.hidden)]}[group]
        weights = sum(rows * columns for rows, columns in shapes)
        copies = self.copies_of(weights * BYTES)
        matrices = [[self.tensor(*shape) for shape in shapes] for _ in range(copies)]
        inputs = [self.tensor(tokens, columns) for _, columns in shapes]

        def body(index):
            for value, matrix in zip(inputs, matrices[index]):
                linear(value, matrix)
        return body, copies, {"flops": 2 * weights * tokens, "bytes": weights * BYTES}

    def expert_part(self, model, tokens):
        touched = max(1, round(model.experts_touched(tokens)))
        each = -(-tokens * model.experts_per_token // touched)
        up = self.tensor(touched, 2 * model.intermediate, model.hidden).transpose(1, 2)
        down = self.tensor(touched, model.hidden, model.intermediate).transpose(1, 2)
        before, between = (self.tensor(touched, each, width)
                           for width in (model.hidden, model.intermediate))

        def body(_):
            self.torch.bmm(before, up)
            self.torch.bmm(between, down)
        weights = 3 * model.hidden * model.intermediate * touched
        return body, 1, {"flops": 2 * weights * each, "bytes": weights * BYTES}

    def decode_part(self, model, sequences, context):
        """The heads that share a KV head are the rows of its query: each KV head is read once."""
        size = sequences * context * model.kv_bytes
        copies = self.copies_of(size)
        shape = (sequences, model.kv_heads, context, model.head_dim)
        caches = [(self.tensor(*shape), self.tensor(*shape)) for _ in range(copies)]
        query = self.tensor(sequences, model.kv_heads, model.heads // model.kv_heads,
                            model.head_dim)

        def body(index):
            self.attend(query, *caches[index])
        return body, copies, {"bytes": size}

    def chunk_part(self, model, chunk, before):
        context = chunk + before
        query = self.tensor(1, model.heads, chunk, model.head_dim)
        key, value = (self.tensor(1, model.heads, context, model.head_dim) for _ in range(2))
        # With tokens before the chunk PyTorch's causal mask would be the wrong one: the whole
        # rectangle is computed, and counted.
        causal = before == 0
        pairs = chunk * (chunk + 1) // 2 if causal else chunk * context

        def body(_):
            self.attend(query, key, value, is_causal=causal)
        return body, 1, {"flops": 4 * pairs * model.heads * model.head_dim}

    def glue_part(self, model, tokens):
        """What lies between: two residual additions and norms, the rotary embedding as one pass
        over queries and keys, the cache's new entries, the activation."""
        functional = self.torch.nn.functional
        width = model.intermediate * model.experts_per_token
        hidden, residual, weight = (self.tensor(*shape) for shape in (
            (tokens, model.hidden), (tokens, model.hidden), (model.hidden,)))
        qkv, angles = self.tensor(tokens, model.qkv), self.tensor(tokens, model.qkv)
        cache = self.tensor(tokens, 2 * model.kv_heads * model.head_dim)
        gate, up = self.tensor(tokens, width), self.tensor(tokens, width)
        norm = getattr(functional, "rms_norm", None) or functional.layer_norm

        def body(_):
            for _ in range(2):
                norm(hidden.add(residual), (model.hidden,), weight)
            cache.copy_(qkv.mul(angles)[:, -cache.shape[1]:])
            functional.silu(gate).mul(up)
        return body, 1, {"bytes": self.glue_bytes(model, tokens)}

    @staticmethod
    def glue_bytes(model, tokens):
        width = model.intermediate * model.experts_per_token
        cache = 2 * model.kv_heads * model.head_dim
        return tokens * BYTES * (2 * 5 * model.hidden + 3 * model.qkv + 2 * cache + 5 * width)

    def attend(self, query, key, value, is_causal=False):
        return self.torch.nn.functional.scaled_dot_product_attention(query, key, value,
                                                                     is_causal=is_causal)

    # ---- The grid

    def gemms(self, tokens_of_grid):
        for model in self.models:
            for group in ("attention", "mlp", "head"):
                for tokens in tokens_of_grid:
                    if group == "head" and tokens > max(SEQUENCES):
                        continue
                    body, copies, facts = self.gemm_part(model, group, tokens)
                    self.record(body, copies, section="gemm", model=model.name, group=group,
                                tokens=tokens, **facts)

    def attention(self, decodes, chunks):
        seen = set()  # Mixtral's attention has the shapes of Llama's
        for model in self.models:
            shape = (model.heads, model.kv_heads, model.head_dim)
            if shape in seen and not self.small:
                continue
            seen.add(shape)
            for sequences, context in decodes:
                body, copies, facts = self.decode_part(model, sequences, context)
                self.best_backend(body, copies, section="attention", model=model.name,
                                  sequences=sequences, context=context, **facts)
            for chunk, before in chunks:
                body, copies, facts = self.chunk_part(model, chunk, before)
                self.best_backend(body, copies, section="prefill", model=model.name, chunk=chunk,
                                  before=before, **facts)

    def best_backend(self, body, copies, **point):
        """Engines choose the fastest kernel for each shape; PyTorch's own choice is fixed."""
        if self.device == "cpu":
            self.record(body, copies, **point)
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel
        times = {}
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                        SDPBackend.EFFICIENT_ATTENTION):
            if time.monotonic() > self.deadline:
                break
            try:
                with sdpa_kernel(backend):
                    times[backend.name] = self.timer.median_us(body, copies)
            except RuntimeError as why:
                self.notes.append(f"{backend.name} at {point}: {str(why).splitlines()[0]}")
        if not times:
            self.notes.append(f"left out: {point}")
            return
        best = min(times, key=times.get)
        self.grid.append({**point, "us": times[best], "backend": best, "us_by_backend": times})

    def glue(self, tokens_of_grid):
        for model in self.models:
            for tokens in tokens_of_grid:
                body, copies, facts = self.glue_part(model, tokens)
                self.record(body, copies, section="glue", model=model.name, tokens=tokens, **facts)

    def sampling(self, sequences_of_grid):
        """Softmax and a draw by exponential noise, which needs no answer from the GPU."""
        for model in self.models:
            for sequences in sequences_of_grid:
                logits = self.tensor(sequences, model.vocabulary)
                noise = self.torch.empty(sequences, model.vocabulary, device=self.device)
                noise.exponential_()

                def body(_, logits=logits, noise=noise):
                    self.torch.softmax(logits.float(), dim=-1).div(noise).argmax(dim=-1)
                self.record(body, section="sampling", model=model.name, sequences=sequences)

    def layers(self, shapes):
        """Whole decode layers, to see whether the sum of the parts is the time of the whole."""
        for model in self.models:
            for sequences, context in shapes:
                parts = [("gemm", self.gemm_part(model, "attention", sequences)),
                         ("attention", self.decode_part(model, sequences, context)),
                         ("gemm", self.gemm_part(model, "mlp", sequences)),
                         ("glue", self.glue_part(model, sequences))]

                def body(index, parts=parts):
                    for _, (part, copies, _) in parts:
                        part(index % copies)
                self.best_backend(
                    body, max(copies for _, (_, copies, _) in parts), section="layer",
                    model=model.name, sequences=sequences, context=context,
                    parts=[{"section": section, **facts} for section, (_, _, facts) in parts])


def measure(options):
    import torch
    torch.manual_seed(20261123)
    device = "cpu" if options.smoke else "cuda"
    bench = Bench(torch, device, TINY if options.smoke else MODELS,
                  time.monotonic() + options.seconds, options.smoke)
    sections = [
        ("gemm", lambda: bench.gemms(TOKENS[:6] if options.smoke else TOKENS)),
        ("attention", lambda: bench.attention(DECODES[:6] if options.smoke else DECODES,
                                              CHUNKS[:3] if options.smoke else CHUNKS)),
        ("glue", lambda: bench.glue(TOKENS[:6] if options.smoke else TOKENS)),
        ("sampling", lambda: bench.sampling(SEQUENCES[:6] if options.smoke else SEQUENCES)),
        ("layer", lambda: bench.layers(LAYERS[:2] if options.smoke else LAYERS)),
    ]
    with torch.inference_mode():
        for name, section in sections:
            begun = time.monotonic()
            section()
            print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    return {
        "format": FORMAT,
        "gpu": "none: a smoke test" if options.smoke else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["calibrate.py", *sys.argv[1:]]),
        "notes": bench.notes,
        "grid": bench.grid,
    }


def with_fit(record, seed):
    grid = record.pop("grid")
    missing = [section for section in SECTIONS
               if sum(point["section"] == section for point in grid) < 4]
    if missing:
        sys.exit(f"calibrate.py: fewer than four points of: {', '.join(missing)}")
    record["constants"] = fit(grid)
    record["held_out_median_relative_error"] = hold_out(grid, seed)
    record["held_out_seed"] = seed
    record["grid"] = grid
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="where the calibration is written")
    parser.add_argument("--fit", metavar="FILE", help="fits a recorded grid again; --out or in place")
    parser.add_argument("--seconds", type=float, default=400, help="measures no new point after this")
    parser.add_argument("--seed", type=int, default=1, help="of the half that is held out")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on a CPU")
    options = parser.parse_args()
    if not options.fit and not options.out:
        parser.error("--out or --fit is needed")
    if options.fit:
        with open(options.fit, encoding="utf-8") as file:
            record = json.load(file)
    else:
        record = measure(options)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)  # the grid is safe whatever the fit says
    record = with_fit(record, options.seed)
    with open(options.out or options.fit, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    for name, value in record["constants"].items():
        print(f"{name:18} {value:12.3f}")
    for section, error in record["held_out_median_relative_error"].items():
        print(f"held-out median relative error, {section:10} {100 * error:6.1f} %")
    if record.get("notes"):
        print(f"{len(record['notes'])} notes in the file; the first: {record['notes'][0]}")


if __name__ == "__main__":
    main()
