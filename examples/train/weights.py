"""The embedded model's weights in PyTorch, and the logprobs it gives to rows of tokens."""

import os
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TRAINED_LAYERS = 6
"""The last layers; the others stay as they are, which is quicker and enough for so small a task."""


def load(gguf: Path) -> Any:
    """The model of a GGUF file, with its last layers ready to be trained."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    model.is_quantized = False  # the file was; what was loaded are plain floats
    model.requires_grad_(False)
    for layer in model.model.layers[-TRAINED_LAYERS:]:
        layer.requires_grad_(True)
    return model


def batch_of(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows side by side, the shorter ones filled up on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    blank = {"input_ids": 0, "attention_mask": 0, "labels": -100, "logprobs": 0.0}
    return {
        name: torch.tensor([row[name] + [filler] * (width - len(row[name])) for row in rows])
        for name, filler in blank.items()
    }


def sampled_logprobs(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token but the first what the model gives it, and 1 where it is trained."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    found = logits.log_softmax(-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return found, (batch["labels"][:, 1:] != -100).float()
