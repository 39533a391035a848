#!/usr/bin/env python3
"""vLLM's KV cache in host memory and back: many prompts with long shared prefixes, many loads at once.

  [braid run --] vllm_offload.py FOLDER [--rounds 20] [--prefixes 8] [--share 2] [--length 16384] [--label NAME]

FOLDER holds what a run of vLLM 0.20 needs: common.py (options, prompts of token ids, dummy weights) and
the model's shape in FOLDER/model; vLLM itself is found on PYTHONPATH. Every round forgets what the GPU
has, asks all prompts at once, and so brings every prefix back from host memory. Each block's checksum
is compared (support/kv_blocks.py), and tokens and log-probabilities with those of the first restore. Blocks
that differ fail the run. Outputs may differ a little natively too, as requests meet in other batches: a
difference of log-probabilities beyond --tolerance fails. Ends with RESULT and a line of JSON, or after
--limit seconds with exit code 9.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
HANG_EXIT_CODE = 9
SETTLE_TURNS, SETTLE_S = 40, 0.1


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", help="a model's folder; default: FOLDER/model")
    parser.add_argument("--backend", help="an attention backend; default: vLLM's choice")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--prefixes", type=int, default=8)
    parser.add_argument("--share", type=int, default=2, help="prompts that share a prefix")
    parser.add_argument("--length", type=int, default=16384, help="tokens of a prefix")
    parser.add_argument("--tokens", type=int, default=8, help="that are generated")
    parser.add_argument("--host-gib", type=float, default=24, help="host memory for KV blocks")
    parser.add_argument("--gpu-mem", type=float, default=0.5, help="of the GPU's memory, for vLLM")
    parser.add_argument("--tolerance", type=float, default=0.5, help="of log-probabilities")
    parser.add_argument("--limit", type=float, default=540, help="seconds")
    parser.add_argument("--label", default="")
    return parser.parse_args()


def watch_the_clock(limit_s):
    def end():
        print(f"hang: vLLM did not end in {limit_s} s", file=sys.stderr, flush=True)
        import os
        os._exit(HANG_EXIT_CODE)
    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()


def make_engine(arguments, common):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    options = argparse.Namespace(model=arguments.model or str(arguments.folder / "model"), tp=1,
                                 gpu_mem=arguments.gpu_mem, backend=arguments.backend, kv_gib=None)
    transfer = KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both",
        kv_connector_extra_config={"spec_name": "CPUOffloadingSpec",
                                   "cpu_bytes_to_use": int(arguments.host_gib * 2**30)})
    engine = LLM(**common.llm_kwargs(options, kv_transfer_config=transfer, enable_prefix_caching=True,
                                     max_model_len=arguments.length + 256,
                                     max_num_seqs=arguments.prefixes * arguments.share))
    engine.apply_model(common.scale_weights(32.0))
    return engine


class Workload:
    def __init__(self, arguments, common, engine):
        from vllm import SamplingParams
        self.common, self.engine = common, engine
        self.sampling = SamplingParams(temperature=0.0, max_tokens=arguments.tokens, ignore_eos=True,
                                       detokenize=False, logprobs=3)
        self.prompts = [{"prompt_token_ids": common.ids(prefix, arguments.length)
                         + common.ids(1000 + 100 * prefix + copy, 24)}
                        for prefix in range(arguments.prefixes) for copy in range(arguments.share)]

    def ask(self, prompts=None):
        return self.common.outs(self.engine.generate(prompts or self.prompts, self.sampling, use_tqdm=False))

    def forget(self):
        """Until the GPU holds no blocks any more: those on their way to host memory are in use until then."""
        for turn in range(SETTLE_TURNS):
            if self.engine.reset_prefix_cache():
                return
            self.ask([{"prompt_token_ids": self.common.ids(9000 + turn, 8)}])
            time.sleep(SETTLE_S)
        sys.exit("blocks of the GPU stay in use")

    def settle(self):
        for turn in range(4):
            self.ask([{"prompt_token_ids": self.common.ids(8000 + turn, 8)}])
            time.sleep(SETTLE_S)


def difference(first, other):
    """The largest difference of the chosen tokens' log-probabilities, as far as the tokens agree."""
    largest = 0.0
    for one, two in zip(first, other):
        for token, same, ours, theirs in zip(one["ids"], two["ids"], one["lp"], two["lp"]):
            if token != same:
                break
            ours, theirs = dict(map(tuple, ours)), dict(map(tuple, theirs))
            largest = max(largest, abs(float.fromhex(ours[token]) - float.fromhex(theirs[token])))
    return largest


def restore(workload, ledger, first):
    """(one round's line, its outputs). `first` is None in the first round."""
    workload.forget()
    before, done = ledger.counts(), len(ledger.transfers)
    start = time.perf_counter()
    outputs = workload.ask()
    seconds = time.perf_counter() - start
    loads = [(size, took) for is_load, size, took in ledger.transfers[done:] if is_load]
    line = {name: count - before[name] for name, count in ledger.counts().items()}
    line.update(seconds=round(seconds, 4), loads=len(loads), load_bytes=sum(size for size, _ in loads),
                load_s=round(sum(took for _, took in loads), 5))
    reference = first or outputs
    line.update(ids_same=[one["ids"] for one in reference] == [one["ids"] for one in outputs],
                logprobs_same=reference == outputs, largest_difference=difference(reference, outputs))
    return line, outputs


def summary(arguments, common, rounds, first, load_s):
    load_bytes, took = sum(line["load_bytes"] for line in rounds), sum(line["load_s"] for line in rounds)
    return {"test": "vllm_offload", "label": arguments.label, "load_model_s": round(load_s, 2),
            "rounds": len(rounds), "median_s": statistics.median(line["seconds"] for line in rounds),
            "loads": sum(line["loads"] for line in rounds), "load_bytes": load_bytes,
            "load_gbps": round(load_bytes / took / 1e9, 2) if took else 0,
            **{name: sum(line[name] for line in rounds)
               for name in ("blocks_checked", "blocks_wrong", "blocks_unknown")},
            "rounds_with_the_same_ids": sum(line["ids_same"] for line in rounds),
            "rounds_with_the_same_logprobs": sum(line["logprobs_same"] for line in rounds),
            "largest_difference": max(line["largest_difference"] for line in rounds),
            "digest": common.digest(first), "first_ids": first[0]["ids"]}


def main():
    arguments = read_arguments()
    watch_the_clock(arguments.limit)
    sys.path.insert(0, str(arguments.folder.resolve()))
    import common
    common.env(False)  # the engine in this process, where its handlers can be watched
    from support.kv_blocks import watch
    ledger = watch()
    start = time.perf_counter()
    engine = make_engine(arguments, common)
    load_s = time.perf_counter() - start
    workload = Workload(arguments, common, engine)
    workload.ask()
    workload.settle()
    rounds, first = [], None
    for turn in range(arguments.rounds):
        line, outputs = restore(workload, ledger, first)
        first = first or outputs
        rounds.append(line)
        print(json.dumps({"round": turn, **line}), flush=True)
    result = summary(arguments, common, rounds, first, load_s)
    # Every prefix comes back in every round, or the workload is not what it says.
    expected = arguments.rounds * arguments.prefixes * (arguments.length // 16 - 1)
    is_well = result["blocks_wrong"] == 0 and result["blocks_unknown"] == 0 \
        and result["blocks_checked"] >= expected \
        and math.isfinite(result["largest_difference"]) \
        and result["largest_difference"] <= arguments.tolerance
    print("RESULT " + json.dumps({**result, "blocks_expected": expected, "passed": is_well}), flush=True)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
