#!/usr/bin/env python3
"""What the style bans, enforced. Each rule is a function that yields Violations of a Tree.

  tidy.py [--root DIR] [RULE ...]   checks (all rules by default); exit code 1 and a list if broken
  tidy.py --list                    names the rules

Rules that cannot be checked on this machine exit with 77 and say why. tidy_test.py plants a
violation of every rule and sees it found.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from architecture import rule_files_of_rooms, rule_rooms_table  # noqa: E402, F401
from includes import rule_cycles, rule_layers  # noqa: E402, F401
from tree import Tree, Unchecked, Violation, under  # noqa: E402

SOFT_LINES, HARD_LINES = 400, 600
LONG_FILES = "tests/tidy/long_files.txt"


def without_comments_and_strings(text):
    """The same lines with comments and literals blanked, so that a search finds code only."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                       re.DOTALL)
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def matches(tree, paths, pattern, what):
    expression = re.compile(pattern)
    for path in paths:
        for number, line in enumerate(tree.lines(path), 1):
            if expression.search(line):
                yield Violation(path, number, what)


# ---- Length and form ----

def long_file_reasons(tree):
    reasons = {}
    if LONG_FILES in tree.paths:
        for line in tree.lines(LONG_FILES):
            if line and not line.startswith("#"):
                path, _, reason = line.partition(":")
                reasons[path.strip()] = reason.strip()
    return reasons


def rule_length(tree):
    """No file beyond 600 lines; one beyond 400 is listed with its reason."""
    reasons = long_file_reasons(tree)
    for path in tree.sources():
        count = len(tree.lines(path))
        if count > HARD_LINES:
            yield Violation(path, count, f"{count} lines; the limit is {HARD_LINES}")
        elif count > SOFT_LINES and not reasons.get(path):
            yield Violation(path, count,
                            f"{count} lines: split it, or give a reason in {LONG_FILES}")
    for path in reasons:
        if path not in tree.paths or len(tree.lines(path)) <= SOFT_LINES:
            yield Violation(LONG_FILES, 1, f"{path} is not a long file (any more): remove its line")


def rule_pragma_once(tree):
    """Every header says #pragma once before any code."""
    for path in tree.code():
        if path.endswith((".h", ".cuh")):
            code = without_comments_and_strings(tree.text(path)).split("\n")
            first = next((line.strip() for line in code if line.strip()), "")
            if first != "#pragma once":
                yield Violation(path, 1, "#pragma once is missing, or not the first code")


def rule_whitespace(tree):
    """No tabs (but in Makefile), no blanks at line ends, one newline at the end of each file."""
    for path in tree.sources() + [path for path in tree.paths if path.endswith((".md", ".json"))]:
        text = tree.text(path)
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line and path != "Makefile":
                yield Violation(path, number, "a tab")
            if line != line.rstrip():
                yield Violation(path, number, "blanks at the end of the line")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield Violation(path, text.count("\n") + 1, "does not end with one newline")


def rule_format(tree):
    """clang-format 14 would change nothing. Other versions format differently."""
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not formatter:
        raise Unchecked("clang-format is not installed")
    version = subprocess.run([formatter, "--version"], capture_output=True, text=True, check=True)
    if not re.search(r"version 14\.", version.stdout):
        raise Unchecked(f"not clang-format 14: {version.stdout.strip()}")
    done = subprocess.run([formatter, "--dry-run", "--style=file",
                           *[str(tree.root / path) for path in tree.code()]],
                          cwd=tree.root, capture_output=True, text=True, check=False)
    seen = set()
    for name, number in re.findall(r"^(.+?):(\d+):\d+: (?:warning|error):", done.stderr, re.M):
        path = pathlib.Path(name).resolve().relative_to(tree.root).as_posix()
        if path not in seen:
            seen.add(path)
            yield Violation(path, int(number), "not formatted: run `make format`")


# ---- Bans ----

def rule_unfinished(tree):
    """No notes to come back later: work is finished or it is an issue."""
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))
    yield from matches(tree, tree.sources(), rf"\b({words})\b", "a note of unfinished work")
    yield from matches(tree, tree.sources(), r"(?i)\bnot (yet )?" + r"implemented\b",
                       "says that something is missing: build it, or state the limit in docs")


def rule_conflict_markers(tree):
    """No merge left half done."""
    yield from matches(tree, tree.paths, r"^(<{7} |>{7} |={7}$)", "a conflict marker")


