"""Turns what bench/gpu/run measured into the record's tables, and writes the record."""
import json
import statistics


def size_text(size):
    if size >= 1 << 30:
        return f"{size >> 30} GiB"
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def spread(readings):
    return f"{statistics.median(readings):.1f} ({min(readings):.1f}-{max(readings):.1f})"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def share_text(record):
    total = sum(record["share"].values())
    return " ".join(f"{gpu}:{100 * count / total:.0f}%" for gpu, count in record["share"].items()) \
        if total else record["verdict"]


def engine_rows(measured, emulated):
    for real, model in zip(measured, emulated):
        low, high = real["braid_gbps_range"]
        yield [real["direction"], size_text(real["size_bytes"]), f"{real['native_gbps']:.1f}",
               f"{real['braid_gbps']:.1f} ({low:.1f}-{high:.1f})",
               f"{real['braid_gbps'] / real['native_gbps']:.2f}", f"{real['limit_gbps']:.1f}",
               f"{100 * real['braid_gbps'] / real['limit_gbps']:.0f} %", f"{real['submit_us']:.1f}",
               share_text(real), "yes" if real["verified"] else "NO",
               f"{real['braid_first_gbps'] / real['native_first_gbps']:.2f}",
               f"{model['native_gbps']:.1f}", f"{model['braid_gbps']:.1f}", f"{model['limit_gbps']:.1f}"]


def threshold_rows(records):
    for record in records:
        yield [record["direction"], f"{record['size_bytes'] >> 20} MiB", f"{record['native_gbps']:.1f}",
               f"{record['braid_gbps']:.1f}", f"{record['braid_gbps'] / record['native_gbps']:.2f}",
               f"{record['braid_first_gbps'] / record['native_first_gbps']:.2f}"]


def sweep_table(name, sweep):
    columns = next(iter(sweep.values()))
    header = [name] + [f"{one['direction']} {size_text(one['size_bytes'])}" for one in columns]
    return table(header, ([text] + [f"{one['braid_gbps']:.1f}" for one in records]
                          for text, records in sweep.items()))


def torch_rows(records):
    for record in records:
        native, braid, limit = (statistics.median(record[key]) for key in ("native", "braid", "limit"))
        yield [record["direction"], size_text(record["size_bytes"]), spread(record["native"]),
               spread(record["braid"]), f"{braid / native:.2f}", spread(record["limit"]),
               f"{100 * braid / limit:.0f} %", "yes" if record["verified"] else "NO",
               f"{statistics.median(record['braid_first']) / statistics.median(record['native_first']):.2f}"]


def runtime_rows(records):
    for record in records:
        ratio = statistics.median(record["braid"]) / statistics.median(record["native"])
        yield [record["direction"], size_text(record["size_bytes"]), spread(record["native"]),
               spread(record["braid"]), f"{ratio:.2f}", "yes" if record["verified"] else "NO"]


def middle_and_range(readings):
    low, high = readings["range"]
    return f"{readings['median']:.1f} ({low:.1f}-{high:.1f})"


def scenario_rows(scenarios):
    for mover, records in scenarios.items():
        for one in records:
            native, braid, limit = (one[f"{side}_gbps"] for side in ("native", "braid", "limit"))
            segment = f"{one['segment_bytes'] >> 10} KiB" if one["segment_bytes"] else ""
            yield [one["scenario"], mover, one["direction"], size_text(one["size_bytes"]), segment,
                   middle_and_range(native), middle_and_range(braid),
                   f"{braid['median'] / native['median']:.2f}", middle_and_range(limit),
                   f"{100 * braid['median'] / limit['median']:.0f} %", one["verdict"],
                   "yes" if one["verified"] else "NO"]


def small_rows(records):
    for one in records:
        ratios = [braid / native for native, braid in zip(one["native_gbps"], one["braid_gbps"])]
        native_ns, braid_ns = (statistics.median(one[f"{side}_issue_ns"]) for side in ("native", "braid"))
        yield [one["direction"], size_text(one["size_bytes"]), spread(one["native_gbps"]),
               spread(one["braid_gbps"]), f"{statistics.median(ratios):.3f}", f"{native_ns:.0f}",
               f"{braid_ns:.0f}", f"{braid_ns - native_ns:+.0f}"]


def cpu_rows(cpu):
    for side, one in cpu.items():
        yield [side, *(f"{one[direction]['gbps']:.1f}, {one[direction]['cpu_per_s']:.3f}"
                       for direction in ("h2d", "d2h")), f"{one['idle']['cpu_per_s']:.4f}"]


def engine_section(measured):
    text = "## The engine (`braid bench`), target GPU 0, and the emulated h200x4 beside it\n"
    for mover, records in measured["engine"].items():
        text += f"\n`BRAID_MOVER={mover}`:\n\n" + table(
            ["", "size", "native", "braid", "ratio", "limit", "of limit", "submit us",
             "share of links", "verified", "first: ratio", "emulated native", "emulated braid",
             "emulated limit"], engine_rows(records, measured["emulated"][mover]))
    return text


