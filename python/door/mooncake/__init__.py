"""Stands where the wheel's package stands: see python/braid/mooncake_engine.py. What is not here, as mooncake.store,
is that of a wheel which is installed beside it."""
import pathlib
import pkgutil
import sys

__path__ = pkgutil.extend_path(__path__, __name__)
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
