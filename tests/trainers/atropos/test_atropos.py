"""Groups as Atropos' own API takes them from an environment and hands them to a trainer."""

import json

import pytest

from stemma.core.exclusions import Rules
from stemma.formats.token_export import export_tokens, rollout_of
from stemma.formats.token_presets import token_preset
from token_conversations import Chat, Words, user


@pytest.fixture
def groups(tmp_path):
    """Two prompts with two rollouts each, all of them split in two by an edit."""
    words = Words()

    def conversation(prompt, sample):
        chat = Chat(user(f"prompt {prompt}"), words=words).says("hello").hears("and").says(f"answer {sample}")
        chat.graph[0]["content"] = "edited"
        return chat.hears("so").says("well").graph

    rollouts = [
        rollout_of(f"{p}-{s}", {"group": str(p), "reward": float(s)}, lambda p=p, s=s: conversation(p, s))
        for p in range(2)
        for s in range(2)
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
    assert [len(group["tokens"]) for group in groups] == [4, 4]


def test_the_server_takes_the_groups_and_gives_the_trainer_the_same_tokens(groups):
    from atroposlib.api.server import app
    from fastapi.testclient import TestClient

    with TestClient(app) as server:
        trainer = {
            "wandb_group": "g", "wandb_project": "p", "batch_size": 8, "max_token_len": 64, "checkpoint_dir": "c",
            "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1,
        }  # fmt: skip
        assert server.post("/register", json=trainer).status_code == 200
        for group in groups:
            answer = server.post("/scored_data", json=group)
            assert answer.json()["status"] == "received", answer.text
        batch = server.get("/batch").json()["batch"]
    given = sorted((one["tokens"], one["masks"], one["scores"], one["inference_logprobs"]) for one in batch)
    assert given == sorted((g["tokens"], g["masks"], g["scores"], g["inference_logprobs"]) for g in groups)
