"""Where braid's shared libraries are."""
import os
import pathlib


def find(name):
    """`kv` for libbraid_kv.so, "" for libbraid.so: the library that BRAID_KV_LIBRARY (BRAID_LIBRARY) names, or that of
    the installation or build tree that this file belongs to, or the one that the loader finds."""
    named = os.environ.get("_".join(filter(None, ("BRAID", name.upper(), "LIBRARY"))))
    if named:
        return named
    file = "_".join(filter(None, ("libbraid", name))) + ".so.0"
    for root in pathlib.Path(__file__).resolve().parents[2:5]:
        for folder in ("lib", "build/lib"):
            if (root / folder / file).exists():
                return str(root / folder / file)
    return file
