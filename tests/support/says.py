#!/usr/bin/env python3
"""Runs a command, which must end with this exit code and say what the pattern finds. (With ctest's
PASS_REGULAR_EXPRESSION alone a command that crashes after its words passes.)

    says.py [--private-shm SIZE] CODE PATTERN COMMAND [ARGUMENT ...]

--private-shm: /dev/shm is one of this size, in a mount namespace of its own; 77 where this user may
not mount it.
"""
import re
import subprocess
import sys


def main():
    words = sys.argv[1:]
    if words[0] == "--private-shm":
        apart = ["unshare", "-m", "sh", "-c",
                 f'mount -t tmpfs -o size={words[1]} tmpfs /dev/shm && exec "$@"', "sh"]
        try:
            probe = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
        except OSError as error:
            sys.exit(skip(str(error)))
        if probe.returncode != 0:
            sys.exit(skip(probe.stderr))
        words = words[2:]
    else:
        apart = []
    code, pattern, *command = words
    done = subprocess.run([*apart, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    print(done.stdout, flush=True)
    if done.returncode != int(code):
        sys.exit(f"It has ended with {done.returncode}, and not with {code}")
    if not re.search(pattern, done.stdout, re.DOTALL):
        sys.exit(f"Nothing matches {pattern}")


def skip(why):
    print("waived:", why)
    return 77


if __name__ == "__main__":
    main()
