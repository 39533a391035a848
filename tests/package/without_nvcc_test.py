#!/usr/bin/env python3
"""braid builds without nvcc, says so once, and says where it matters what such a build is not for.

  without_nvcc_test.py SOURCE-FOLDER BUILD-FOLDER COMPLETE-BUILD-FOLDER CUDA-INCLUDE
"""
import os
import pathlib
import subprocess
import sys


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def main(source, build, complete, include):
    build = pathlib.Path(build)
    configured = run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DBRAID_BUILD_TESTS=OFF",
                     "-DBRAID_NVCC=OFF", f"-DBRAID_CUDA_INCLUDE={include}")
    assert configured.returncode == 0, configured.stderr
    assert configured.stderr.count("no kernels for GPUs") == 1, configured.stderr
    built = run("cmake", "--build", build, "--target", "braid_demo")
    assert built.returncode == 0, built.stdout + built.stderr
    assert not list(build.rglob("libbraid.so*")), "the demo needs no libbraid.so"
    braid = build / "bin" / "braid"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}

    emulated = run(braid, "doctor", "--server", "h20x8", env=clean)
    assert emulated.returncode == 0 and "FAIL" not in emulated.stdout, emulated.stdout

    # The emulated driver where the machine's is looked for: to braid these are GPUs.
    profile = pathlib.Path(complete) / "share/braid/profiles/h20x8.json"
    real = run(braid, "doctor", env={**clean, "LD_LIBRARY_PATH": str(build / "lib/braid/emulator"),
                                     "BRAID_SERVER": str(profile)})
    assert real.returncode == 1, real.stdout
    assert "FAIL kernels" in real.stdout and "make build" in real.stdout, real.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
