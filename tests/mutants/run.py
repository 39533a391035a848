#!/usr/bin/env python3
"""Breaks the fabric, one patch of this folder at a time, and shows that fabric_sim notices, or where
memory of GPUs is concerned the tests on the emulated server.

  run.py BUILD [--seeds N] [--only NAME ...]

Each patch begins with a line that says what it breaks. The broken file alone is compiled, and
linked in front of the libraries of the build folder. Exit code 1 and a list if nothing was found
wrong with one (by fabric_sim: within N seeds, 1,000 by default). A
patch whose first line ends with "[FILTER]" is for those tests of fabric_peers_test instead.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# In the order in which the linker needs them.
LIBRARIES = ("world", "sim", "", "simulation", "base")


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, **more)


def archives(build):
    names = {"world": "braid_fabric_world", "sim": "braid_fabric_sim", "": "braid_fabric",
             "simulation": "braid_simulation", "base": "braid_base"}
    return [build / "archive" / f"lib{names[library]}.a" for library in LIBRARIES]


# Folders of the fabric that call the driver, and the tests that are to notice.
GPU_TESTS = {"staged": "WarmTest.*:StagedTest.*:*HeldDriverTest.*/simulated*:*/simulated_gpu_to_gpu",
             "local": "*HeldDriverTest.*/local*:*ContractTest.*/local_*_to_shared"}
GPU_LIBRARIES = ("fabric_gpu_wires", "fabric_every_wire", "fake_providers", "fabric_staged", "fabric_local",
                 "fabric_gpu", "fabric_ofi", "fabric_sim", "fabric", "test_server", "multipath",
                 "cuda", "topology_model", "simulation", "base")


def cached(build, name):
    """What CMake has found under this name."""
    text = (build / "CMakeCache.txt").read_text()
    return re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE).group(1)


def break_gpu_memory(broken, folder, build, tests):
    """As break_and_look, for a file that is already broken."""
    objects = [build / f"tests/fabric/CMakeFiles/fabric_{test}.dir/{source}.cpp.o"
               for test, source in (("staged_test", "staged_test"),
                                    ("gpu_contract_test", "contract_test"))]
    mutant = folder / "mutant"
    built = run(os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-I", ROOT / "src", "-I",
                ROOT / "include", "-isystem", cached(build, "BRAID_CUDA_INCLUDE"), broken, *objects,
                "-Wl,--start-group", *[build / "archive" / f"libbraid_{name}.a"
                                       for name in GPU_LIBRARIES], "-Wl,--end-group",
                "-l:libsodium.a", "-lgtest_main", "-lgtest", "-lpthread", "-ldl", "-o", mutant)
    if built.returncode:
        return f"does not compile: {built.stderr}", False
    try:
        looked = run(mutant, f"--gtest_filter={tests}", "--gtest_fail_fast", timeout=120)
    except subprocess.TimeoutExpired:
        return "hangs", True
    found = re.search(r"^\[  FAILED  \] ([^\s,]+)", looked.stdout, re.MULTILINE)
    if found:
        return found.group(1), True
    if looked.returncode < 0:
        return f"ends on signal {-looked.returncode}", True
    return f"nothing wrong in {tests}", False


def break_and_look(patch, build, seeds):
    """What was said of this mutant, and whether it failed as it should."""
    path = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE).group(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        broken = folder / pathlib.Path(path).name
        patched = run("patch", "--quiet", "-o", broken, ROOT / path, patch)
        if patched.returncode:
            return f"the patch does not fit {path}: {patched.stdout}{patched.stderr}", False
        room = pathlib.Path(path).parent.name
        if room in GPU_TESTS:
            return break_gpu_memory(broken, folder, build, GPU_TESTS[room])
        mutant = folder / "mutant"
        test = re.search(r"^[^\n]*\[(.*)\]\n", patch.read_text())
        sources = [ROOT / "tests/fabric" / name for name in
                   (("peers_test.cpp", "lies_test.cpp") if test else ("fabric_sim.cpp",))]
        built = run(os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-I", ROOT / "src", "-I",
                    ROOT / "include", "-I", ROOT / "tests", broken, *sources, *archives(build),
                    "-l:libsodium.a", *(("-lgtest_main", "-lgtest") if test else ()), "-lpthread",
                    "-o", mutant)
        if built.returncode:
            return f"does not compile: {built.stderr}", False
        try:
            looked = run(mutant, *((f"--gtest_filter={test.group(1)}",) if test else
                                   ("--seeds", seeds)), timeout=120)
        except subprocess.TimeoutExpired:
            return "hangs the simulator itself", True
        found = re.search(r"^(?:failed:|\[  FAILED  \]) (.*)$", looked.stdout, re.MULTILINE)
        if found:
            return found.group(1), True
        if looked.returncode < 0:
            return f"ends on signal {-looked.returncode}", True
        return f"nothing wrong in {test.group(1) if test else f'{seeds} seeds'}", False


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", nargs="*", dest="names", metavar="NAME")
    options = parser.parse_args(arguments)
    patches = [patch for patch in sorted(FOLDER.glob("*.patch"))
               if not options.names or patch.stem in options.names]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(
            lambda patch: break_and_look(patch, options.build.resolve(), options.seeds), patches))
    for patch, (said, is_caught) in zip(patches, outcomes):
        print(f"{'caught' if is_caught else 'MISSED'}  {patch.stem}: {said}")
    missed = sum(not is_caught for _, is_caught in outcomes)
    print(f"{len(patches) - missed} of {len(patches)} caught")
    return 1 if missed or not patches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
