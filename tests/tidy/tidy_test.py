#!/usr/bin/env python3
"""tidy.py must find what is planted, where it is planted, and nothing in a clean tree."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tidy  # noqa: E402
from includes import FOLDER_ROOMS, ROOMS  # noqa: E402

CLEAN = {
    "src/base/status.h": "#pragma once\n\n#include <string>\n",
    "src/base/status.cpp": '#include "base/status.h"\n',
    "src/cuda/driver.h": '#pragma once\n#include <cuda.h>\n\n#include "base/status.h"\n',
    "src/cuda/kernels/twin.h": "#pragma once\n",
    "src/multipath/engine.cpp": '#include "cuda/driver.h"\n',
    "src/preload/hooks.cpp": '#include "cuda/driver.h"\n',
    "src/emulator/device.cpp": '#include "base/status.h"\n#include "cuda/kernels/twin.h"\n',
    "tests/emulator/copy_test.cpp": '#include "cuda/driver.h"\n',
    "tests/base/status_test.cpp": '#include "base/status.h"\n',
    "tools/main.cpp": '#include "cuda/driver.h"\n',
    "docs/guide.md": "# A guide\n\n## The first part\n\n[here](#the-first-part) [src](../src/base)\n",
}


class TidyTest(unittest.TestCase):
    def found(self, rule, planted=None):
        """(path, line) of what `rule` finds in the clean tree with `planted` files over it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **(planted or {})}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            tree = tidy.Tree(folder)
            return [(violation.path, violation.line) for violation in tidy.RULES[rule](tree)]

    def assert_found(self, rule, path, line, text):
        self.assertEqual(self.found(rule, {path: text}), [(path, line)], f"{rule}: {text[:80]!r}")

    def assert_clean(self, rule, path, text):
        self.assertEqual(self.found(rule, {path: text}), [], f"{rule}: {text[:80]!r}")

    def test_clean_tree_has_no_violations(self):
        for rule in tidy.RULES:
            if rule != "format":
                self.assertEqual(self.found(rule), [], rule)

    def test_layers(self):
        for path, include in (
            ("src/base/clock.cpp", '"cuda/driver.h"'),
            ("src/cuda/stream.cpp", '"multipath/engine.h"'),
            ("src/multipath/mover.cpp", '"preload/hooks.h"'),
            ("src/emulator/copy.cpp", '"cuda/driver.h"'),
            ("src/emulator/copy.cpp", '"multipath/engine.h"'),
            ("src/preload/hooks.h", '"tools/locate.h"'),
            ("src/preload/hooks.h", '"emulator/device.h"'),
            ("src/lending/lent_gpus.cpp", '"preload/hooks.h"'),
            ("src/simulation/flows.cpp", '"base/status.h"'),
            ("src/base/clock.cpp", "<unistd.h>"),
            ("src/cuda/stream.cpp", "<cuda_runtime.h>"),
            ("src/multipath/mover.cpp", '"../preload/hooks.h"'),
            ("src/multipath/mover.cpp", '"nowhere.h"'),
            ("tests/base/clock_test.cpp", '"cuda/driver.h"'),
            ("tests/emulator/copy_test.cpp", '"multipath/engine.h"'),
            ("tools/run.cpp", '"tests/support.h"'),
            ("demo/client.cpp", '"base/status.h"'),
        ):
            planted = {name: "#pragma once\n" for name in (
                "src/multipath/engine.h", "src/emulator/device.h", "tools/locate.h",
                "tests/support.h", "src/preload/hooks.h")}
            planted[path] = f"#pragma once\n#include {include}\n"
            self.assertEqual(self.found("layers", planted), [(path, 2)], f"{path} {include}")

    def test_a_room_that_nobody_declared(self):
        self.assert_found("layers", "src/attic/box.cpp", 1, "\n")

    def test_cycles(self):
        """Modules that include each other through a .cpp, and through a third."""
        header = "#pragma once\n"
        planted = {"src/preload/a.h": header + '#include "preload/b.h"\n',
                   "src/preload/b.h": header}
        self.assertEqual(self.found("cycles", planted), [])
        planted["src/preload/b.cpp"] = '#include "preload/b.h"\n#include "preload/a.h"\n'
        self.assertEqual(self.found("cycles", planted), [("src/preload/a.h", 2)])
        planted["src/preload/b.cpp"] = '\n#include "c.h"\n'
        planted["src/preload/c.h"] = header
        self.assertEqual(self.found("cycles", planted), [])
        planted["src/preload/c.h"] = header + '#include "preload/a.h"\n'
        self.assertEqual(self.found("cycles", planted), [("src/preload/a.h", 2)])

    def test_length(self):
        path = "src/base/long.cpp"
        self.assert_clean("length", path, "\n" * 400)
        self.assert_found("length", path, 401, "\n" * 401)
        self.assert_found("length", path, 601, "\n" * 601)

    def test_length_with_a_reason(self):
        path = "src/base/long.cpp"
        reason = {tidy.LONG_FILES: f"{path}: one table\n"}
        self.assertEqual(self.found("length", {path: "\n" * 500, **reason}), [])
        self.assertEqual(self.found("length", {path: "\n" * 601, **reason}), [(path, 601)])
        self.assertEqual(self.found("length", {path: "\n" * 300, **reason}), [(tidy.LONG_FILES, 1)])
        self.assertEqual(self.found("length", reason), [(tidy.LONG_FILES, 1)])

    def test_pragma_once(self):
        self.assert_found("pragma_once", "src/base/a.h", 1, "int x;\n")
        self.assert_found("pragma_once", "src/base/a.h", 1, "// #pragma once\nint x;\n")
        self.assert_clean("pragma_once", "src/base/a.h", "// words\n#pragma once\nint x;\n")

    def test_whitespace(self):
        self.assert_found("whitespace", "src/base/a.cpp", 1, "\tint x;\n")
        self.assert_found("whitespace", "src/base/a.cpp", 2, "int x;\nint y; \n")
        self.assert_found("whitespace", "docs/a.md", 1, "words  \n")
        self.assert_found("whitespace", "src/base/a.cpp", 1, "int x;")
        self.assert_clean("whitespace", "Makefile", "all:\n\t@true\n")

    def test_mutants(self):
        """A patch that fits somewhere else, one that fits only roughly, and one that does not fit."""
        code, patch = "src/base/a.cpp", "tests/mutants/a.patch"
        lines = [f"int f{number}();" for number in range(9)]
        mutant = ("words\n--- a/src/base/a.cpp\n+++ b/src/base/a.cpp\n@@ -3,5 +3,4 @@\n int f2();\n"
                  " int f3();\n-int f4();\n int f5();\n int f6();\n")
        for changed, violations in (({}, []), ({0: "\n\nint f0();"}, []), ({2: "int g();"}, [(patch, 1)]),
                                    ({4: "int g();"}, [(patch, 1)])):
            text = "\n".join(changed.get(at, line) for at, line in enumerate(lines)) + "\n"
            self.assertEqual(self.found("mutants", {code: text, patch: mutant}), violations, text)

    def test_unfinished(self):
        for word in ("TO" + "DO", "FIX" + "ME", "X" * 3, "not " + "implemented"):
            self.assert_found("unfinished", "src/base/a.cpp", 2, f"\n// {word}: later\n")
            self.assert_found("unfinished", "scripts/a.py", 1, f"# {word}\n")

    def test_conflict_markers(self):
        for marker in ("<" * 7 + " HEAD", "=" * 7, ">" * 7 + " branch"):
            self.assert_found("conflict_markers", "src/base/a.cpp", 2, f"int x;\n{marker}\n")
            self.assert_found("conflict_markers", "docs/a.md", 1, f"{marker}\n")

    def test_emulator_conditions(self):
        self.assert_found("emulator_conditions", "src/cuda/a.cpp", 1, "#ifdef BRAID_EMULATOR\n")
        self.assert_found("emulator_conditions", "src/cuda/a.cpp", 1, "# if defined(EMULATED)\n")

    def test_using_namespace_std(self):
        self.assert_found("using_namespace_std", "tools/a.cpp", 1, "using namespace std;\n")

    def test_cout(self):
        self.assert_found("cout", "src/base/a.cpp", 1, "void f() { std::cout << 1; }\n")
        self.assert_found("cout", "src/base/a.cpp", 1, 'void f() { printf("1"); }\n')
        self.assert_clean("cout", "src/base/a.cpp", 'void f() { fprintf(stderr, "printf(") ; }\n')
        self.assert_clean("cout", "tools/a.cpp", "void f() { std::cout << 1; }\n")

    def test_naked_new(self):
        path = "src/base/a.cpp"
        self.assert_found("naked_new", path, 1, "int* x = new int;\n")
        self.assert_found("naked_new", path, 1, "void f(int* x) { delete x; }\n")
        self.assert_clean("naked_new", path, "A(const A&) = delete;\n")
        self.assert_clean("naked_new", path, "return std::unique_ptr<A>(new A(b));\n")
        self.assert_clean("naked_new", path, "std::unique_ptr<A> a(new A(b));\n")
        self.assert_clean("naked_new", path, "  static const auto* a = new A;\n")
        self.assert_found("naked_new", path, 1, "f(std::make_unique<A>(), new A(b));\n")
        self.assert_clean("naked_new", path, '// a new one\nauto s = "new";\n#include <new>\n')
        self.assert_clean("naked_new", path, "// owner: the slot\nnew (slot) int;\n")
        self.assert_clean("naked_new", path, "new (slot) int;  // owner: the slot\n")
        self.assert_found("naked_new", path, 2, "// owner:\nnew (slot) int;\n")
        self.assert_clean("naked_new", "tests/base/a.cpp", "int* x = new int;\n")

    def test_em_dash(self):
        self.assert_found("em_dash", "src/base/a.cpp", 1, "// fast \u2014 and right\n")

    def test_workplace_paths(self):
        self.assert_found("workplace_paths", "docs/a.md", 1, "see /wor" + "k/notes.md\n")
        self.assert_found("workplace_paths", "src/base/a.cpp", 1, "// /ho" + "me/somebody\n")
        self.assert_clean("workplace_paths", "docs/a.md", "a framework/library\n")

    def test_files_of_rooms(self):
        """A file of a large room that no table names; files of folders and of other rooms need no name."""
        def document(*names):
            return {"docs/architecture.md": "Inside `src/fabric`, what acts:\n\n| what | files |\n|---|---|\n"
                    + "".join(f"| words | {name} |\n" for name in names) + "\n`src/fabric/peers`\n"}
        planted = {"src/fabric/engine.h": "", "src/fabric/engine.cpp": "", "src/fabric/peers.cpp": "",
                   "src/fabric/sim/net.h": "", "src/kv/pool.h": ""}
        unlisted = ("src/multipath/engine.cpp", 1), ("src/preload/hooks.cpp", 1)
        for names, missing in ((("`engine`; `peers` are parts of it",), []), (("`engine.h`", "`src/fabric/peers`"), []),
                               (("`engine`",), ["src/fabric/peers.cpp"]), (("`peers`",), ["src/fabric/engine.cpp"])):
            self.assertEqual(self.found("files_of_rooms", {**planted, **document(*names)}),
                             [(path, 1) for path in missing] + list(unlisted), names)

    def test_rooms_table(self):
        """Rows that allow more or less than the rules, for a room or for a folder of it, and a row too few."""
        rows = [f"| `src/{room}` | words | {', '.join(sorted(uses)) or 'the standard library'}"
                + "".join(f"; `{folder.split('/')[-1]}/` alone: {', '.join(sorted(more))}"
                          for folder, more in FOLDER_ROOMS.items() if folder.startswith(f"src/{room}/"))
                + (", and of cuda the twin" if room == "emulator" else "") + " |"
                for room, uses in ROOMS.items()]
        head = ["## The rooms", "", "| room | holds | may use |", "|---|---|---|"]

        def found(changed):
            return self.found("rooms_table", {"docs/architecture.md": "\n".join(head + changed) + "\n"})
        self.assertEqual(found(rows), [])
        at = list(ROOMS).index("fabric")
        for old, new in (("base, host", "base"), ("base, host", "base, host, kv"), ("`sim/`", "`simulator/`"),
                         ("simulation", "simulation, kv")):
            self.assertIn(old, rows[at])
            changed = rows[:at] + [rows[at].replace(old, new)] + rows[at + 1:]
            self.assertEqual(found(changed), [("docs/architecture.md", len(head) + at + 1)], new)
        self.assertEqual(found(rows[1:]), [("docs/architecture.md", 1)])

    def test_links(self):
        self.assert_found("links", "docs/a.md", 1, "[x](nowhere.md)\n")
        self.assert_found("links", "docs/a.md", 1, "[x](guide.md#no-such-part)\n")
        self.assert_clean("links", "docs/a.md", "[x](guide.md#the-first-part)\n```\n[x](no)\n```\n")

    def test_format(self):
        try:
            self.assertEqual(self.found("format"), [])
        except tidy.Unchecked as why:
            self.skipTest(str(why))
        self.assertEqual(self.found("format", {"src/base/a.cpp": "int   x ;\n"}),
                         [("src/base/a.cpp", 1)])


if __name__ == "__main__":
    unittest.main()