def scenarios_section(measured):
    return "## Scenarios (`braid bench --scenario`), by mover\n\n" + table(
        ["scenario", "mover", "", "size", "segment", "native", "braid", "ratio", "limit",
         "of limit", "outcome", "verified"], scenario_rows(measured["scenarios"]))


def small_section(measured):
    return """## Copies below the threshold: a program of the driver API, natively and under `braid run`

Copies in a row on one stream, GB/s by events, by the two processes in turns; the ratio is the median of the turns'. Beside it the CPU time of one
call while the stream has room for it, ns.

""" + table(["", "size", "native", "braid", "ratio", "call native", "call braid", "more"],
            small_rows(measured["small"]))


def starts_section(measured):
    return """## Processes that start at once

Seconds until all of them have a context on GPU 0 and 64 MiB of pinned memory: under `braid run` while the relays open
beside them, and with `--opening wait` when all are open.

""" + table(["processes", "native", "braid", "waiting"],
            ([str(one["processes"]), *(f"{statistics.median(one[side]):.2f} ({min(one[side]):.2f}-"
                                       f"{max(one[side]):.2f})" for side in ("native", "braid", "waiting"))]
             for one in measured["starts"]))


def worker_rows(records):
    native = {one["workers"]: one for one in records if one["side"] == "native"}
    for one in records:
        usual = native[one["workers"]]
        rates = [f"{spread(one[key])}, {statistics.median(one[key]) / statistics.median(usual[key]):.2f}"
                 for key in ("h2d_one", "h2d_all", "d2h_one", "d2h_all")]
        yield [str(one["workers"]), one["side"], f"{one['start_s']:.2f}", str(one["memory_mib"]), *rates]


def workers_section(measured):
    return """## Workers that share the server

Each worker has a GPU of its own, in turns, and sees all. Seconds until all have a context and a GiB of pinned memory;
memory of all GPUs together, MiB; GB/s (of native's): one worker that copies while the others are quiet, and all at once.

""" + table(["workers", "", "start, s", "memory, MiB", "up, one", "up, all", "down, one", "down, all"],
            worker_rows(measured["workers"]))


def checkpoint_rows(checkpoints):
    rates = {side: {what: [rate for run in runs for rate in run["gbps"][what]] for what in runs[0]["gbps"]}
             for side, runs in checkpoints.items()}
    for what, native in rates["native"].items():
        braid = rates["braid"][what]
        yield [what, spread(native), spread(braid), f"{statistics.median(braid) / statistics.median(native):.2f}"]


def checkpoints_section(measured):
    size_gb = measured["checkpoints"]["native"][0]["size_bytes"] / 1e9
    return f"""## Checkpoints and modules in pageable memory, {size_gb:.1f} GB

safetensors' load_file(device="cuda") from the page cache, module.to(...) both ways, and a copy by the CPU's cores into
fresh memory, GB/s.

""" + table(["", "native", "braid", "ratio"], checkpoint_rows(measured["checkpoints"]))


def cpu_section(measured):
    return f"""## CPU time of a process whose copies flow without pause

Seconds of CPU (user and system, all threads) for each second that passes, in a PyTorch process that keeps
{measured["cpu_in_flight"]} copies of {size_text(measured["cpu_size_bytes"])} in flight and sleeps while it waits: GB/s, CPU. What is
above native's is braid's. "Idle": the same process afterwards, with nothing to copy.

""" + table(["", "host to device", "device to host", "idle"], cpu_rows(measured["cpu"]))


def queued_rows(records):
    for one in records:
        native, braid = (statistics.median(one[side]) for side in ("native", "braid"))
        calls = [f"{statistics.median(one[f'{side}_call_us']):.0f}" for side in ("native", "braid")]
        yield [one["direction"], size_text(one["size_bytes"]), str(one["copies"]), spread(one["native"]),
               spread(one["braid"]), f"{braid / native:.2f}", *calls, "yes" if one["verified"] else "NO"]


def queued_section(measured):
    return """## Copies that one stream holds

PyTorch's tensor.copy_ with pinned memory, non_blocking: all copies are enqueued, then waited for, as where a program
loads its weights. GB/s, and us that a call takes.

""" + table(["", "size", "copies", "native", "braid", "ratio", "call, native", "call, braid", "verified"],
            queued_rows(measured["queued"]))


def torch_section(measured):
    torch = measured["torch"]
    return f"## PyTorch {torch['version']}: tensor.copy_ with pinned memory under `braid run`\n\n" + table(
        ["", "size", "native", "braid", "ratio", "limit", "of limit", "verified", "first: ratio"],
        torch_rows(torch["records"]))


def defaults_section(measured):
    defaults = measured["defaults"]
    return f"""## What the defaults rest on

Threshold: every size through braid (`BRAID_THRESHOLD=1 braid bench`).

{table(["", "size", "native", "braid", "ratio", "first: ratio"], threshold_rows(defaults["threshold"]))}
Slices (`BRAID_EXPERIMENT=slice=...`), GB/s through braid:

{sweep_table("slice", defaults["slice"])}
Thread blocks a path (`BRAID_EXPERIMENT=blocks=...`), GB/s through braid:

{sweep_table("blocks", defaults["blocks"])}"""


