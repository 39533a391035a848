"""How a script that tests many cases tells what became of them."""
import collections

SKIPPED = 77  # a script's exit code when nothing could run


class Verdicts:
    """Counts cases that passed, failed or were skipped."""

    def __init__(self):
        self.counts = collections.Counter()

    def add(self, kind, name, said=""):
        """Counts a case as passed, failed or skipped, and prints its line."""
        self.counts[kind] += 1
        print(f"{kind}: {name}" + (f": {said}" if said else ""), flush=True)

    def end(self):
        """Prints the last line, which scripts/gpu-test reads. Returns the exit code."""
        print(", ".join(f"{self.counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")))
        if self.counts["failed"]:
            return 1
        return 0 if self.counts["passed"] else SKIPPED
