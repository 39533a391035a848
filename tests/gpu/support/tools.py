"""Tools of the CUDA toolkit and the driver, where they are installed."""
import contextlib
import os
import shutil
import subprocess
import tempfile


def tool(name):
    """Where a tool of the toolkit is, or None."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [f"{home}/{below}" for home in homes if home for below in ("bin", "compute-sanitizer")]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


@contextlib.contextmanager
def nothing():
    yield {}


@contextlib.contextmanager
def mps():
    """NVIDIA's MPS daemon, of our own folder, for as long as a program runs."""
    with tempfile.TemporaryDirectory() as folder:
        more = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **more}
        control = tool("nvidia-cuda-mps-control")
        subprocess.run([control, "-d"], env=environment, check=True, timeout=30)
        try:
            yield more
        finally:
            subprocess.run([control], input="quit -t 5\n", text=True, env=environment, check=False,
                           timeout=60, stdout=subprocess.DEVNULL)
