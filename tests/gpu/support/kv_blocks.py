"""Checksums of the KV blocks that vLLM's offloading connector (0.20) takes to host memory and back.

watch() puts itself in front of the connector's handlers. Of a block that leaves, a sum that depends on
every byte's place is computed on the GPU before; of one that has come back, after, and compared. So a
byte that is lost or late in either direction is found, whatever the model makes of it.
"""
import torch

ROWS_AT_ONCE = 1024


def sums(tensor, blocks):
    """One 64-bit sum for each of a tensor's rows."""
    words = tensor.shape[1] // 4
    weights = torch.arange(1, words + 1, device=tensor.device, dtype=torch.int64) * 0x9E3779B1
    found = [(tensor[part].view(torch.int32).to(torch.int64) * weights).sum(dim=1)
             for part in blocks.split(ROWS_AT_ONCE)]
    return torch.cat(found)


class Ledger:
    """What blocks in host memory must be, and how many came back otherwise."""

    def __init__(self):
        self.table, self.is_known = None, None
        self.loads = {}       # (handler, job): blocks of the GPU, blocks in host memory
        self.transfers = []   # of finished jobs: is it a load, bytes, seconds
        self.checked, self.wrong, self.unknown = 0, None, 0

    def open(self, gpu_tensors, cpu_tensors):
        if self.table is None:
            device = gpu_tensors[0].device
            self.table = torch.zeros(len(gpu_tensors), cpu_tensors[0].shape[0], device=device,
                                     dtype=torch.int64)
            self.is_known = torch.zeros(cpu_tensors[0].shape[0], dtype=torch.bool)
            self.wrong = torch.zeros((), device=device, dtype=torch.int64)

    def sums_of(self, gpu_tensors, gpu_blocks):
        blocks = torch.from_numpy(gpu_blocks).to(self.table.device)
        return torch.stack([sums(tensor, blocks) for tensor in gpu_tensors])

    def leave(self, gpu_tensors, cpu_tensors, gpu_blocks, cpu_blocks):
        self.open(gpu_tensors, cpu_tensors)
        places = torch.from_numpy(cpu_blocks)
        self.table[:, places.to(self.table.device)] = self.sums_of(gpu_tensors, gpu_blocks)
        self.is_known[places] = True

    def come_back(self, gpu_tensors, gpu_blocks, cpu_blocks):
        places = torch.from_numpy(cpu_blocks)
        self.unknown += int((~self.is_known[places]).sum())
        wanted = self.table[:, places.to(self.table.device)]
        self.wrong += (self.sums_of(gpu_tensors, gpu_blocks) != wanted).any(dim=0).sum()
        self.checked += len(cpu_blocks)

    def counts(self):
        return {"blocks_checked": self.checked, "blocks_wrong": int(self.wrong or 0),
                "blocks_unknown": self.unknown}


def watch():
    """A ledger of all transfers of this process from now on. Before the engine is made."""
    from vllm.v1.kv_offload.worker import cpu_gpu
    handlers, ledger = cpu_gpu.SingleDirectionOffloadingHandler, Ledger()
    transfer_async, get_finished = handlers.transfer_async, handlers.get_finished

    def transfer_and_note(self, job_id, spec):
        source, target = (side.block_ids.copy() for side in spec)
        if len(source) != len(target):
            raise RuntimeError("blocks of the CPU are larger than the GPU's: no checksums for those")
        if self.gpu_to_cpu:
            ledger.leave(self.src_tensors, self.dst_tensors, source, target)
        else:
            ledger.loads[id(self), job_id] = target, source
        return transfer_async(self, job_id, spec)

    def finish_and_check(self):
        results = get_finished(self)
        for result in results:
            ledger.transfers.append((not self.gpu_to_cpu, result.transfer_size, result.transfer_time))
            if not self.gpu_to_cpu:
                ledger.come_back(self.dst_tensors, *ledger.loads.pop((id(self), result.job_id)))
        return results

    handlers.transfer_async, handlers.get_finished = transfer_and_note, finish_and_check
    return ledger
