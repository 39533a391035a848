#!/usr/bin/env python3
"""`braid tebench`: Mooncake's columns and flags, bytes that are compared, memory of a GPU.

  tebench_test.py BRAID FOLDER EMULATOR-FOLDER PROFILE
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

BRAID, FOLDER, EMULATOR, PROFILE = sys.argv[1:5]
FIGURES = pathlib.Path(FOLDER) / "tebench_test.json"
BRIEF = ["--total_buffer_size", "8M", "--duration", "0.3", "--warm_up", "0"]
BLOCK = ["--start_block_size", "64K", "--max_block_size", "64K"]
LOCAL = ["--address", "127.0.0.1"]
# As kvcache-ai/Mooncake, mooncake-transfer-engine/benchmark/utils.cpp, prints them: name and width.
COLUMNS = [("BlkSize (B)", 14), ("Batch", 8), ("BW (GB/s)", 14), ("Avg Inst GB/s", 18), ("Avg Lat (us)", 14),
           ("Avg Tx (us)", 14), ("P99 Tx (us)", 14), ("P999 Tx (us)", 14)]


def bench(*words, code=0, environment=None, before=None):
    """What it prints; and its rows, if it has ended well."""
    FIGURES.unlink(missing_ok=True)
    done = subprocess.run([BRAID, "tebench", *LOCAL, *map(str, words), "--json", str(FIGURES)], capture_output=True,
                          text=True, timeout=300, check=False, env=dict(os.environ, **(environment or {})), preexec_fn=before)
    assert done.returncode == code, f"{words}: {done}"
    return done, json.loads(FIGURES.read_text()) if code == 0 else None


@contextlib.contextmanager
def process(*words):
    """A target. Its name."""
    with subprocess.Popen([BRAID, *words, *LOCAL], stdout=subprocess.PIPE, text=True) as target:
        try:
            said = ""
            while not (found := re.search(r"braid://\S+", said)):
                line = target.stdout.readline()
                assert line, said
                said += line
            yield found.group()
        finally:
            target.kill()


def columns_are_mooncakes():
    done, rows = bench("--pair", *BRIEF, *BLOCK)
    head, line, row = done.stdout.splitlines()
    at = 0
    for (name, width), key in zip(COLUMNS, ("block_bytes", "batch", "gbps", "average_instant_gbps",
                                            "average_latency_us", "average_tx_us", "p99_tx_us", "p999_tx_us")):
        assert head[at:at + width].strip() == name, head
        assert abs(float(row[at:at + width]) - rows[0][key]) < 0.06, (name, row)
        at += width
    assert line == "-" * 160, line


def bytes_are_compared():
    done, rows = bench("--pair", *BRIEF, *BLOCK, "--start_num_threads", 2, "--max_num_threads", 2,
                       "--check_consistency", "--max_batch_size", 2)
    for row in rows:  # a write and a read for what is compared, and the last comparison of all rows
        batch_bytes = row["block_bytes"] * row["batch"]
        assert row["transfers"] > 0 and row["transfers"] % 2 == 0, row
        assert row["verified_bytes"] == (row["transfers"] // 2 + 1) * batch_bytes, row
    done, rows = bench("--pair", *BRIEF, "--pattern", "r1-w8a8")
    assert rows[0]["verified_bytes"] == 32 * (128 + 16) << 10, rows
    assert done


def wrong_bytes_are_found():
    with process("tebench", *BRIEF) as name:
        words = ["--target_seg_name", name, *BRIEF, *BLOCK, "--start_num_threads", 2, "--max_num_threads", 2]
        done, _ = bench(*words, "--op_type", "read_verify", code=1)
        assert "WRONG BYTES" in done.stderr and "run that first" in done.stderr, done
        bench(*words, "--op_type", "write_seed")
        _, rows = bench(*words, "--op_type", "read_verify")
        assert rows[0]["verified_bytes"] == rows[0]["transfers"] * (64 << 10), rows
        part = ["--target_offset", "4M", "--target_range_size", "1M"]
        bench(*words, *part)
        done, _ = bench(*words, "--target_offset", "8M", code=1)
        assert "--target_offset" in done.stderr, done


def a_target_of_its_own_has_the_seed():
    """Also behind the first 64 MiB, of which it is written in parts."""
    _, rows = bench("--pair", "--total_buffer_size", "80M", "--duration", "0.3", "--warm_up", "0", "--op_type",
                    "read_verify", "--start_block_size", "40M", "--max_block_size", "40M", "--start_batch_size", 2,
                    "--max_batch_size", 2)
    assert rows[0]["verified_bytes"] == rows[0]["transfers"] * (80 << 20) > 0, rows
    done, _ = bench("--pair", *BRIEF, "--op_type", "read_verify", "--pattern", "weights", code=1)
    assert "--op_type read_verify is for --pattern sweep" in done.stderr, done


def deadlines_and_urgency():
    done, rows = bench("--pair", *BRIEF, "--start_block_size", "1M", "--max_block_size", "1M", "--start_num_threads", 2,
                       "--max_num_threads", 2, "--deadline_us", 1, "--deadline_tight_threads", 1)
    assert rows[0]["late"] > 0 and rows[0]["transfers"] > 0, rows
    assert re.search(r"\[deadline-tight\] threads=1 deadline_us=1 operations=\d+ throughput=[\d.]+ GB/s late=\d+\n"
                     r"  \[deadline-loose\] threads=1 operations=\d+", done.stdout), done.stdout
    classes = [{"name": "kv", "threads": 1, "block_size": 4096, "batch_size": 1, "intent_type": "foreground_get",
                "slo_us": 1e9, "weight": 3, "deadline_us": 10_000_000},
               {"name": "weights", "threads": 2, "block_size": 1 << 20, "batch_size": 2, "slo_us": 0.001, "weight": 1,
                "intent_type": "weight_loading"}]
    _, rows = bench("--pair", *BRIEF, "--workload_classes_json", json.dumps(classes))
    assert [(row["what"], row["threads"], row["within_slo"]) for row in rows] == [("kv", 1, 1), ("weights", 2, 0)], rows
    assert [row["verified_bytes"] for row in rows] == [4096, 2 << 20], rows
    _, rows = bench("--pair", *BRIEF, *BLOCK, "--qos_classes", "fast:1:1000000:2,slow:2:1000000:1",
                    "--tent_intent_type", "foreground_get")
    assert [(row["what"], row["threads"]) for row in rows] == [("", 3), ("fast", 1), ("slow", 2)], rows
    assert rows[0]["transfers"] == rows[1]["transfers"] + rows[2]["transfers"], rows
    done, _ = bench("--pair", "--qos_classes", "fast", code=1)
    assert "name:threads:slo_us:weight" in done.stderr, done


def too_much_is_refused():
    """Also where a product of numbers would be 0."""
    many = [{"name": "kv", "threads": 1, "block_size": 2, "batch_size": 1 << 63, "intent_type": "unspec", "slo_us": 1,
             "weight": 1}]
    done, _ = bench("--pair", *BRIEF, "--workload_classes_json", json.dumps(many), code=1)
    assert "does not fit" in done.stderr, done
    if re.search(rb"__[at]san_init", pathlib.Path(BRAID).read_bytes()):
        return  # it reserves more than the limit below

    def leave_little_room():
        """For half of the threads, which have stacks of 1 GiB."""
        for limit, size in ((resource.RLIMIT_STACK, 1 << 30), (resource.RLIMIT_AS, 512 << 30)):
            resource.setrlimit(limit, (size, size))

    done, _ = bench("--pair", *BRIEF, "--start_num_threads", 1024, "--max_num_threads", 1024, "--max_block_size", 4096,
                    code=1, before=leave_little_room)
    assert re.search(r"thread \d+ of 1024 cannot be started", done.stderr), done


def notifications_are_taken():
    """More, on a machine that is not too busy, than wait at an owner that takes none: 1,024."""
    for words in (["tebench", *BRIEF], ["serve", "--memory", "8M"]):
        with process(*words) as name:
            _, rows = bench("--target_seg_name", name, "--total_buffer_size", "8M", "--duration", "2", "--warm_up", "0",
                            "--start_block_size", 64, "--max_block_size", 64, "--notifi")
            assert rows[0]["transfers"] > 0, rows


def other_flags():
    flags = ["--backend=tent", "--xport_type=rdma", "--target_gpu_id=-1", "--tent_transport_hint=rdma",
             "--deadline_bw_arbitration", "--metadata_type=p2p", "--rpc_server_port=0", "--qos_link_capacity_gbps=12.5"]
    done, _ = bench("--pair", *BRIEF, *BLOCK, *flags)
    said, names = done.stderr.rsplit(":", 1)
    assert said == "braid: these flags have no effect here", done.stderr
    assert sorted(names.split()) == sorted(flag.split("=")[0] for flag in flags), done.stderr
    done, _ = bench(*BRIEF, "--target_seg_name", "braid://127.0.0.1:1,braid://127.0.0.1:2", code=1)
    assert "--target_seg_name: name one target" in done.stderr, done
    done, _ = bench("--pair", *BRIEF, "--seg_type_mix", "dram,vram", code=1)
    assert "--seg_type" in done.stderr, done


def memory_of_a_gpu():
    without = {"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""}
    done, _ = bench("--pair", *BRIEF, *BLOCK, "--seg_type", "VRAM", code=1, environment=without)
    assert "CUDA driver" in done.stderr, done
    emulated = {"LD_LIBRARY_PATH": EMULATOR, "BRAID_SERVER": PROFILE}
    _, rows = bench("--pair", *BRIEF, *BLOCK, "--seg_type", "vram", "--local_gpu_id", 1, "--check_consistency",
                    environment=emulated)
    assert rows[0]["verified_bytes"] == (rows[0]["transfers"] // 2 + 1) * (64 << 10), rows


def main():
    columns_are_mooncakes()
    bytes_are_compared()
    wrong_bytes_are_found()
    a_target_of_its_own_has_the_seed()
    deadlines_and_urgency()
    too_much_is_refused()
    notifications_are_taken()
    other_flags()
    memory_of_a_gpu()
    print("tebench is right")


if __name__ == "__main__":
    main()
