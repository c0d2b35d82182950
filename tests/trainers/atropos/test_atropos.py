"""Groups as Atropos' own API takes them from an environment and hands them to a trainer."""

import json

import pytest

from stemma.core.exclusions import Rules
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from token_conversations import Chat, Words, user

SAMPLES = (2, 2, 1, 3, 2, 4, 2, 1, 2, 3, 2, 2, 1, 2)
"""Rollouts of fourteen prompts; every other rollout is split in two by an edit."""


@pytest.fixture
def groups(tmp_path):
    words = Words()

    def conversation(prompt, sample):
        chat = Chat(user(f"prompt {prompt}"), words=words).says("hello").hears("and").says(f"answer {sample}")
        if (prompt + sample) % 2:
            chat.graph[0]["content"] = "edited"
            chat.hears("so").says("well")
        return chat.graph

    rollouts = [
        rollout_of(f"{p}-{s}", {"group": str(p), "reward": float(s)}, lambda p=p, s=s: conversation(p, s))
        for p, samples in enumerate(SAMPLES)
        for s in range(samples)
    ]
    export_tokens(rollouts, token_preset("atropos"), tmp_path, Rules(), version="0")
    return [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]


def test_every_group_is_a_scored_data_group(groups):
    from atroposlib.envs.base import ScoredDataGroup
    from pydantic import TypeAdapter

    known = set(ScoredDataGroup.__annotations__)
    for group in groups:
        assert set(group) <= known
        TypeAdapter(ScoredDataGroup.__annotations__["tokens"]).validate_python(group["tokens"])
    sizes = {len(group["tokens"]) for group in groups}
    assert sizes == {1 << size.bit_length() - 1 for size in sizes}  # powers of two
    assert len(sizes) > 1


def test_the_server_takes_the_groups_and_gives_the_trainer_all_of_them_with_the_same_tokens(groups):
    from atroposlib.api.server import app
    from fastapi.testclient import TestClient

    largest = max(len(group["tokens"]) for group in groups)
    with TestClient(app) as server:
        trainer = {
            "wandb_group": "g", "wandb_project": "p", "batch_size": largest, "max_token_len": 64, "checkpoint_dir": "c",
            "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1,
        }  # fmt: skip
        assert server.post("/register", json=trainer).status_code == 200
        for group in groups:
            answer = server.post("/scored_data", json=group)
            assert answer.json()["status"] == "received", answer.text
        given = []
        while batch := server.get("/batch").json()["batch"]:
            given += batch
        assert server.get("/status").json()["queue_size"] == 0

    def columns(some):
        return sorted((g["tokens"], g["masks"], g["scores"], g["inference_logprobs"]) for g in some)

    assert columns(given) == columns(groups)
    assert len(given) == len(SAMPLES)


def test_rows_that_only_fill_a_group_carry_no_advantage_and_no_loss(groups):
    names = ("masks", "advantages", "overrides")
    rows = [row for group in groups for row in zip(*(group[name] for name in names), strict=True)]
    fillers = [(masks, advantages) for masks, advantages, about in rows if not about["rollout_id"]]
    assert fillers
    for masks, advantages in fillers:
        assert set(masks) == {-100}
        assert set(advantages) == {0.0}
