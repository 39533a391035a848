#!/usr/bin/env python3
"""What is compared of a program whose output may differ from run to run natively (support/repeated.py)."""
import unittest

from support.repeated import NativeRuns

SAME = "ids 1\nlogits 2\n"


class Repeated(unittest.TestCase):
    def test_every_line_counts_where_all_are_the_same_natively(self):
        native = NativeRuns(SAME, SAME)
        self.assertEqual(native.why_not_comparable(), "")
        self.assertEqual(native.difference(SAME), "")
        self.assertEqual(native.difference("ids 1\nlogits 3\n"), "'logits 3', natively 'logits 2'")
        self.assertIn("1 lines, not 2", native.difference("ids 1\n"))
        self.assertIn("3 lines, not 2", native.difference(SAME + "more\n"))

    def test_of_lines_that_vary_natively_the_others_are_compared(self):
        native = NativeRuns(SAME, "ids 1\nlogits 7\n")
        self.assertEqual(native.why_not_comparable(),
                         "natively 1 of 2 lines differ from run to run (logits 2)")
        self.assertEqual(native.difference("ids 1\nlogits 9\n"), "")
        self.assertEqual(native.difference("ids 4\nlogits 2\n"), "'ids 4', natively 'ids 1'")

    def test_where_even_the_number_of_lines_varies_nothing_is_compared(self):
        native = NativeRuns(SAME, "ids 1\n")
        self.assertIn("2 of 2 lines", native.why_not_comparable())
        self.assertEqual(native.difference("anything\n"), "")


if __name__ == "__main__":
    unittest.main()
