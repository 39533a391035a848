"""PyTorch: copies between pinned tensors and every GPU, with kernels behind them."""
import torch

SIZE_BYTES = 256 << 20

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
