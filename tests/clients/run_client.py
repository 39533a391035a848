#!/usr/bin/env python3
"""Runs one client natively on the emulated server and under braid, and holds the two to account.

  run_client.py CLIENT SOURCE-FOLDER BUILD-FOLDER

A client verifies its own bytes and prints, as its last line, what it copied and verified:
{"verified": true, "copied": {"h2d": BYTES, "d2h": BYTES}}, counting copies of 16 MB or more between
pinned memory and the GPU. Under braid all of those must appear as accelerated in the statistics,
and have travelled over more than one path in each direction.
"""
import json
import os
import pathlib
import subprocess
import sys

SERVER = "h20x8"
TIMEOUT_S = 240


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def fail(why, done=None):
    if done is not None:
        print(done.stdout + done.stderr)
    print(f"failed: {why}")
    sys.exit(1)


def command_of(client, source, build):
    """The command line of a client, and what it adds to the environment."""
    if client == "demo_client":
        return [str(build / "demo" / "client"), "--json", "--repeat", "3",
                "--sizes", "1,4097,64K,1M,16M,100000001"], {}
    if client == "ctypes":
        return [sys.executable, str(source / "tests" / "clients" / "ctypes_client.py")], {}
    python = source / ".venv" / "bin" / "python"
    if not python.is_file():
        why = source / ".deps" / "clients-unavailable.txt"
        skip(why.read_text(encoding="utf-8").strip() if why.is_file()
             else "no .venv here; run scripts/bootstrap --tests")
    clients = source / "tests" / "clients"
    return {
        "cuda_bindings": ([str(python), str(clients / "cuda_bindings_client.py")], {}),
        "numba_bindings": ([str(python), str(clients / "numba_client.py")],
                           {"NUMBA_CUDA_USE_NVIDIA_BINDING": "1"}),
        "numba_ctypes": ([str(python), str(clients / "numba_client.py")],
                         {"NUMBA_CUDA_USE_NVIDIA_BINDING": "0"}),
    }[client]


def run(command, environment):
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        fail(f"{command} did not end in {TIMEOUT_S} s: {late.stdout!r} {late.stderr!r}")


def report_of(done, how):
    """What the client says that it copied and verified."""
    if done.returncode != 0:
        fail(f"{how}: exit code {done.returncode}", done)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if lines and "direction" in lines[-1]:  # the demo's client: one line a measurement
        return report_of_demo(lines)
    if not lines or not lines[-1].get("verified"):
        fail(f"{how}: the client did not verify its bytes", done)
    return lines[-1]


def report_of_demo(lines):
    measurements = [line for line in lines if "direction" in line]
    copies = 1 + 3  # one before the timed ones
    copied = {direction: sum(copies * m["size_bytes"] for m in measurements
                             if m["direction"] == direction and m["size_bytes"] >= 16 << 20)
              for direction in ("h2d", "d2h")}
    return {"verified": all(m["verified"] for m in measurements) and len(measurements) == 12,
            "copied": copied}


def statistics_of(done):
    for line in done.stderr.splitlines():
        if line.startswith('{"braid":'):
            return json.loads(line)["braid"]
    return fail("braid printed no statistics", done)


def accelerated_bytes(statistics):
    return sum(reasons.get("accelerated", {}).get("bytes", 0)
               for reasons in statistics["entry_points"].values())


def check_accelerated(statistics, copied):
    wanted = sum(copied.values())
    if not wanted:
        fail("the client copied nothing large")
    if accelerated_bytes(statistics) < wanted:
        fail(f"{wanted} bytes should be accelerated, {accelerated_bytes(statistics)} were: "
             f"{json.dumps(statistics['entry_points'])}")
    for direction, size_bytes in copied.items():
        paths = [path for path in statistics["paths"]
                 if path["direction"] == direction and path["bytes"]]
        if sum(path["bytes"] for path in paths) < size_bytes:
            fail(f"the paths account for less than {size_bytes} bytes {direction}: {paths}")
        if len({path["via"] for path in paths}) < 2:
            fail(f"{direction}: everything went over one path: {paths}")


def main(client, source, build):
    source, build = pathlib.Path(source), pathlib.Path(build)
    command, extra = command_of(client, source, build)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    environment = {**clean, **extra}

    emulated = {**environment, "LD_LIBRARY_PATH": str(build / "lib/braid/emulator"),
                "BRAID_SERVER": str(build / "share" / "braid" / "profiles" / f"{SERVER}.json")}
    native = report_of(run(command, emulated), "natively")

    done = run([str(build / "bin" / "braid"), "run", "--server", SERVER, "--opening", "wait",
                "--stats", "json", "--", *command], environment)
    braided = report_of(done, "under braid")
    if not native["verified"] or not braided["verified"]:
        fail("wrong bytes", done)
    if native["copied"] != braided["copied"]:
        fail(f"the client did other work under braid: {native} and {braided}")
    check_accelerated(statistics_of(done), braided["copied"])
    print(f"{client}: {braided['copied']} bytes right natively and under braid")


if __name__ == "__main__":
    main(*sys.argv[1:])
