"""The step-time model of `braid simulate serving`, and its constants from a measured grid.

The same formula is src/serving/cost/step_time.cpp. A grid is a list of points, each with `section`,
`us` and what the section's formula needs:

  gemm       max(flops / matmul_tflops, bytes / weight_gbps) + matmul_us      one group of one layer
  attention  bytes / attention_gbps + attention_us                            decode, one layer
  prefill    flops / prefill_tflops + prefill_us                              a chunk, one layer
  glue       bytes / glue_gbps + glue_us              norms, rotary embedding, activations, one layer
  sampling   sequences * sequence_us + step_us                                one step

Fitted by least squares of the relative error. Python alone: no package is needed.
"""
import math
import random

# section: the constants, each with a first guess. Rates before times.
SECTIONS = {
    "gemm": {"matmul_tflops": 600.0, "weight_gbps": 4000.0, "matmul_us": 3.0},
    "attention": {"attention_gbps": 3500.0, "attention_us": 5.0},
    "prefill": {"prefill_tflops": 400.0, "prefill_us": 10.0},
    "glue": {"glue_gbps": 2500.0, "glue_us": 15.0},
    "sampling": {"sequence_us": 1.0, "step_us": 50.0},
}


def predict(point, constants):
    """The time of a point of a grid, in microseconds. TFLOP/s are 10^6 FLOP a microsecond."""
    section = point["section"]
    if section == "gemm":
        return max(point["flops"] / (constants["matmul_tflops"] * 1e6),
                   point["bytes"] / (constants["weight_gbps"] * 1e3)) + constants["matmul_us"]
    if section == "attention":
        return point["bytes"] / (constants["attention_gbps"] * 1e3) + constants["attention_us"]
    if section == "prefill":
        return point["flops"] / (constants["prefill_tflops"] * 1e6) + constants["prefill_us"]
    if section == "glue":
        return point["bytes"] / (constants["glue_gbps"] * 1e3) + constants["glue_us"]
    if section == "sampling":
        return point["sequences"] * constants["sequence_us"] + constants["step_us"]
    raise ValueError(f"no such section: {section}")


def predict_layer(point, constants):
    """A whole decode layer: the sum of its parts, which the fit does not see."""
    return sum(predict(part, constants) for part in point["parts"])


def relative_error(point, constants):
    predicted = predict_layer(point, constants) if point["section"] == "layer" else predict(
        point, constants)
    return abs(predicted / point["us"] - 1)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def fit_section(points, first):
    """Pattern search over the logarithms: few constants, and a maximum that has corners."""
    names = list(first)
    at = [math.log(first[name]) for name in names]

    def loss(logs):
        constants = dict(zip(names, map(math.exp, logs)))
        return sum(math.log(predict(point, constants) / point["us"]) ** 2 for point in points)

    best, width = loss(at), 1.0
    while width > 1e-4:
        improved = False
        for index in range(len(at)):
            for step in (width, -width):
                trial = list(at)
                trial[index] = min(max(trial[index] + step, -10), 15)
                value = loss(trial)
                if value < best - 1e-12:
                    at, best, improved = trial, value, True
        if not improved:
            width /= 2
    return dict(zip(names, map(math.exp, at)))


def fit(grid):
    constants = {}
    for section, first in SECTIONS.items():
        points = [point for point in grid if point["section"] == section]
        constants.update(fit_section(points, first) if points else {})
    return constants


def split(grid, seed):
    """Half of each section's points, chosen at random, and the other half."""
    chosen, held_out = [], []
    for section in SECTIONS:
        points = [point for point in grid if point["section"] == section]
        random.Random(seed).shuffle(points)
        chosen += points[:(len(points) + 1) // 2]
        held_out += points[(len(points) + 1) // 2:]
    return chosen, held_out


def hold_out(grid, seed):
    """Median relative errors of constants fitted to one half of the grid, over the other half, by
    section; `all` is over all points held out, and `layer` over whole layers, which no fit sees."""
    chosen, held_out = split(grid, seed)
    constants = fit(chosen)
    errors = {}
    for section in [*SECTIONS, "layer"]:
        points = [point for point in (grid if section == "layer" else held_out)
                  if point["section"] == section]
        if points:
            errors[section] = median([relative_error(point, constants) for point in points])
    errors["all"] = median([relative_error(point, constants) for point in held_out])
    return errors
