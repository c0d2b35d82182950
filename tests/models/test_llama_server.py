"""A llama.cpp server asked token by token: the same tokens as the same model gives in this process."""

import asyncio

import pytest

from embedded import smollm2
from faultserver import in_loop
from stemma.cli.choosing import choose_model
from stemma.cli.settings import read_settings
from stemma.models.errors import BadEndpoint, BrokenReply, Refused
from stemma.models.llama_server import LlamaServerModel
from stemma.models.protocol import Request

COOL = {"temperature": 0, "max_tokens": 24}
HELLO = Request(messages=[{"role": "user", "content": "Say hello."}])


@pytest.fixture(scope="module")
def server():
    """A real server with a key, and the model that runs it."""
    model = smollm2(tight=False, params=COOL)
    address = model._engine._address()
    yield address, model._engine._key, model
    asyncio.run(model.close())


@in_loop
async def test_prompt_and_sampled_ids_and_logprobs_are_those_of_the_model_itself(server):
    address, key, here = server
    there = LlamaServerModel("smol", f"{address}/v1", key, params=COOL)
    mine, theirs = await here.reply(HELLO), await there.reply(HELLO)
    assert theirs.call.prompt_ids == mine.call.prompt_ids
    assert theirs.call.sampled_ids == mine.call.sampled_ids
    assert len(theirs.call.logprobs) == len(theirs.call.sampled_ids)
    assert theirs.message == mine.message
    assert theirs.call.cost is None


@in_loop
async def test_a_second_turn_extends_the_first_token_for_token(server):
    address, key, _ = server
    model = LlamaServerModel("smol", address, key, params=COOL)
    first = await model.reply(HELLO)
    more = [*HELLO.messages, first.message, {"role": "user", "content": "Again."}]
    second = await model.reply(Request(messages=more))
    sampled = first.call.sampled_ids
    seen = first.call.prompt_ids + (sampled if first.call.finish_reason == "length" else sampled[:-4])
    assert second.call.prompt_ids.startswith(seen)


@in_loop
async def test_a_wrong_key_a_dead_address_and_nonsense_are_typed_errors(server):
    address, _, _ = server
    with pytest.raises(Refused):
        await LlamaServerModel("smol", address, "wrong").reply(HELLO)
    with pytest.raises(BrokenReply):
        await LlamaServerModel("smol", "http://127.0.0.1:9").reply(HELLO)
    with pytest.raises(BadEndpoint):
        LlamaServerModel("smol", "ftp://nowhere")


def test_the_config_chooses_it_by_its_protocol(tmp_path):
    file = tmp_path / ".config/stemma/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("models: {mine: {base_url: 'http://127.0.0.1:8080/v1', model: qwen, protocol: tokens}}")
    chosen = choose_model(read_settings({}, {"HOME": str(tmp_path)}, tmp_path), "mine")
    assert isinstance(chosen, LlamaServerModel)
    assert chosen.name == "qwen"
