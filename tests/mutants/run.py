#!/usr/bin/env python3
"""Breaks the fabric, the scheduler of transfers or the KV caches, one patch of this folder at a time, and shows
that its tests notice.

  run.py BUILD [--seeds N] [--only NAME ...]

The first line of a patch says what it breaks, and in brackets, where it is not fabric_sim that is to
notice (of src/transfer: transfer_sim; of src/kv: kv_model and kv_rotation_test), which tests of fabric_peers_test, or of
another program: [PROGRAM TESTS]. Where memory of GPUs is concerned it is the tests on the emulated server.

BUILD/mutants holds a copy of the sources and a build of that copy, by the compiler and the launcher
of BUILD. Each patch is applied there, what it touches is built anew, and it is taken back. First
every command passes on the code as it is; then one that fails has met the mutant. Exit code 1
and a list if a mutant was not noticed, or a command fails without any.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]

# What is to notice a break in these folders of the fabric: (program, filter of its tests).
GPU_TESTS = {
    "staged": (("fabric_staged_test", "WarmTest.*:StagedTest.*:*HeldDriverTest.*/simulated*"),
               ("fabric_gpu_contract_test", "*/simulated_gpu_to_gpu")),
    "local": (("fabric_staged_test", "*HeldDriverTest.*/local*"),
              ("fabric_gpu_contract_test", "*ContractTest.*/local_*_to_shared"),
              ("fabric_gpu_contract_test", "*ContractTest.*/local_*_to_mapped")),
}
# And a break in src/kv: the model, then requests on the emulated server.
KV_COMMANDS = (("kv_model", "--operations", "20000000"), ("kv_rotation_test", "--gtest_fail_fast"))


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, **more)


class Mutant:
    def __init__(self, patch, seeds):
        self.name = patch.stem
        self.patch = patch
        text = patch.read_text()
        self.files = re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)
        tests = re.search(r"\A[^\n]*\[(.*)\]\n", text)
        room = pathlib.Path(self.files[0]).parent.name
        if tests:
            program, wanted = ("fabric_peers_test " + tests.group(1)).split()[-2:]
            self.commands = [(program, f"--gtest_filter={wanted}", "--gtest_fail_fast")]
        elif room == "kv":
            self.commands = list(KV_COMMANDS)
        elif room in GPU_TESTS:
            self.commands = [(program, f"--gtest_filter={wanted}", "--gtest_fail_fast")
                             for program, wanted in GPU_TESTS[room]]
        elif self.files[0].startswith("src/transfer/"):
            self.commands = [("transfer_sim", "--seeds", str(5 * seeds))]  # each is short
        else:
            self.commands = [("fabric_sim", "--seeds", str(seeds))]


class Build:
    """A copy of the sources, and what is built of it."""

    def __init__(self, beside):
        self.sources = beside / "mutants" / "sources"
        self.folder = beside / "mutants" / "build"
        self.cache = (beside / "CMakeCache.txt").read_text()
        self.took_s = {}  # by command, without a mutant
        self.before = {}  # files as they were, by name
        self.copy_sources()
        self.configure()

    def cached(self, name):
        found = re.search(rf"^{name}:\w+=(.*)$", self.cache, re.MULTILINE)
        return found.group(1) if found else ""

    def copy_sources(self):
        """Those that have changed, so that the others need not be built again."""
        wanted = set()
        for folder, folders, files in os.walk(ROOT):
            folders[:] = [name for name in folders if not name.startswith(("build", "."))]
            for name in files:
                path = (pathlib.Path(folder) / name).relative_to(ROOT)
                wanted.add(path)
                copy = self.sources / path
                if copy.exists() and copy.read_bytes() == (ROOT / path).read_bytes():
                    continue
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, copy)
                shutil.copymode(ROOT / path, copy)
        for copy in [path for path in self.sources.rglob("*") if path.is_file()]:
            if copy.relative_to(self.sources) not in wanted:
                copy.unlink()

    def configure(self):
        carried = [f"-D{name}={self.cached(name)}"
                   for name in ("CMAKE_CXX_COMPILER", "CMAKE_C_COMPILER",
                                "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER")]
        # A mutant may be code that a warning would name; tests are listed when they run.
        done = run("cmake", "-S", self.sources, "-B", self.folder, "-G", "Ninja", *carried,
                   "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
                   "-DCMAKE_CXX_FLAGS=-w", "-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST")
        if done.returncode:
            sys.exit(f"cannot configure {self.folder}: {done.stderr}")

    def make(self, programs):
        """What went wrong."""
        built = run("cmake", "--build", self.folder, "--target", *sorted(set(programs)))
        return built.stdout[-2000:] if built.returncode else ""

    def look(self, command):
        """What was found wrong, or nothing."""
        program, *words = command
        limit_s = max(60, 20 * self.took_s.get(command, 15))
        begin = time.monotonic()
        try:
            looked = run(self.folder / "tests" / program, *words, timeout=limit_s, cwd=self.folder)
        except subprocess.TimeoutExpired:
            return f"{program} hangs"
        self.took_s.setdefault(command, time.monotonic() - begin)
        found = re.search(r"^(?:failed:|\[  FAILED  \]) (.*)$", looked.stdout, re.MULTILINE)
        if found:
            return found.group(1)
        if looked.returncode:
            return f"{program} ends on {looked.returncode}: {looked.stderr.strip()[-200:]}"
        return ""

    def change(self, mutant):
        """What went wrong."""
        self.before = {file: (self.sources / file).read_bytes() for file in mutant.files}
        patched = run("patch", "--quiet", "--no-backup-if-mismatch", "--fuzz=0", "-p1", "-d",
                      self.sources, "-i", mutant.patch)
        return patched.stdout + patched.stderr if patched.returncode else ""

    def change_back(self):
        for file, content in self.before.items():
            (self.sources / file).write_bytes(content)
            (self.sources / (file + ".rej")).unlink(missing_ok=True)


def meet(build, mutant):
    """What was said of this mutant, and whether it was caught."""
    try:
        if wrong := build.change(mutant):
            return f"the patch does not fit: {wrong}", False
        if wrong := build.make(program for program, *_ in mutant.commands):
            return f"does not compile: {wrong}", False
        for command in mutant.commands:
            if found := build.look(command):
                return found, True
        return "nothing wrong in " + ", ".join(" ".join(words) for words in mutant.commands), False
    finally:
        build.change_back()


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", nargs="*", dest="names", metavar="NAME")
    options = parser.parse_args(arguments)
    mutants = [Mutant(patch, options.seeds) for patch in sorted(FOLDER.glob("*.patch"))
               if not options.names or patch.stem in options.names]
    build = Build(options.build.resolve())
    commands = sorted({command for mutant in mutants for command in mutant.commands})
    if wrong := build.make(program for program, *_ in commands):
        sys.exit(f"does not compile without a mutant: {wrong}")
    for command in commands:
        if found := build.look(command):
            sys.exit(f"fails without a mutant: {' '.join(command)}: {found}")
    print(f"{len(commands)} commands pass without a mutant", flush=True)
    caught = 0
    for mutant in mutants:
        begin = time.monotonic()
        said, is_caught = meet(build, mutant)
        caught += is_caught
        print(f"{'caught' if is_caught else 'MISSED'}  {mutant.name}: {said} "
              f"({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{caught} of {len(mutants)} caught")
    return 1 if caught < len(mutants) or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
