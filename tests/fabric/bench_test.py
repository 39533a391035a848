#!/usr/bin/env python3
"""`braid fabric bench --against`, with a peer that copies (copy_peer.py) in the place of others'
engines: what it measures, and what becomes of a peer that lies, ends, or is not there.

    bench_test.py build/bin/braid
"""

import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

BRAID = pathlib.Path(sys.argv.pop(1)).resolve()
PEERS = BRAID.parent.parent / "share" / "braid" / "fabric_peers"
COPY_PEER = pathlib.Path(__file__).resolve().parent / "copy_peer.py"
LATE_SECONDS = 0.3  # of copy_peer.py
FIELDS = {"provider", "pattern", "size_bytes", "rails", "braid_gbps", "against", "against_gbps",
          "ratio", "verified"}


class Run:
    """One run of the command."""

    def __init__(self, *words, fault="", stderr=subprocess.PIPE, turns=1):
        environment = dict(os.environ, BRAID_PEER_FOLDER=str(PEERS), BRAID_COPY_PEER=fault)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "records.json"
            done = subprocess.run(
                [BRAID, "fabric", "bench", "--turns", str(turns), "--turn-ms", "20", "--json", file,
                 "--python", sys.executable, *words],
                env=environment, text=True, stdout=subprocess.PIPE, stderr=stderr, check=False,
                timeout=300)
            self.records = json.loads(file.read_text()) if file.exists() else []
        self.exit_code, self.output, self.errors = done.returncode, done.stdout, done.stderr

    def against(self, name, provider=None):
        return [record for record in self.records
                if record["against"] == name and provider in (None, record["provider"])]


def race(*words, against=f"plain,{COPY_PEER}", provider="net", size="16K", **options):
    return Run("--provider", provider, "--against", against, "--sizes", size, *words, **options)


class Providers(unittest.TestCase):
    def test_one_that_does_not_work_here_is_an_error_that_says_why(self):
        run = Run("--provider", "verbs;ofi_rxm", "--sizes", "64")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("verbs;ofi_rxm", run.errors)
        self.assertIn("braid fabric doctor", run.errors)
        self.assertNotIn("Backtrace", run.errors + run.output)


def run_apart(test, namespaces, prepare, command):
    """In namespaces of its own, which the shell command `prepare` makes ready."""
    apart = ["unshare", "--user", *namespaces, "--map-root-user", "sh", "-e", "-c"]
    if subprocess.run(apart + [prepare], capture_output=True, check=False).returncode != 0:
        test.skipTest("this user may make no such namespace")
    return subprocess.run(apart + [f"{prepare}; {command}"], text=True, capture_output=True, check=False, timeout=300)


class Addresses(unittest.TestCase):
    def test_one_that_this_host_has_not_is_named_with_those_it_has(self):
        """Where the loopback interface has one address."""
        one = "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip addr add 127.0.0.1/32 dev lo"
        bench = f"{BRAID} fabric bench --provider 'tcp;ofi_rxm' --rails 2 --sizes 64 --turns 1"
        done = run_apart(self, ["--net"], one, bench)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("'127.0.0.2' is no address of this host. Name an address that it has: lo has 127.0.0.1",
                      done.stderr)


class Ends(unittest.TestCase):
    def test_nothing_is_left_in_shared_memory(self):
        """In a /dev/shm of its own, where no other process leaves anything."""
        bench = f"{BRAID} fabric bench --provider shm --pattern scatter --against plain,engine --sizes 64 --turns 1"
        done = run_apart(self, ["--mount"], "mount -t tmpfs none /dev/shm", bench + " > /dev/null; ls /dev/shm")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class LimitedRails(unittest.TestCase):
    def test_the_record_names_its_sizes_also_where_it_is_waived(self):
        record = Run("--limited-rails").records[0]
        self.assertEqual((record["pattern"], record["size_bytes"], record["rails"]),
                         ("single", 8 << 20, 4))


