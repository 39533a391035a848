"""A PyTorch training loop: pinned batches from a DataLoader's workers, asynchronous copies, and a checkpoint.

Everything is seeded, so that it prints the same digests in every run. The checkpoint goes through safetensors
where that is installed.
"""
import hashlib
import os
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: deterministic sums

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

FEATURES, HIDDEN, CLASSES = 32768, 1024, 16
SAMPLES, BATCH, EPOCHS = 2048, 128, 3  # batches of 16 MiB


class Samples(Dataset):
    """Each sample is made from its number, by whichever worker."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        return torch.randn(FEATURES, generator=generator), number % CLASSES


def digest(tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.GELU(),
                               torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.GELU(),
                               torch.nn.Linear(HIDDEN, CLASSES))


def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    order = torch.Generator().manual_seed(2)
    batches = DataLoader(Samples(), batch_size=BATCH, shuffle=True, generator=order, num_workers=2,
                         pin_memory=True, drop_last=True)
    seen = torch.zeros((), dtype=torch.float64, device="cuda")
    for epoch in range(EPOCHS):
        for features, labels in batches:
            features = features.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)
            seen += features.double().sum()
            loss = torch.nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.6f}, weights {digest(model.parameters())}")
    print(f"all samples together: {seen.item():.3f}")


def keep_on_host(model):
    """The weights leave for pinned memory and come back, as an offloading optimizer has it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kept = {name: torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
                for name, value in model.state_dict().items()}
    stream.synchronize()
    before = digest(model.parameters())
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
        for name, value in model.state_dict().items():
            value.copy_(kept[name], non_blocking=True)
    assert digest(model.parameters()) == before, "weights that were on the host"


def keep_in_file(model):
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        print("safetensors is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save_file(model.state_dict(), file)
        for device in ("cuda:0", "cpu"):
            loaded = load_file(file, device=device)
            for name, value in model.state_dict().items():
                assert torch.equal(loaded[name].to("cuda:0"), value), f"{name}, loaded to {device}"
        again = make_model()
        again.load_state_dict(load_file(file))
        again.to("cuda:0")
        assert digest(again.parameters()) == digest(model.parameters()), "a model from a checkpoint"
    print(f"the checkpoint is right: {digest(model.parameters())}")


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = make_model().to("cuda:0")
    train(model)
    keep_on_host(model)
    keep_in_file(model)
    print("the training loop ended")


if __name__ == "__main__":
    main()
