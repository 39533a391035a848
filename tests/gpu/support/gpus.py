"""How many GPUs this machine has, and whether that is enough."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
NEEDS_TWO = "needs two GPUs"  # braid carries nothing on a server with one


def count_gpus():
    asked = subprocess.run([ROOT / "scripts/gpu-count"], capture_output=True, text=True, check=True)
    return int(asked.stdout or 0)
