#!/usr/bin/env python3
"""`braid fabric doctor` in network namespaces, whose only interface is the loopback one.

    doctor_test.py build/bin/braid
"""

import pathlib
import subprocess
import sys
import unittest

BRAID = pathlib.Path(sys.argv.pop(1)).resolve()


class Doctor(unittest.TestCase):
    def doctor(self, address, more=""):
        """What is said of this address, by lines. `more`: an address that the interface has too."""
        apart = ["unshare", "--user", "--net", "--map-root-user", "sh", "-e", "-c"]
        begin = "ip link set lo up; " + (f"ip addr add {more}/32 dev lo; " if more else "")
        if subprocess.run(apart + [begin], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user may make no such namespace")
        done = subprocess.run(apart + [begin + f"{BRAID} fabric doctor --address {address}"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        return {words[0]: words[1] for words in (line.split(maxsplit=1) for line in done.stdout.splitlines())
                if len(words) == 2}

    def test_of_an_address_that_is_not_here_only_that_is_said(self):
        said = self.doctor("192.0.2.1")
        self.assertIn("'192.0.2.1' is no address of this host", said["address"])
        self.assertNotIn("endpoints", said)
        self.assertNotIn("secret", said)

    def test_an_address_that_others_reach_wants_a_secret(self):
        said = self.doctor("192.0.2.1", more="192.0.2.1")
        self.assertNotIn("address", said)
        self.assertIn("on a rail at 192.0.2.1", said["endpoints"])
        self.assertIn("1 rail,", said["endpoints"])
        self.assertIn("no: other hosts can reach 192.0.2.1, and there is no secret. "
                      "Let BRAID_FABRIC_SECRET_FILE name a file", said["secret"])
        self.assertIn("Commands that open engines have --secret-file", said["secret"])


unittest.main(verbosity=2)
