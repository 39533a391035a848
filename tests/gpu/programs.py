#!/usr/bin/env python3
"""Unmodified programs under `braid run` on real GPUs: every byte right, large copies accelerated.

A plain nvcc binary with the static runtime, and PyTorch. Exits with 77 (skipped) when no server with
two GPUs is there, and when a program that cannot be had was left out, by name.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BRAID = ROOT / "build/bin/braid"
CLIENT = ROOT / "build/tests/runtime_client"

TORCH = """
import torch
size = 256 << 20
source = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
device = torch.zeros(size, dtype=torch.uint8, device="cuda:0")
landing = torch.zeros(size, dtype=torch.uint8).pin_memory()
for non_blocking in (True, False):
    device.zero_(); landing.zero_()
    device.copy_(source, non_blocking=non_blocking)
    assert torch.equal(device.cpu(), source), "H2D bytes"
    landing.copy_(device, non_blocking=non_blocking)
    torch.cuda.synchronize()
    assert torch.equal(landing, source), "D2H bytes"
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    device.zero_()
    device.copy_(source, non_blocking=True)
    doubled = device.to(torch.int16) * 2
stream.synchronize()
assert torch.equal(doubled.cpu(), source.to(torch.int16) * 2), "a kernel behind the copy"
for gpu in range(torch.cuda.device_count()):
    there = source.to(f"cuda:{gpu}", non_blocking=True)
    assert torch.equal(there.cpu(), source), f"GPU {gpu}"
print("torch: right")
"""


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    sys.stdout.write(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{words[0]} failed with {done.returncode}:\n{done.stderr[-4000:]}")
    return done


def accelerated_bytes(errors):
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith('{"braid"')]
    return sum(verdicts.get("accelerated", {}).get("bytes", 0)
               for line in lines for verdicts in line["braid"]["entry_points"].values())


def check(name, words, least_bytes):
    done = run([str(BRAID), "run", "--stats", "json", "--", *words])
    carried = accelerated_bytes(done.stderr)
    if carried < least_bytes:
        sys.exit(f"{name}: braid carried {carried} bytes, at least {least_bytes} were expected:\n"
                 + done.stderr[-4000:])
    print(f"{name}: {carried} bytes carried by braid")


def main():
    if int(run([str(ROOT / "scripts/gpu-count")]).stdout) < 2:
        print("waived: needs two GPUs")
        sys.exit(77)
    run([str(BRAID), "doctor"])
    left_out = []
    if CLIENT.exists():
        sizes = [str(1 << shift) for shift in (12, 20, 24, 28)]
        run([str(CLIENT), *sizes])
        check("static runtime", [str(CLIENT), *sizes], 2 * 10 * ((1 << 24) + (1 << 28)))
    else:
        left_out.append("runtime_client was not built (no static CUDA runtime)")
    if subprocess.run(["python3", "-c", "import torch"], capture_output=True).returncode == 0:
        check("torch", ["python3", "-c", TORCH], 5 * (256 << 20))
    else:
        left_out.append("PyTorch is not installed")
    if left_out:
        print("skipped: left out, the rest is right: " + "; ".join(left_out))
        sys.exit(77)


if __name__ == "__main__":
    main()
