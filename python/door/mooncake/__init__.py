"""Stands where the wheel's package stands: see python/braid/mooncake_engine.py."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
