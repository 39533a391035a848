#!/usr/bin/env python3
"""The table in docs/options.md is the table in the code.

  check_options.py PRINT_OPTIONS DOCUMENT            fails, with the difference, when they differ
  check_options.py PRINT_OPTIONS DOCUMENT --update   writes the code's table into the document
"""
import difflib
import pathlib
import re
import subprocess
import sys

TABLE = re.compile(r"(<!-- options -->\n).*?(<!-- end of options -->)", re.DOTALL)


def main(program, document, *flags):
    document = pathlib.Path(document)
    table = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    text = document.read_text(encoding="utf-8")
    if not TABLE.search(text):
        print(f"{document} has no <!-- options --> and <!-- end of options --> lines")
        return 1
    right = TABLE.sub(lambda match: match.group(1) + table + match.group(2), text)
    if "--update" in flags:
        document.write_text(right, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), right.splitlines(True),
                                               str(document), "the code's option_table()"))
    if text == right:
        return 0
    print(f"{document} differs: cmake --build build --target update_options_document")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
