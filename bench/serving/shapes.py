"""The three models of the paper as matrix shapes, in bf16. The C++ simulator has the same figures
(src/serving/cost/model.cpp); tests/serving compares what follows from them.

Sources: the models' config.json on Hugging Face: meta-llama/Meta-Llama-3-8B, Qwen/Qwen2.5-32B,
mistralai/Mixtral-8x7B-v0.1.
"""
from typing import NamedTuple

BYTES = 2  # bf16


class Model(NamedTuple):
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    experts: int = 1
    experts_per_token: int = 1

    @property
    def qkv(self):
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def kv_bytes(self):
        """Of one token in one layer: keys and values."""
        return 2 * self.kv_heads * self.head_dim * BYTES

    def experts_touched(self, tokens):
        """Expected number of experts that `tokens` tokens choose, each evenly and by itself."""
        return self.experts * (1 - (1 - self.experts_per_token / self.experts) ** tokens)


MODELS = [
    Model("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    Model("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064),
    Model("mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, experts=8, experts_per_token=2),
]
# For a run of seconds that shows that the script works; its figures mean nothing.
TINY = [
    Model("tiny", 2, 256, 4, 2, 64, 512, 1000),
    Model("tiny-moe", 2, 256, 4, 2, 64, 512, 1000, experts=4, experts_per_token=2),
]
