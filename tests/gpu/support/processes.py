"""Running a program that may hang, with children that may too."""
import os
import signal
import subprocess


class DidNotEnd(Exception):
    """The program and all it started were killed; carries what they had printed."""


def run_group(words, environment, timeout_s, folder=None):
    """(exit code, stdout, stderr) of a program, or DidNotEnd."""
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True, cwd=folder) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            raise DidNotEnd(f"did not end in {timeout_s} s\n{output}{errors}") from None
    return process.returncode, output, errors
