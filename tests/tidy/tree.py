"""The files that the rules of tidy.py look at, and what they find in them."""
import pathlib
import shutil
import subprocess
from typing import NamedTuple

CODE = (".h", ".cpp", ".c", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake", ".txt", ".S", ".map", "")


class Violation(NamedTuple):
    path: str
    line: int
    what: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


class Unchecked(Exception):
    """The rule cannot be checked on this machine."""


class Tree:
    """The project's own files: what git tracks or would; without git, all but outputs."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.paths = sorted(self._from_git() or self._from_disk())
        self._texts = {}

    def _from_git(self):
        if not (self.root / ".git").exists() or not shutil.which("git"):
            return []
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"],
            capture_output=True, check=False)
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return [name for name in names if (self.root / name).is_file()]

    def _from_disk(self):
        found = []
        for path in self.root.rglob("*"):
            name = path.relative_to(self.root).as_posix()
            top = name.split("/")[0]
            output = top.startswith("build") or top in (".git", ".deps", ".venv")
            if path.is_file() and not output and "__pycache__" not in name:
                found.append(name)
        return found

    def text(self, path):
        if path not in self._texts:
            data = (self.root / path).read_bytes()
            self._texts[path] = "" if b"\0" in data else data.decode("utf-8")
        return self._texts[path]

    def lines(self, path):
        return self.text(path).splitlines()

    def code(self):
        return [path for path in self.paths if path.endswith(CODE)]

    def sources(self):
        """Everything that people write as code: C++, CUDA, Python, shell, CMake."""
        return [path for path in self.paths
                if pathlib.PurePath(path).suffix in CODE + SCRIPTS and path != "LICENSE"]


def under(path, folder):
    return path.startswith(folder + "/")
