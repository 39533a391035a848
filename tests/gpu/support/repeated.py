"""What a program prints natively in every run, and what differs from run to run."""


class NativeRuns:
    """What two native runs of one program printed."""

    def __init__(self, first, second):
        self.lines, again = first.splitlines(), second.splitlines()
        if len(again) != len(self.lines):  # which line is which, nobody knows
            self.varying = set(range(len(self.lines)))
        else:
            self.varying = {number for number, line in enumerate(self.lines) if line != again[number]}

    def why_not_comparable(self):
        """Empty if both runs printed the same."""
        if not self.varying:
            return ""
        named = "; ".join(self.lines[number] for number in sorted(self.varying)[:3])
        return f"natively {len(self.varying)} of {len(self.lines)} lines differ from run to run ({named})"

    def difference(self, output):
        """The first line that is the same in both native runs, and another one here; empty if there is none."""
        if len(self.varying) == len(self.lines):
            return ""
        lines = output.splitlines()
        if len(lines) != len(self.lines):
            return f"{len(lines)} lines, not {len(self.lines)}:\n{output}"
        for number, line in enumerate(lines):
            if number not in self.varying and line != self.lines[number]:
                return f"'{line}', natively '{self.lines[number]}'"
        return ""
