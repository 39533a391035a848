"""PyTorch's profiler (CUPTI) over copies between pinned memory and a GPU, and kernels behind them.

Says what the profiler must have seen whoever moves the bytes: the program's kernel, and the GPU at work.
"""
import torch
from torch.profiler import ProfilerActivity, profile

SIZE_BYTES = 256 << 20
ROUNDS = 3

source = torch.randint(0, 256, (SIZE_BYTES,), dtype=torch.uint8).pin_memory()
landing = torch.zeros(SIZE_BYTES, dtype=torch.uint8).pin_memory()
device = torch.zeros(SIZE_BYTES, dtype=torch.uint8, device="cuda:0")
for turn in range(ROUNDS):
    device.zero_()
    landing.zero_()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        device.copy_(source, non_blocking=True)
        doubled = device.to(torch.int16) * 2
        landing.copy_(device, non_blocking=True)
        torch.cuda.synchronize()
    assert torch.equal(landing, source), "bytes"
    assert torch.equal(doubled.cpu(), source.to(torch.int16) * 2), "a kernel behind the copy"
    events = trace.events()
    on_gpu = [event.name for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    assert any("elementwise" in name for name in on_gpu), f"the profiler saw {on_gpu}"
print("every tensor is right, and the profiler saw the kernels")
