#!/usr/bin/env python3
"""The structures of python/braid lie in memory as the C compiler lays out those of the headers that they repeat.

  layouts_test.py SOURCE-FOLDER C-COMPILER
"""
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT, COMPILER = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
sys.path.insert(0, str(ROOT / "python"))
from braid import kv, transfer  # noqa: E402


def mirrored(module, room):
    """Each structure of the header, and Python's of the same name: Block or _Plan of braid_kv_block, braid_kv_plan."""
    header = (ROOT / f"include/braid/{room}_abi.h").read_text()
    for name in re.findall(rf"typedef struct braid_{room}_(\w+) \{{", header):
        # What has an underscore before it is for the call, and a class without one has what came of it.
        class_name = name.capitalize()
        yield f"braid_{room}_{name}", getattr(module, "_" + class_name, None) or getattr(module, class_name)


def in_c(room, structures):
    """Lines of `structure: size` and `structure.field: offset size`, as the compiler has them."""
    lines = [f"#include <stddef.h>\n#include <stdio.h>\n#include <braid/{room}_abi.h>\nint main(void) {{"]
    for name, structure in structures:
        lines.append(f'printf("{name}: %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field}: %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
                  for field, _ in structure._fields_]
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "layouts.c", pathlib.Path(folder) / "layouts"
        source.write_text("\n".join([*lines, "return 0; }\n"]))
        subprocess.run([COMPILER, "-std=c11", f"-I{ROOT / 'include'}", source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def in_python(structures):
    for name, structure in structures:
        yield f"{name}: {ctypes.sizeof(structure)}"
        for field, _ in structure._fields_:
            place = getattr(structure, field)
            yield f"{name}.{field}: {place.offset} {place.size}"


class Layouts(unittest.TestCase):
    def test_they_are_those_of_the_headers(self):
        for module, room, count in ((kv, "kv", 10), (transfer, "transfer", 5)):
            structures = list(mirrored(module, room))
            self.assertGreaterEqual(len(structures), count)
            self.assertEqual(list(in_python(structures)), in_c(room, structures))


if __name__ == "__main__":
    unittest.main()