def runtime_section(measured):
    return "## A plain nvcc program with the static CUDA runtime under `braid run`\n\n" + table(
        ["", "size", "native", "braid", "ratio", "verified"], runtime_rows(measured["runtime"]))


def fabric_rows(records):
    for one in records:
        against = ", ".join(f"{name[:-5]} {value:.1f}" for name, value in one.items()
                            if name.endswith("_gbps") and name != "braid_gbps")
        yield [one["provider"], one["pattern"], size_text(one["size_bytes"]),
               f"{one['braid_gbps']:.1f}", against, f"{one['ratio']:.2f}",
               "yes" if one["verified"] else "NO"]


def fabric_section(measured):
    return """## The fabric: writes from a GPU of one process to that of another (`fabric_gpu`)

GB/s, medians. `local` stands against one cuMemcpyPeerAsync of all memory in one process (beside it, one of each size);
staged memory against the slower of the same writes between host memory and multipath's copies to the host.

""" + table(["over", "pattern", "size", "braid", "against", "ratio", "verified"],
            fabric_rows(measured["fabric"]))


def rotation_rows(records):
    for one in records:
        if one["what"] != "bandwidth":
            continue
        rates = {side: one.get(f"{side}_gbps") for side in ("native", "braid", "native_batch", "braid_batch")}
        middle = {side: statistics.median(values) for side, values in rates.items() if values}
        best = "braid" if "braid" in middle else "native"
        yield [size_text(one["block_bytes"]), one["moves"], spread(rates["native"]),
               spread(rates["braid"]) if rates["braid"] else "", f"{middle[best] / middle['native']:.2f}",
               spread(rates[f"{best}_batch"]), f"{middle[best] / middle[f'{best}_batch']:.2f}",
               "yes" if one["verified"] else "NO"]


def rotation_call_rows(records):
    for one in records:
        if one["what"] == "call":
            yield [str(one["blocks"]), one["moves"],
                   *(spread(one[key]) if (key := f"{side}_submit_us") in one else ""
                     for side in ("bookkeeping", "native", "braid")), "yes" if one["verified"] else "NO"]


def rotation_beside_rows(records):
    for one in records:
        if one["what"] != "beside":
            continue
        for side in ("native", "braid"):
            if f"{side}_gbps" in one:
                yield [side, spread(one["kernel_us"]), spread(one[f"{side}_gbps"]),
                       *(f"{statistics.median(one[f'{side}_{key}']):.{digits}f}"
                         for key, digits in (("slow_down", 3), ("us_by_gb", 0)))]


def rotation_section(measured):
    records = measured["rotation"]
    server = next(one for one in records if one["what"] == "server")
    return f"""## KV caches that rotate (`rotation`): {server["gpus"]} GPUs; braid's batches: {server["braid"]}

GB/s of both directions together, from the call until the last byte, by plans of one block size; "batches" are bare
batches of the same blocks by the same copier. {server.get("note", "")}

""" + table(["block", "", "native", "braid", "ratio", "batches", "of batches", "verified"],
            rotation_rows(records)) + """
What a plan's call costs its caller, us; "bookkeeping" is rotation's own part, with no copies.

""" + table(["blocks", "", "bookkeeping", "native", "braid", "verified"], rotation_call_rows(records)) + """
Kernels that read 256 MiB each while blocks of 64 KiB rotate both ways: us of one alone; GB/s that moved meanwhile; how
much longer the kernels took, and the us that they lost for each GB moved.

""" + table(["", "alone", "moved", "times", "us by GB"], rotation_beside_rows(records))


SECTIONS = {"engine": engine_section, "scenarios": scenarios_section, "small": small_section,
            "starts": starts_section, "workers": workers_section, "checkpoints": checkpoints_section,
            "cpu": cpu_section, "queued": queued_section, "torch": torch_section,
            "defaults": defaults_section, "runtime": runtime_section,
            "fabric": fabric_section, "rotation": rotation_section}


def write_record(folder, machine, repeat, measured):
    """Returns the record's text. `measured`: what each part measured, by its name; parts left out are absent."""
    name = f"{machine['date']}-{machine['gpus']}x{machine['gpu'].split()[-1]}"
    text = f"""# {machine['gpus']} x {machine['gpu']}, {machine['date']}

Written by `make gpu-bench` (bench/gpu/run), {repeat} turns, commit {machine['commit']}. Driver
{machine['driver']}, {machine['cpu']}. GB/s are 10^9 bytes a second: median (lowest-highest). "Limit" is
what direct copies to every GPU at once reached, in turns with the others. Every copy was verified, byte
by byte, against random data. A turn is one copy of each kind after a pause ("first"), then three that
follow one another; the columns without "first" are the latter.

""" + "\n".join(section(measured) for part, section in SECTIONS.items() if part in measured)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.json").write_text(json.dumps({"machine": machine, **measured}, indent=1) + "\n")
    return text
