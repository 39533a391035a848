"""THIRD_PARTY_NOTICES held against the files that are installed, and against what the build takes from elsewhere."""
import re

# Text in whatever has compiled code of a library that consists of headers.
TRACES = {"nlohmann/json.hpp": b"[json.exception.", "CLI/CLI.hpp": b"N3CLI3AppE"}


def sections(notices):
    """(names of "By", files of "Inside") of each project."""
    for inside, by in re.findall(r"^Inside: (.*?)\nBy: (.*?)\n\n", notices, re.DOTALL | re.MULTILINE):
        yield set(by.split()), set(inside.split())


def static_libraries(build, file):
    """Those from elsewhere that the file of an installation is linked with, as ninja has it."""
    linked = []
    for block in (build / "build.ninja").read_text("utf-8").split("\n\n"):
        output = re.match(r"build (\S+): \S+_LINKER_", block)
        if output and file in (output.group(1), re.sub(r"\.so\.[\d.]+$", ".so", output.group(1))):
            linked += re.findall(r"^  LINK_LIBRARIES = (.*)", block, re.MULTILINE)
    assert len(linked) == 1, f"{file} is linked by {len(linked)} rules of build.ninja"
    return {word.rpartition("/")[2] for word in linked[0].split() if word.startswith("/") and word.endswith(".a")}


def headers_of_dependencies(source):
    listed = re.search(r"^headers=\((.*?)\)", (source / "scripts" / "bootstrap").read_text("utf-8"),
                       re.DOTALL | re.MULTILINE)
    return listed.group(1).split()


def faults(notices, root, build, source, files):
    """What the notices lack, in words. `files`: the programs and libraries below `root`."""
    for header in headers_of_dependencies(source):
        if header not in notices:
            yield f"nothing is said of {header}, of scripts/bootstrap"
    found = list(sections(notices))
    for file in files:
        data = (root / file).read_bytes()
        inside = static_libraries(build, file) | {header for header, trace in TRACES.items() if trace in data}
        named = set().union(*(by for by, places in found if file in places))
        for name in sorted(inside - named):
            yield f"{file} holds code of {name}"
        for name in sorted(name for name in named - inside if name.endswith(".a") or name in TRACES):
            yield f"{file} holds no code of {name}"
