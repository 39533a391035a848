"""The rules about docs/architecture.md, by which people find the room and the file for a purpose."""
import itertools
import pathlib
import re

from includes import EXTRA_INCLUDES, FOLDER_ROOMS, ROOMS
from tree import Violation

DOCUMENT = "docs/architecture.md"
# The rooms whose files the document lists by purpose.
LISTED_ROOMS = ("fabric", "multipath", "preload", "transfer")


def rows_below(lines, sentence):
    """(line, cells) of the rows of each table that follows a line in which `sentence` is found."""
    for at, line in enumerate(lines):
        if re.search(sentence, line):
            rest = itertools.dropwhile(lambda row: not row[1].startswith("|"), enumerate(lines[at + 1:], at + 2))
            for number, row in itertools.takewhile(lambda row: row[1].startswith("|"), rest):
                yield number, [cell.strip() for cell in row.strip("|").split("|")]


# ---- The files of a room ----

def root_modules(tree, room):
    """{module: its first file} of the files that lie in the room itself, not in a folder of it."""
    modules = {}
    for path in tree.code():
        if pathlib.PurePosixPath(path).parent.as_posix() == f"src/{room}":
            modules.setdefault(pathlib.PurePosixPath(path).stem, path)
    return modules


def named_files(lines, room):
    """What the tables of the room name, as names without an ending."""
    cells = [cells[-1] for _, cells in rows_below(lines, rf"[Ii]nside `src/{room}`")]
    return {name.removeprefix(f"src/{room}/").removesuffix(".h")
            for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def rule_files_of_rooms(tree):
    """The document says of each file of the large rooms what it is for."""
    if DOCUMENT not in tree.paths:
        return
    for room in LISTED_ROOMS:
        named = named_files(tree.lines(DOCUMENT), room)
        for module, path in root_modules(tree, room).items():
            if module not in named:
                yield Violation(path, 1, f"{DOCUMENT} does not say what it is for")


# ---- The rooms ----

def rooms_in(words):
    return {room for room in ROOMS if re.search(rf"\b{room}\b", words.replace("the standard library", ""))}


def uses_in_words(cell):
    """{folder of the room, "" for all of it: the rooms that the table lets it use}."""
    uses = {}
    for part in cell.split(";"):
        folders, is_alone, words = part.rpartition(" alone:")
        for folder in re.findall(r"`(\w+)/`", folders) if is_alone else [""]:
            uses.setdefault(folder, set()).update(rooms_in(words))
    return uses


def uses_in_rules(room):
    """The same by the rules about includes."""
    extra = {name.split("/")[0] for name in EXTRA_INCLUDES.get(room, ())}
    folders = {folder.removeprefix(f"src/{room}/"): rooms for folder, rooms in FOLDER_ROOMS.items()
               if folder.startswith(f"src/{room}/")}
    return {"": ROOMS[room] | extra, **folders}


def rule_rooms_table(tree):
    """The table of rooms lets each use what the rules about includes let it use."""
    if DOCUMENT not in tree.paths:
        return
    listed = set()
    for number, cells in rows_below(tree.lines(DOCUMENT), "^## The rooms"):
        room = cells[0].strip("`").removeprefix("src/")
        if room in ROOMS:
            listed.add(room)
            if uses_in_words(cells[-1]) != uses_in_rules(room):
                yield Violation(DOCUMENT, number, f"{room} may use other rooms by tests/tidy/includes.py")
    for room in sorted(ROOMS.keys() - listed):
        yield Violation(DOCUMENT, 1, f"the table of rooms has no {room}")
