"""Promises of the examination of an endpoint."""

import asyncio

from completions import call, completion
from faultserver import Exchange, FaultServer, in_loop
from stemma.models.doctor import examine
from stemma.models.openai_api import OpenAIModel
from stemma.models.retry import Retries


async def able(e: Exchange) -> None:
    """An endpoint that can do everything, in the way of vLLM."""
    asked = e.request.body
    if asked.get("tools"):
        calls = [call("get_weather", "{}", f"c{i}") for i in range(2)]
        await e.completion(completion(None, finish="tool_calls", tool_calls=calls, reasoning_content="Hm."))
        return
    answer = completion("blue", n=asked.get("n", 1))
    if asked.get("logprobs"):
        for choice in answer["choices"]:
            choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}] * 5}
    if asked.get("return_token_ids"):
        answer["prompt_token_ids"] = list(range(7))
        answer["choices"][0]["token_ids"] = list(range(5))
    await e.completion(answer)


async def plain(e: Exchange) -> None:
    """An endpoint that talks, and ignores all else."""
    await e.json(completion("<think>Hm.</think>blue"))


async def strict(e: Exchange) -> None:
    """An endpoint that refuses what it does not know, `max_tokens` included."""
    if unknown := set(e.request.body) - {"model", "messages", "max_completion_tokens", "stream", "stream_options"}:
        await e.json({"error": {"message": f"unknown: {sorted(unknown)[0]}"}}, 400)
    else:
        await e.completion(completion("blue"))


async def table(answer) -> dict[str, str]:
    retries = Retries(attempts=1)
    async with FaultServer(always=answer) as server, OpenAIModel("m", server.base_url, retries=retries) as model:
        examination = await examine(model)
    assert examination.models == ["m"]
    assert all(finding.detail or finding.answer == "yes" for finding in examination.findings)
    return {finding.name: finding.answer for finding in examination.findings}


@in_loop
async def test_an_endpoint_that_can_do_everything():
    found = await table(able)
    assert set(found.values()) == {"yes"}
    assert list(found) == [
        "models",
        "chat",
        "streaming",
        "tools",
        "parallel tool calls",
        "logprobs",
        "token ids",
        "n samples",
        "reasoning",
    ]


@in_loop
async def test_an_endpoint_that_only_talks():
    assert await table(plain) == {
        "models": "yes",
        "chat": "yes",
        "streaming": "no",
        "tools": "unknown",
        "parallel tool calls": "unknown",
        "logprobs": "no",
        "token ids": "no",
        "n samples": "no",
        "reasoning": "yes",
    }


@in_loop
async def test_an_endpoint_that_refuses_what_it_does_not_know():
    assert await table(strict) == {
        "models": "yes",
        "chat": "yes",
        "streaming": "yes",
        "tools": "no",
        "parallel tool calls": "no",
        "logprobs": "no",
        "token ids": "no",
        "n samples": "no",
        "reasoning": "unknown",
    }


@in_loop
async def test_an_endpoint_that_fails_or_refuses_leaves_the_rest_unknown():
    failed, refused = await table("error_500"), await table("forbidden")
    assert (failed["chat"], refused["chat"]) == ("unknown", "no")
    assert {*list(failed.values())[2:], *list(refused.values())[2:]} == {"unknown"}


@in_loop
async def test_a_question_that_is_never_answered_does_not_hold_up_the_others():
    async def hangs_on_n(e: Exchange) -> None:
        """As llama.cpp does when `n` is more than its slots."""
        if "n" in e.request.body:
            await asyncio.sleep(60)
        await able(e)

    async with FaultServer(always=hangs_on_n) as server, OpenAIModel("m", server.base_url) as model:
        examination = await examine(model, seconds=0.3)
    assert examination["n samples"].answer == "unknown"
    assert examination["tools"].answer == "yes"


@in_loop
async def test_an_endpoint_that_is_not_there():
    async with OpenAIModel("m", "http://127.0.0.1:9/v1", retries=Retries(attempts=1)) as model:
        examination = await examine(model)
    assert {finding.answer for finding in examination.findings} == {"unknown"}
    assert "cannot be reached" in examination["models"].detail
