#!/usr/bin/env python3
"""The rows of bench/transfer see what goes wrong: a late dip, wrong bytes, urgent reads that wait.

  rows_test.py BENCH-FOLDER LIBRARY
"""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
BENCH, os.environ["BRAID_TRANSFER_LIBRARY"] = sys.argv[1:3]
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.path.insert(0, BENCH)
import loop  # noqa: E402
import real_rows  # noqa: E402
import timeline  # noqa: E402


def line_of(gbps):
    """One way that carries so much in each 10 ms."""
    samples, bytes_ = [[0.0, [0]]], 0.0
    for i, one in enumerate(gbps):
        bytes_ += one * 1e9 * 0.01
        samples.append([(i + 1) * 0.01, [bytes_]])
    return timeline.Timeline(samples)


def a_late_dip_is_seen():
    steady = line_of([1.0] * 100)
    assert steady.reaches(0.9, 0, 1) == 0
    healed = line_of([0.0] * 5 + [1.0] * 95).reaches(0.9, 0, 1)
    assert 0.04 <= healed <= 0.06, healed
    dips = line_of([1.0] * 60 + [0.0] * 5 + [1.0] * 35).reaches(0.9, 0, 1)
    assert 0.63 <= dips <= 0.66, dips
    assert line_of([1.0] * 90 + [0.0] * 10).reaches(0.9, 0, 1) is None


def a_return_that_dips_falls_short_and_says_what_the_host_does_without_a_fault():
    """Two seconds without a fault, then two returns, of a second each."""
    def row_of(quiet, *after):
        line = line_of(quiet + [one for rates in after for one in rates])
        return real_rows.returns(Row, line, 1.0, 0, [2, 3])

    whole, dip = [1.0] * 100, [1.0] * 70 + [0.5] * 3 + [1.0] * 27
    soon, late = ([0.75] * count + [1.0] * (100 - count) for count in (10, 60))
    assert row_of(whole * 2, soon, soon).is_met
    assert not row_of(whole * 2, soon, late).is_met
    assert not row_of(dip * 2, soon, dip).is_met
    assert "4 of 4 half seconds" in row_of(whole * 2, soon, dip).words
    assert "2 of 4 half seconds" in row_of(dip * 2, soon, dip).words


class Row:
    def __init__(self, name, what, figure, bar, is_least, detail=""):
        self.is_met = figure >= bar if is_least else figure <= bar
        self.words = f"{name} {what} {detail}"


def what_is_wrong_falls_short():
    good = {"failed": 0, "is_right": True, "requests": 5}
    assert real_rows.ended_well(Row, "A3", good, good).is_met
    wrong = real_rows.ended_well(Row, "A3", good, dict(good, is_right=False))
    assert not wrong.is_met and "WRONG BYTES" in wrong.words, wrong.words
    assert not real_rows.ended_well(Row, "A4", dict(good, failed=1), good).is_met


def urgent_reads_count_from_when_they_are_due():
    """The target stands still for a second of three: many reads are late, and not one. On a busy machine it
    may stand still when they are over."""
    assert any(many_reads_are_late() for _ in range(5))


def many_reads_are_late():
    address = ["--addresses", loop.HOST, "--providers", "tcp;ofi_rxm"]
    with real_rows.streaming(address, address, "--threads", 0, "--urgent-every-ms", 10, "--seconds", 3) as (me, it):
        time.sleep(1.2)
        os.kill(it.process.pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(it.process.pid, signal.SIGCONT)
        said = me.hear()
    assert real_rows.well(said), said
    assert said["urgent_lag_p50_us"] >= 0, said
    return said["urgent_p99_us"] > 200_000


def main():
    a_late_dip_is_seen()
    a_return_that_dips_falls_short_and_says_what_the_host_does_without_a_fault()
    what_is_wrong_falls_short()
    urgent_reads_count_from_when_they_are_due()
    print("rows see what goes wrong")


if __name__ == "__main__":
    main()
