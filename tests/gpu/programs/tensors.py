"""PyTorch: copies between pinned tensors and every GPU, with kernels behind them.

  tensors.py [GPUS]    GPUS: how many it must see
"""
import sys

import torch

SIZE_BYTES = 256 << 20

if len(sys.argv) > 1:
    gpus = int(sys.argv[1])
    # PyTorch may count by NVML; what it works with is the runtime's count.
    assert torch.cuda.device_count() == gpus, torch.cuda.device_count()
    assert torch._C._cuda_getDeviceCount() == gpus, torch._C._cuda_getDeviceCount()
    try:
        torch.zeros(1, device=f"cuda:{gpus}")
    except (RuntimeError, AssertionError):  # "invalid device ordinal"
        pass
    else:
        raise AssertionError(f"there is a GPU {gpus}")
source = torch.randint(0, 256, (SIZE_BYTES,), dtype=torch.uint8).pin_memory()
device = torch.zeros(SIZE_BYTES, dtype=torch.uint8, device="cuda:0")
landing = torch.zeros(SIZE_BYTES, dtype=torch.uint8).pin_memory()
for non_blocking in (True, False):
    device.zero_()
    landing.zero_()
    device.copy_(source, non_blocking=non_blocking)
    assert torch.equal(device.cpu(), source), "H2D bytes"
    landing.copy_(device, non_blocking=non_blocking)
    torch.cuda.synchronize()
    assert torch.equal(landing, source), "D2H bytes"
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    device.zero_()
    device.copy_(source, non_blocking=True)
    doubled = device.to(torch.int16) * 2
stream.synchronize()
assert torch.equal(doubled.cpu(), source.to(torch.int16) * 2), "a kernel behind the copy"
for gpu in range(torch.cuda.device_count()):
    there = source.to(f"cuda:{gpu}", non_blocking=True)
    assert torch.equal(there.cpu(), source), f"GPU {gpu}"
print("every tensor is right")
