"""TRL's SFT trainer on rows of tokens: the loss falls on what was sampled, and on nothing else.

python examples/train/sft.py data [--steps 8]
"""

import argparse
from pathlib import Path

from weights import load

from stemma.cli.choosing import embedded_model


def main(folder: Path, steps: int) -> list[float]:
    """Train; the loss of each step."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    gguf = embedded_model()
    rows = load_dataset("parquet", data_files=str(folder / "train.parquet"), split="train")
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    args = SFTConfig(
        output_dir=str(folder / "sft"),
        max_steps=steps,
        max_length=None,
        per_device_train_batch_size=4,
        learning_rate=1e-4,
        use_cpu=True,
        bf16=False,
        **quiet,
    )
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    trainer = SFTTrainer(load(gguf), args=args, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    asked = parser.parse_args()
    losses = main(asked.folder, asked.steps)
    print(f"loss fell from {losses[0]:.3f} to {losses[-1]:.3f}")
