"""TRL's own trainers on token rows: the loss falls on the sampled ids, exactly as they stand in the file."""

import json

import pytest

from stemma.core.exclusions import Rules
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from token_conversations import Chat, Words, user
from trainers.trl.conftest import model, tokenizer

HERE = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "shuffle_dataset": False}


def conversation(words, sample):
    """Two rows, because of an edit."""
    chat = Chat(user("hi there"), words=words).says("hello").hears("and").says(f"answer {sample}")
    chat.graph[0]["content"] = "hi you"
    return chat.hears("so").says("well").graph


def export(preset, folder):
    """Two rollouts of one prompt."""
    words = Words()
    about = [{"group": "p", "reward": float(n)} for n in range(2)]
    rollouts = [rollout_of(f"r{n}", about[n], lambda n=n: conversation(words, n)) for n in range(2)]
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


GROUPS = {"p": (1.0, 0.0, 0.5), "q": (1.0, 0.0)}
"""The rewards of the samples of two prompts, of which the second has one less."""


def grpo_lines(folder):
    """Every rollout is split in two by an edit."""
    words = Words()
    rollouts = [
        rollout_of(f"{group}{n}", {"group": group, "reward": reward}, lambda n=n: conversation(words, n))
        for group, rewards in GROUPS.items()
        for n, reward in enumerate(rewards)
    ]
    report = export_tokens(rollouts, token_preset("trl-grpo"), folder, Rules(), version="0")
    assert report.excluded == {"split": 5}
    with open(report.file) as file:
        return report.group_size, [json.loads(line) for line in file]


def test_grpo_takes_whole_groups_from_its_rollout_function_with_masks_and_logprobs(tmp_path, monkeypatch):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    size, lines = grpo_lines(tmp_path)
    given, scored = [], []

    def rollout(prompts, trainer):
        """A row for each prompt; the trainer repeats each prompt `num_generations` times."""
        rows = [row for group in dict.fromkeys(prompts) for row in lines if row["group_id"] == group]
        assert [row["group_id"] for row in rows] == prompts
        given.extend(rows)
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "group_id")
        return {name: [row[name] for row in rows] for name in names}

    def reward(prompts, completions, **columns):
        return columns["reward"]

    keep = {"num_generations": size, "per_device_train_batch_size": len(lines), "max_completion_length": 64}
    args = GRPOConfig(output_dir=str(tmp_path / "grpo"), max_steps=1, logging_steps=1, **keep, **HERE)
    trainer = GRPOTrainer(
        model(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": group} for group in GROUPS]),
        processing_class=tokenizer("qwen3"),
        rollout_func=rollout,
    )
    score = trainer._generate_and_score_completions
    monkeypatch.setattr(
        trainer, "_generate_and_score_completions", lambda inputs: scored.append(score(inputs)) or scored[-1]
    )
    trainer.train()
    assert (size, len(given)) == (3, 6)
    assert trainer.state.log_history[0]["completions/mean_length"] == pytest.approx(
        sum(sum(row["env_mask"]) for row in given) / len(given)
    )
    # The baseline is that of the rollouts alone: neither split rows nor rows that fill a group move it.
    expected = [row["advantage"] or 0.0 for row in given]
    assert scored[0]["advantages"].tolist() == pytest.approx(expected, abs=1e-3)