class Against(unittest.TestCase):
    def test_all_take_turns_and_all_bytes_are_verified(self):
        run = race(size="16K,1M")
        self.assertEqual(run.exit_code, 0, run.errors)
        self.assertEqual([(record["against"], record["size_bytes"]) for record in run.records],
                         [("plain", 16384), ("copy_peer", 16384),
                          ("plain", 1 << 20), ("copy_peer", 1 << 20)])
        for record in run.records:
            self.assertLessEqual(FIELDS, set(record))
            self.assertTrue(record["verified"])
            self.assertAlmostEqual(record["ratio"],
                                   record["braid_gbps"] / record["against_gbps"], 3)

    def test_the_median_of_two_turns_lies_between_them(self):
        record = race(against="plain", turns=2).against("plain")[0]
        self.assertAlmostEqual(record["ratio"], (record["ratio_least"] + record["ratio_most"]) / 2)

    def test_pages(self):
        run = race("--pattern", "paged", provider="shm", size="8K")
        self.assertEqual(run.exit_code, 0, run.errors)
        self.assertEqual([record["against"] for record in run.records],
                         ["plain", "plain_several", "copy_peer"])
        self.assertTrue(all(record["verified"] for record in run.records))

    def test_scatters_and_barriers_of_a_group(self):
        for pattern, size_bytes in (("scatter", 16384), ("barrier", 0)):
            run = race("--pattern", pattern, against="plain,engine")
            self.assertEqual(run.exit_code, 0, run.errors)
            record = run.against("plain")[0]
            self.assertEqual((record["pattern"], record["size_bytes"], record["verified"]),
                             (pattern, size_bytes, True))
            self.assertGreater(record["braid_per_s"], 0)
            self.assertTrue(run.against("engine")[0]["verified"])

    def test_several_rails(self):
        run = race("--rails", "2", against="plain,engine")
        self.assertEqual(run.exit_code, 0, run.errors)
        self.assertEqual(run.records[0]["rails"], 2)
        self.assertTrue(run.records[0]["verified"])

    def test_a_wrong_byte_is_found(self):
        run = race(fault="corrupt")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("WRONG BYTES", run.output)
        self.assertFalse(run.against("copy_peer")[0]["verified"])
        self.assertTrue(run.against("plain")[0]["verified"])

    def test_who_says_too_early_that_it_is_done_is_timed_until_it_is(self):
        run = race(fault="early")
        self.assertEqual(run.exit_code, 0, run.errors)
        record = run.against("copy_peer")[0]
        self.assertTrue(record["verified"])
        largest_load_bytes = 128 << 20
        self.assertLess(record["against_gbps"], largest_load_bytes / LATE_SECONDS / 1e9)

    def test_a_peer_that_ends_is_named_and_the_others_go_on(self):
        run = race(fault="die")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("copy_peer's writer has ended", run.output)
        self.assertIn("copy_peer's writer has ended", run.against("copy_peer")[0]["waived"])
        self.assertGreater(run.against("plain")[0]["ratio"], 0)

    def test_what_is_not_installed_is_said_with_the_remedy(self):
        run = race(fault="missing")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("--skip-missing", run.errors)
        self.assertIn("apt-get install copier", run.output)
        self.assertIn(f"pip install --no-deps -r {PEERS}/requirements.txt", run.output)
        record = run.against("copy_peer")[0]
        self.assertIn("not installed", record["waived"])
        self.assertIsNone(record["ratio"])
        self.assertEqual(race("--skip-missing", fault="missing").exit_code, 0)

    def test_a_peer_that_has_nothing_like_one_provider_races_over_the_others(self):
        run = race(provider="shm,net", fault="not_over_shm")
        self.assertEqual(run.exit_code, 0, run.errors)
        self.assertIn("waived", run.against("copy_peer", "shm")[0])
        self.assertGreater(run.against("copy_peer", "net")[0]["ratio"], 0)
        nowhere = race(provider="shm", fault="not_over_shm")
        self.assertEqual(nowhere.exit_code, 1)
        self.assertIn("nothing like", nowhere.errors)

    def test_what_a_library_prints_is_no_answer(self):
        run = race(fault="noise")
        self.assertEqual(run.exit_code, 0, run.output + run.errors)

    def test_a_name_that_nobody_has(self):
        run = race(against="plain,ucx")
        self.assertEqual(run.exit_code, 1)
        self.assertIn("'ucx'", run.errors)
        self.assertIn("nixl", run.errors)

    def test_progress_is_shown_on_a_terminal_only(self):
        ours, theirs = pty.openpty()
        run = race(against="plain", stderr=theirs)
        os.close(theirs)
        self.assertEqual(run.exit_code, 0)
        self.assertIn(b"net single 16K: turn 1 of 1", os.read(ours, 65536))
        self.assertEqual(race(against="plain").errors, "")


unittest.main(verbosity=2)