def rule_emulator_conditions(tree):
    """The same code runs on hardware and on the emulator: no #if asks which."""
    yield from matches(tree, tree.code(), r"(?i)^\s*#\s*(if|ifdef|ifndef|elif)\b.*emulat",
                       "a preprocessor condition on the emulator")


def rule_using_namespace_std(tree):
    yield from matches(tree, tree.code(), r"^\s*using\s+namespace\s+std\b", "using namespace std")


def rule_cout(tree):
    """src is loaded into other people's programs: their standard output is theirs."""
    for path in tree.code():
        if under(path, "src"):
            code = without_comments_and_strings(tree.text(path)).split("\n")
            for number, line in enumerate(code, 1):
                if re.search(r"\bstd::cout\b|(?<![\w:])printf\s*\(", line):
                    yield Violation(path, number, "writes on standard output")


def rule_naked_new(tree):
    """Memory has an owner. Where new or delete must be, `// owner: why` says so, there or above."""
    for path in tree.code():
        if not under(path, "src"):
            continue
        code = without_comments_and_strings(tree.text(path)).split("\n")
        lines = tree.text(path).split("\n")
        for number, line in enumerate(code, 1):
            if line.lstrip().startswith("#") or not re.search(r"\b(new|delete)\b", line):
                continue
            if re.search(r"=\s*delete\b", line) and not re.search(r"\bnew\b", line):
                continue
            # Owned at once (private constructors), or a static that is never destroyed.
            if re.search(r"_ptr<[^;]*\(new |^\s*static\b[^;]*= \*?new ", line):
                continue
            if re.search(r"// owner: \S", lines[number - 1] + lines[max(number - 2, 0)]):
                continue
            yield Violation(path, number, "naked new or delete (say `// owner: why` if it must be)")


def rule_em_dash(tree):
    yield from matches(tree, tree.sources(), "\u2014", "an em dash")


def rule_workplace_paths(tree):
    """Nothing names a folder of somebody's machine."""
    yield from matches(tree, tree.paths, "/wor" + "k/|/home/" + r"\w", "a path of one machine")


# ---- Mutants ----

def rule_mutants(tree):
    """Every patch of tests/mutants fits the code with all of its context: elsewhere it would break another thing."""
    patches = [path for path in tree.paths if under(path, "tests/mutants") and path.endswith(".patch")]
    if patches and not shutil.which("patch"):
        raise Unchecked("patch is not installed")
    for path in patches:
        done = subprocess.run(["patch", "--dry-run", "--batch", "--forward", "--fuzz=0", "-p1", "-r-",
                               "-d", str(tree.root), "-i", str(tree.root / path)],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            yield Violation(path, 1, f"does not fit: make it anew ({done.stdout.splitlines()[-1]})")


# ---- Documents ----

def heading_anchors(text):
    anchors = set()
    for heading in re.findall(r"^#+\s+(.*)$", text, re.M):
        words = re.sub(r"[`*\[\]()]", "", heading.strip().lower())
        anchors.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return anchors


def rule_links(tree):
    """Every link from one document to another, or to a file, arrives."""
    for path in tree.paths:
        if not path.endswith(".md"):
            continue
        fenced = re.sub(r"```.*?```", lambda m: "\n" * m.group().count("\n"), tree.text(path),
                        flags=re.DOTALL)
        for number, line in enumerate(fenced.split("\n"), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (tree.root / path).parent / name if name else tree.root / path
                if not target.exists():
                    yield Violation(path, number, f"the link {link} leads nowhere")
                elif anchor and anchor not in heading_anchors(target.read_text("utf-8")):
                    yield Violation(path, number, f"the link {link} names no heading")


RULES = {name[len("rule_"):]: rule for name, rule in sorted(globals().items())
         if name.startswith("rule_")}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rules", nargs="*", metavar="RULE")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(RULES))
        return 0
    unknown = [name for name in options.rules if name not in RULES]
    if unknown:
        parser.error(f"no such rule: {', '.join(unknown)}")
    tree = Tree(options.root)
    if not tree.paths:
        print(f"{options.root} holds no files")
        return 1
    found, unchecked = [], []
    for name in options.rules or RULES:
        try:
            found += [f"{violation}  [{name}]" for violation in RULES[name](tree)]
        except Unchecked as why:
            unchecked.append(f"skipped: {name}: {why}")
    print("\n".join(found + unchecked))
    if found:
        return 1
    return 77 if unchecked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
