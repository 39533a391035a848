#!/usr/bin/env python3
"""scripts/test must count what ctest really reports: passes, failures, skips, missing programs."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "test"


class SummaryTest(unittest.TestCase):
    def run_tests(self, cmake_lines, *options):
        """(exit code, last line, everything printed) for a project with these tests."""
        with tempfile.TemporaryDirectory() as folder:
            tests = pathlib.Path(folder) / "CTestTestfile.cmake"
            tests.write_text("\n".join(cmake_lines) + "\n", encoding="utf-8")
            done = subprocess.run([sys.executable, str(SCRIPT), folder, *options],
                                  capture_output=True, text=True, check=False)
            kept = (pathlib.Path(folder) / "test-summary.txt").read_text(encoding="utf-8")
        self.assertEqual(kept.strip(), done.stdout.splitlines()[-1])
        return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_all_pass(self):
        code, last, _ = self.run_tests(['add_test(a "true")', 'add_test(b "true")'])
        self.assertEqual((code, last), (0, "2 passed, 0 failed"))

    def test_long_tests_run_apart(self):
        tests = ['add_test(a "true")', 'add_test(b "true")', 'add_test(c "true")',
                 'set_tests_properties(b PROPERTIES LABELS long)']
        self.assertEqual(self.run_tests(tests)[:2], (0, "2 passed, 0 failed"))
        self.assertEqual(self.run_tests(tests, "--long")[:2], (0, "1 passed, 0 failed"))

    def test_a_failure(self):
        code, last, output = self.run_tests(['add_test(a "true")', 'add_test(b "false")'])
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("failed: b", output)

    def test_a_failure_says_why(self):
        said = r"printf '[ RUN ] X\\n/a/b/c_test.cpp:7: Failure\\nValue of: it\\n  Actual: 2\\n\\nmore\\n1 FAILED TEST\\n'; exit 1"
        _, _, output = self.run_tests([f'add_test(a "sh" "-c" "{said}")'])
        self.assertIn("failed: a: c_test.cpp:7: Value of: it Actual: 2\n", output)

    def test_a_skip_says_why(self):
        code, last, output = self.run_tests([
            'add_test(a "true")', 'add_test(b "sh" "-c" "echo skipped: no client; exit 77")',
            'set_tests_properties(b PROPERTIES SKIP_RETURN_CODE 77)'])
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped: b: no client", output)

    def test_a_missing_program_is_a_failure(self):
        code, last, _ = self.run_tests(['add_test(a "true")', 'add_test(b "no-such-program")'])
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))

    def test_a_crash_and_a_timeout_are_failures(self):
        code, last, _ = self.run_tests([
            'add_test(a "sh" "-c" "kill -SEGV $$")', 'add_test(b "sleep" "5")', 'add_test(c "true")',
            'set_tests_properties(b PROPERTIES TIMEOUT 1)'])
        self.assertEqual((code, last), (1, "1 passed, 2 failed"))

    def test_no_tests_and_only_skips_are_failures(self):
        self.assertEqual(self.run_tests([""])[:2], (1, "0 passed, 0 failed"))
        self.assertEqual(self.run_tests([
            'add_test(a "sh" "-c" "exit 77")',
            'set_tests_properties(a PROPERTIES SKIP_RETURN_CODE 77)'])[:2],
            (1, "0 passed, 0 failed, 1 skipped"))


if __name__ == "__main__":
    unittest.main()
