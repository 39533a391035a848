#!/usr/bin/env python3
"""The tests of Mooncake's wheel for an initiator and a target, unchanged, on braid's door.

  wheel_tests.py FOLDER [--build FOLDER] [--circle N]

FOLDER has `transfer_engine_target.py` and `transfer_engine_initiator_test.py`: it is `mooncake-wheel/tests` of a
checkout of github.com/kvcache-ai/Mooncake. Nothing of it is kept here. Both processes run with python/door first on
PYTHONPATH, so that `mooncake.engine` is braid's. Exit code 1 if a test fails, 77 if the folder has no such tests.
"""
import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET, INITIATOR = "transfer_engine_target.py", "transfer_engine_initiator_test.py"
DOOR = "import mooncake.engine as door; print(door.TransferEngine.__module__)"
LIMIT_S = 600


def free_name():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment_of(options):
    return dict(os.environ, PYTHONPATH=str(ROOT / "python" / "door"), PYTHONUNBUFFERED="1",
                BRAID_TRANSFER_LIBRARY=os.environ.get("BRAID_TRANSFER_LIBRARY",
                                                      str(options.build.resolve() / "lib" / "libbraid_transfer.so")),
                TARGET_SERVER_NAME=free_name(), INITIATOR_SERVER_NAME=free_name(), PROTOCOL="tcp",
                MC_METADATA_SERVER="127.0.0.1:2379", CIRCLE=str(options.circle))


def run(options, folder):
    environment = environment_of(options)
    # A folder that is empty, for what Python leaves beside a program.
    with tempfile.TemporaryDirectory() as empty:
        environment["PYTHONPYCACHEPREFIX"] = empty
        module = subprocess.run([sys.executable, "-c", DOOR], env=environment, cwd=empty, capture_output=True,
                                text=True, check=True).stdout.strip()
        if module != "braid.mooncake_engine":
            raise RuntimeError(f"`mooncake.engine` is {module}, and not braid's")
        target = subprocess.Popen([sys.executable, str(folder / TARGET)], env=environment, cwd=empty, text=True,
                                  stdout=subprocess.PIPE)
        try:
            while "ready" not in (line := target.stdout.readline()):
                if not line:
                    raise RuntimeError("the target does not start")
            return subprocess.run([sys.executable, str(folder / INITIATOR), "-v"], env=environment, cwd=empty,
                                  timeout=LIMIT_S, check=False).returncode
        finally:
            target.kill()
            target.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--circle", type=int, default=1000, help="as the tests' CIRCLE")
    options = parser.parse_args()
    folder = options.folder.resolve()
    missing = [name for name in (TARGET, INITIATOR) if not (folder / name).exists()]
    if missing:
        print(f"{folder} has no {' and no '.join(missing)}", file=sys.stderr)
        return 77
    return 1 if run(options, folder) else 0


if __name__ == "__main__":
    sys.exit(main())
