"""TRL's own trainers on token rows: the loss falls on the sampled ids, exactly as they stand in the file."""

import json

import pytest

from stemma.core.exclusions import Rules
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from token_conversations import Chat, Words, user
from trainers.trl.conftest import model, tokenizer

HERE = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "shuffle_dataset": False}


def export(preset, folder):
    """Two rollouts of one prompt, each split in two by an edit."""
    words = Words()

    def conversation(sample):
        chat = Chat(user("hi there"), words=words).says("hello").hears("and").says(f"answer {sample}")
        chat.graph[0]["content"] = "hi you"
        return chat.hears("so").says("well").graph

    rollouts = [rollout_of(f"r{n}", {"group": "p", "reward": float(n)}, lambda n=n: conversation(n)) for n in range(2)]
    return export_tokens(rollouts, token_preset(preset), folder, Rules(), version="0").file


def test_sft_takes_ids_and_labels_as_they_are_and_trains_on_them(tmp_path):
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    rows = load_dataset("parquet", data_files=export("tokens", tmp_path), split="train")
    args = SFTConfig(output_dir=str(tmp_path / "sft"), max_length=None, max_steps=2, logging_steps=1, **HERE)
    trainer = SFTTrainer(model(), args=args, train_dataset=rows, processing_class=tokenizer("qwen3"))
    batch = trainer.data_collator([dict(row) for row in trainer.train_dataset])
    for given, row in zip(batch["labels"].tolist(), rows, strict=True):
        assert given[: len(row["labels"])] == row["labels"]
        assert set(given[len(row["labels"]) :]) <= {-100}
    trainer.train()
    assert all(entry["loss"] > 0 for entry in trainer.state.log_history if "loss" in entry)


def test_grpo_takes_a_group_from_its_rollout_function_with_masks_and_logprobs(tmp_path, monkeypatch):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    with open(export("trl-grpo", tmp_path)) as file:
        lines = [json.loads(line) for line in file]
    seen = []

    def rollout(prompts, trainer):
        return {
            name: [row[name] for row in lines]
            for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward")
        }

    def reward(prompts, completions, **columns):
        seen.append(columns["reward"])
        return columns["reward"]

    keep = {"num_generations": len(lines), "per_device_train_batch_size": len(lines), "max_completion_length": 64}
    args = GRPOConfig(output_dir=str(tmp_path / "grpo"), max_steps=1, logging_steps=1, **keep, **HERE)
    trainer = GRPOTrainer(
        model(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "hi"}]),
        processing_class=tokenizer("qwen3"),
        rollout_func=rollout,
    )
    trainer.train()
    assert seen == [[row["reward"] for row in lines]]
    assert trainer.state.log_history[0]["completions/mean_length"] == pytest.approx(
        sum(sum(row["env_mask"]) for row in lines) / len(lines)
    )
