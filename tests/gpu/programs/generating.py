"""transformers generates with its KV cache in host memory: each layer's part leaves and comes back every step.

The model is small and random, made by code; nothing is downloaded. It prints what it generates with the
cache on the GPU, and with the offloaded one in every round. These are to be the same, but not on every machine,
whoever copies: programs.py compares what is the same in two native runs.
"""
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: deterministic sums
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 4, 4096, 24
VOCABULARY = 4096
ROUNDS = 3


def make_model():
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=2048,
                         num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8,
                         max_position_embeddings=2 * PROMPT_TOKENS, initializer_range=0.05,
                         attn_implementation="eager",  # PyTorch's faster ones differ from run to run (2xH100)
                         bos_token_id=1, eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).to(device="cuda:0", dtype=torch.bfloat16).eval()
    # The library fetches the next layer's part on a stream that does not wait for what this stream has
    # still to do with the same memory: without this its own results vary, whoever copies.
    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda *_: torch.cuda.current_stream().synchronize())
    return model


def generate(model, prompts, **options):
    """Token ids, and the logits of every step as they are."""
    with torch.no_grad():
        found = model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False,
                               max_new_tokens=NEW_TOKENS,
                               return_dict_in_generate=True, output_logits=True, **options)
    return found.sequences.cpu(), torch.stack(found.logits).float().cpu()


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:16]


def show(where, ids, logits):
    """A line each, so that one of them can be compared where the other varies."""
    print(f"{where}: {ids[:, PROMPT_TOKENS:].unique().numel()} distinct tokens, ids {digest(ids)}")
    print(f"{where}: logits {digest(logits)}", flush=True)


def main():
    try:
        import transformers
    except ImportError:
        print("transformers is not installed")
        return
    transformers.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = make_model()
    generator = torch.Generator().manual_seed(2)
    prompts = torch.randint(2, VOCABULARY, (PROMPTS, PROMPT_TOKENS), generator=generator).to("cuda:0")
    show("on the GPU", *generate(model, prompts))
    for turn in range(ROUNDS):
        show(f"offloaded, round {turn}", *generate(model, prompts, cache_implementation="offloaded"))


if __name__ == "__main__":
    main()
