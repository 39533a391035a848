#!/usr/bin/env python3
"""The simulator's step-time model and the one that bench/serving/fit.py fits are the same: their
times of some batches are equal. And a fit finds the constants that a grid was made with.

  step_time_test.py PROGRAM        PROGRAM prints the simulator's times (step_times.cpp)
"""
import json
import pathlib
import random
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "serving"))
from calibrate import Bench  # noqa: E402
from fit import SECTIONS, fit, hold_out, predict  # noqa: E402
from shapes import BYTES, MODELS  # noqa: E402

# What the simulator has built in.
RECORD = ROOT / "docs" / "measurements" / "2026-11-23-H200-step-time.json"
MEASURED = json.loads(RECORD.read_text("utf-8"))["constants"]


def products(parameters, tokens, touched=1, chosen=1):
    return predict({"section": "gemm", "flops": 2 * parameters * tokens * chosen,
                    "bytes": parameters * touched * BYTES}, MEASURED)


def step_us(model, batch):
    tokens = batch["decodes"] + batch["prefill"]
    attention = model.hidden * (model.qkv + model.heads * model.head_dim)
    expert = 3 * model.hidden * model.intermediate
    touched = model.experts_touched(tokens) if model.experts > 1 else 1
    us = products(attention, tokens) + products(expert, tokens, touched, model.experts_per_token)
    if batch["decodes"]:
        us += predict({"section": "attention", "bytes": batch["context"] * model.kv_bytes}, MEASURED)
    if batch["prefill"]:
        flops = 4 * batch["pairs"] * model.heads * model.head_dim
        us += predict({"section": "prefill", "flops": flops}, MEASURED)
    us += predict({"section": "glue", "bytes": Bench.glue_bytes(model, tokens)}, MEASURED)
    us *= model.layers
    if batch["sampled"]:
        us += products(model.vocabulary * model.hidden, batch["sampled"])
    return us + predict({"section": "sampling", "sequences": batch["sampled"]}, MEASURED)


def check_equal(program):
    models = {model.name: model for model in MODELS}
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    batches = [json.loads(line) for line in lines.splitlines()]
    assert len(batches) == 12, batches
    for batch in batches:
        expected = step_us(models[batch["model"].lower()], batch)
        assert abs(batch["us"] / expected - 1) < 1e-5, (batch, expected)
    print(f"{len(batches)} batches have equal times")


def check_fit():
    noise = random.Random(3)
    grid = []
    for tokens in [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 512, 1024, 2048, 8192]:
        grid += [{"section": "gemm", "flops": 2 * weights * tokens, "bytes": 2 * weights}
                 for weights in (42e6, 176e6, 424e6)]
    grid += [{"section": "attention", "bytes": 16e6 * 2 ** power} for power in range(7)]
    grid += [{"section": "prefill", "flops": 4e9 * 4 ** power} for power in range(7)]
    grid += [{"section": "glue", "bytes": 1e5 * 10 ** (power / 2)} for power in range(8)]
    grid += [{"section": "sampling", "sequences": count} for count in (1, 16, 64, 128, 256, 512)]
    for point in grid:
        point["us"] = predict(point, MEASURED) * noise.uniform(0.98, 1.02)
    found = fit(grid)
    rates = [name for constants in SECTIONS.values() for name in constants
             if not name.endswith("_us")]
    for name in rates:
        assert abs(found[name] / MEASURED[name] - 1) < 0.05, (name, found[name])
    errors = hold_out(grid, seed=1)
    assert errors["all"] < 0.03, errors
    print(f"a fit finds the {len(rates)} rates of a grid, within 5 %")


check_equal(sys.argv[1])
check_fit()
