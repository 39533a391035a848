#!/usr/bin/env python3
"""What `make package` made, unpacked into a folder of its own.

  package_test.py tarball|deb QUESTION PACKAGES BUILD-FOLDER SOURCE-FOLDER
"""
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import notices

BUILT_WITH = tuple(int(part) for part in platform.libc_ver()[1].split("."))
# Ubuntu 22.04's, but for builds of newer systems: docs/install.md, cmake/BraidPackage.cmake.
OLDEST_GLIBC = (2, 35) if BUILT_WITH <= (2, 36) else BUILT_WITH
NEEDED = re.compile(r"lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux-x86-64\.so\.2")
FILES = ("bin/braid", "lib/libbraid.so", "lib/libbraid_fabric.so", "lib/libbraid_transfer.so", "lib/libbraid_kv.so",
         "lib/libbraid_serving.so", "lib/libbraid_preload.so", "lib/braid/emulator/libcuda.so.1",
         "lib/cmake/braid/braid-config.cmake", "lib/cmake/braid/braid-targets.cmake",
         "lib/pkgconfig/braid.pc", "lib/pkgconfig/braid_fabric.pc",
         "lib/pkgconfig/braid_transfer.pc", "lib/pkgconfig/braid_kv.pc", "lib/pkgconfig/braid_serving.pc",
         "include/braid/braid.h", "include/braid/fabric.h", "include/braid/transfer.h", "include/braid/kv.h",
         "include/braid/serving.h",
         "share/braid/profiles/h20x8.json", "share/braid/fabric_peers/peer.py", "share/doc/braid/LICENSE",
         "share/doc/braid/THIRD_PARTY_NOTICES", "share/doc/braid/copyright",
         "share/doc/braid/README.md", "share/doc/braid/docs/install.md", "share/doc/braid/examples/copy.cpp")
COPY_BYTES = 16 << 20


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def check_rights(archive):
    """The packages were made with umask 077: every user can use what is in them all the same."""
    for member in archive:
        rights = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        assert member.issym() or member.mode & 0o777 == rights, f"{member.name} is {member.mode:o}"


def unpack(kind, packages, folder):
    """The folder that holds bin, lib and share."""
    pattern = {"tarball": "braid-*.tar.gz", "deb": "braid_*.deb"}[kind]
    package, = packages.glob(pattern)
    if kind == "deb":
        if not shutil.which("dpkg-deb"):
            skip("no dpkg-deb here")
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        depends = lines("dpkg-deb", "--field", package, "Depends")
        assert depends == ["libc6 (>= {}.{})".format(*OLDEST_GLIBC)], depends
        assert lines("dpkg-deb", "--field", package, "Recommends") == ["libfabric1, libcurl4"]
        assert lines("dpkg-deb", "--field", package, "Maintainer") == ["The braid authors"]
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            check_rights(archive)
        return folder / "usr"
    with tarfile.open(package) as archive:
        check_rights(archive)
        archive.extractall(folder)
    top, = folder.iterdir()
    return top


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def programs_in(root):
    return [name for name in FILES if name.startswith(("bin/", "lib/")) and is_elf(root / name)]


def faults_of(path, paths_of_the_build):
    """What keeps an ELF file from running elsewhere, in words."""
    for line in lines("readelf", "-dW", path):
        if "(NEEDED)" in line and not NEEDED.fullmatch(re.search(r"\[(.*)\]", line).group(1)):
            yield "needs " + line.split()[-1]
        if "RPATH" in line or "RUNPATH" in line:
            yield "looks for libraries in " + line.split()[-1]
    for line in lines("objdump", "-T", path):
        version = re.search(r"GLIBC_(\d+)\.(\d+)", line)
        if version and OLDEST_GLIBC < tuple(map(int, version.groups())):
            yield f"needs {line.split()[-1]} of {version.group()}"
    if any(".debug_" in line or ".symtab" in line for line in lines("readelf", "-SW", path)):
        yield "is not stripped"
    data = path.read_bytes()
    for place in paths_of_the_build:
        if str(place).encode() in data:
            yield f"names {place}"


def holds_what_it_should(root, build, source):
    missing = [name for name in FILES if not (root / name).exists()]
    assert not missing, f"missing: {missing}"
    strangers = [name for name in ("lib/emulator", "lib/libcuda.so.1") if (root / name).exists()]
    assert not strangers, f"braid's name is not on {strangers}"
    elves = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
    programs = programs_in(root)
    assert len(elves) == len(programs), elves
    faults = [f"{path.relative_to(root)} {fault}" for path in elves
              for fault in faults_of(path, (build, source))]
    assert not faults, "\n".join(faults)
    for path in (root / "lib").rglob("*.*"):
        if path.suffix in (".cmake", ".pc"):
            assert str(source) not in path.read_text("utf-8"), f"{path} names {source}"


def says_whose_it_is(root, build, source):
    """Whoever gets a package gets the notices that the licences of its parts demand."""
    documents = root / "share" / "doc" / "braid"
    text, copyright_file = ((documents / name).read_text("utf-8") for name in ("THIRD_PARTY_NOTICES", "copyright"))
    assert "\nCopyright 2026 The braid authors\n" in copyright_file and text in copyright_file, copyright_file
    assert "Copyright 2026 The braid authors" in (documents / "LICENSE").read_text("utf-8")
    faults = list(notices.faults(text, root, build, source, programs_in(root)))
    assert not faults, "\n".join(faults)


def run(root, environment, *command):
    done = subprocess.run([root / "bin" / "braid", *command], env=environment, capture_output=True,
                          text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def runs_where_no_compiler_is(root, build, source):
    """`source` is not needed: the program is one that was built elsewhere."""
    environment = {"PATH": str(root / "bin"), "HOME": str(root)}
    for tool in ("cc", "c++", "gcc", "nvcc", "cmake", "python3"):
        assert shutil.which(tool, path=environment["PATH"]) is None, tool
    program = shutil.copy(build / "demo" / "client", root)
    status, output, errors = run(root, environment, "run", "--server", "h20x8", "--opening", "wait",
                                 "--stats", "json", "--", program, "--json", "--repeat", "1",
                                 "--sizes", str(COPY_BYTES))
    assert status == 0, output + errors
    _, *copies = [json.loads(line) for line in output.splitlines()]
    assert len(copies) == 2 and all(copy["verified"] for copy in copies), copies
    statistics = next(json.loads(line)["braid"] for line in errors.splitlines()
                      if line.startswith('{"braid":'))
    for direction in ("h2d", "d2h"):
        links = {path["via"] for path in statistics["paths"]
                 if path["direction"] == direction and path["bytes"]}
        assert len(links) > 1, statistics["paths"]
    status, output, errors = run(root, environment, "doctor", "--server", "h20x8")
    assert status == 0, output + errors

    # Moved without half of it.
    os.rename(root / "share" / "braid", root / "elsewhere")
    status, output, errors = run(root, environment, "doctor", "--server", "h20x8")
    assert status != 0 and "profiles" in errors and "are missing from" in errors, output + errors


def main(kind, question, packages, build, source):
    questions = {name: globals()[name]
                 for name in ("holds_what_it_should", "says_whose_it_is", "runs_where_no_compiler_is")}
    with tempfile.TemporaryDirectory(prefix="braid-package-") as folder:
        root = unpack(kind, pathlib.Path(packages), pathlib.Path(folder))
        questions[question](root, pathlib.Path(build), pathlib.Path(source))


if __name__ == "__main__":
    main(*sys.argv[1:])
