#!/usr/bin/env python3
"""bench/kv/run with programs that say nothing, or not what is required: no row is met, and the exit code is 1.

  bench_run_test.py SOURCE-FOLDER
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(sys.argv.pop(1)) / "bench" / "kv" / "run"
ROTATION, DECIDE, FAULTS, BRAID = "bin/rotation", "bin/serving_decide", "tests/kv_rotation_test", "bin/braid"


def claims(verdict):
    """`braid simulate serving` that has one claim of this verdict."""
    claim = {"words": "w", "verdict": verdict, "figures": "f", "difference": 0.1, "half_width": 0.2, "margin": 0}
    return f'''import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(folder / "figure-pcie.json").write_text(json.dumps({{"claims": [{claim!r}]}}))'''


def tests(count, failures):
    return f'''import json, sys
file, = [word.split("json:")[1] for word in sys.argv if "json:" in word]
open(file, "w").write(json.dumps({{"tests": {count}, "failures": {failures}}}))'''


def rotation(outcome, **record):
    """`rotation` on a server of which braid says this, that measured this."""
    return f"print({json.dumps(json.dumps({'what': 'server', 'gpus': 1, 'braid': outcome}))})\n" \
           f"print({json.dumps(json.dumps(record))})"


class BenchRun(unittest.TestCase):
    def run_row(self, row, place, program):
        """(exit code, verdicts)"""
        with tempfile.TemporaryDirectory() as folder:
            path, record = pathlib.Path(folder) / place, pathlib.Path(folder) / "rows.json"
            path.parent.mkdir(parents=True)
            path.write_text(f"#!{sys.executable}\n{program}\n", encoding="utf-8")
            path.chmod(0o755)
            done = subprocess.run([str(RUN), "--build", folder, "--json", str(record), row], capture_output=True,
                                  check=False)
            return done.returncode, {one["verdict"] for one in json.loads(record.read_text(encoding="utf-8"))}

    def test_decisions(self):
        self.assertEqual(self.run_row("decide", DECIDE, "print('braid  17.3 us')"), (0, {"met"}))
        self.assertEqual(self.run_row("decide", DECIDE, "print('braid  51.0 us')"), (1, {"SHORT"}))
        self.assertEqual(self.run_row("decide", DECIDE, "print('braid: 17.3 microseconds')"), (1, {"FAILED"}))

    def test_calls(self):
        def call(**us):
            return {"what": "call", "blocks": 2400, "moves": "up", "bookkeeping_submit_us": [50],
                    "native_submit_us": [1000], **us}
        one_link = rotation("no_relay", **call(kernel_submit_us=[150], braid_submit_us=[1000]))
        self.assertEqual(self.run_row("call", ROTATION, one_link), (0, {"waived", "met"}))
        every_link = rotation("accelerated", **call(kernel_submit_us=[301], braid_submit_us=[150],
                                                    sparing_submit_us=[900]))
        self.assertEqual(self.run_row("call", ROTATION, every_link), (1, {"met", "SHORT", "seen"}))

    def test_kernels_beside(self):
        def beside(**us_by_gb):
            return rotation("accelerated", what="beside", native_slow_down=[1.05], native_us_by_gb=[800],
                            braid_us_by_gb=[1200], kernel_us_by_gb=[1200], **us_by_gb)
        self.assertEqual(self.run_row("beside", ROTATION, beside(sparing_us_by_gb=[1200])), (0, {"met"}))
        self.assertEqual(self.run_row("beside", ROTATION, beside(sparing_us_by_gb=[1201])), (1, {"met", "SHORT"}))

    def test_methods(self):
        seen = {"down_gbps": [1], "up_gbps": [1], "both_gbps": [2], "both_s": [0.1]}
        methods = dict.fromkeys(("naive", "ms", "ms_mk", "duplex"), seen)
        record = rotation("no_relay", what="table_1", bytes=2**30, **methods)
        self.assertEqual(self.run_row("table_1", ROTATION, record), (0, {"seen", "waived"}))

    def test_faults(self):
        self.assertEqual(self.run_row("faults", FAULTS, tests(3, 0)), (0, {"met"}))
        self.assertEqual(self.run_row("faults", FAULTS, tests(3, 1)), (1, {"SHORT"}))
        self.assertEqual(self.run_row("faults", FAULTS, tests(0, 0)), (1, {"FAILED"}))

    def test_claims(self):
        self.assertEqual(self.run_row("simulated", BRAID, claims("appears")), (0, {"met"}))
        self.assertEqual(self.run_row("simulated", BRAID, claims("**does not appear**")), (1, {"SHORT"}))
        self.assertEqual(self.run_row("simulated", BRAID, claims("cannot be told")), (1, {"unclear"}))
        none = "\nfolder.joinpath('figure-pcie.json').write_text(json.dumps({'claims': []}))"
        self.assertEqual(self.run_row("simulated", BRAID, claims("appears") + none), (1, {"FAILED"}))


if __name__ == "__main__":
    unittest.main()
