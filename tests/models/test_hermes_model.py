"""Promises of the hermes tool protocol over an endpoint that knows no tools."""

import pytest

from completions import completion, events_of
from faultserver import Exchange, FaultServer, in_loop
from stemma.agent.agent import Agent
from stemma.models.hermes_model import HermesModel
from stemma.models.openai_api import OpenAIModel
from stemma.models.protocol import Delta, Request

CALL = '<think>\nI should add.\n</think>\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
ANSWER = "<think>\nDone.\n</think>\nIt is 5."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
]
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def saying(*texts: str, **fields):
    """An endpoint that gives these texts, one after another, and chokes on tools."""
    left = list(texts)

    async def answer(e: Exchange) -> None:
        assert "tools" not in e.request.body
        assert all(set(message) == {"role", "content"} for message in e.request.body["messages"])
        await e.completion(completion(left.pop(0), n=e.request.body.get("n", 1), **fields))

    return answer


async def asked(text, on_delta=None, **fields):
    async with FaultServer(always=saying(text, **fields)) as server:
        model = HermesModel(OpenAIModel("m", server.base_url))
        reply = await model.reply(Request(messages=ASK, tools=TOOLS), on_delta)
        await model.close()
    return reply, server.requests[0].body


@in_loop
async def test_tools_are_told_in_the_system_prompt_and_a_call_is_read_from_the_text():
    reply, body = await asked(CALL)
    system = body["messages"][0]
    assert system["role"] == "system"
    assert '"name": "add"' in system["content"]
    assert system["content"].endswith("Be brief.")
    assert reply.message["reasoning"] == "I should add."
    (made,) = reply.message["tool_calls"]
    assert made["function"] == {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    assert (reply.call.tools, reply.call.finish_reason) == (TOOLS, "tool_calls")
    assert reply.call.extra["protocol"] == "hermes"
    assert reply.call.usage["total_tokens"] == 12


@pytest.mark.parametrize("text", [CALL, ANSWER, "plain", "<tool_call>\nnonsense", "  spaced  ", "<think>cut"])
@in_loop
async def test_the_text_that_was_sampled_can_always_be_had_again(text):
    from stemma.models.hermes_protocol import as_text_messages

    reply, _ = await asked(text)
    assert reply.call.extra.get("raw", as_text_messages([reply.message], None)[-1]["content"]) == text


@in_loop
async def test_reasoning_in_a_field_of_its_own_stays():
    reply, _ = await asked("It is 5.", reasoning_content="Easy.")
    assert (reply.message["content"], reply.message["reasoning"]) == ("It is 5.", "Easy.")


@in_loop
async def test_streaming_shows_thought_call_and_answer_as_what_they_are():
    seen: list[Delta] = []
    reply, _ = await asked(CALL, seen.append)
    together = {kind: "".join(d.text for d in seen if d.kind == kind) for kind in ("reasoning", "tool", "text")}
    assert together["reasoning"] == "I should add."
    assert '"arguments": {"a": 2, "b": 3}' in together["tool"]
    assert together["text"].strip() == ""
    assert reply.message["tool_calls"]


@in_loop
async def test_a_reply_that_comes_anew_is_shown_from_its_beginning():
    async def cut_off(e: Exchange) -> None:
        await e.begin_stream()
        for piece in events_of(completion(ANSWER))[:5]:
            await e.chunk(piece)
        e.reset()

    seen: list[Delta] = []
    async with FaultServer([cut_off, saying("It is 5.")]) as server:
        model = HermesModel(OpenAIModel("m", server.base_url))
        await model.reply(Request(messages=ASK, tools=TOOLS), seen.append)
        await model.close()
    again = next(i for i, delta in enumerate(seen) if delta.kind == "again")
    assert again > 0, "something was shown before"
    assert "".join(d.text for d in seen[again + 1 :] if d.kind == "text").strip() == "It is 5."


@in_loop
async def test_samples_are_read_too_and_their_calls_are_called_alike():
    async with FaultServer(always=saying(CALL, CALL)) as server:
        model = HermesModel(OpenAIModel("m", server.base_url))
        replies = await model.samples(Request(messages=ASK, tools=TOOLS), 2)
        await model.close()
    assert [reply.message["tool_calls"][0]["function"]["name"] for reply in replies] == ["add", "add"]


@in_loop
async def test_the_loop_runs_tools_over_it_and_the_next_prompt_holds_what_was_sampled():
    async with FaultServer(always=saying(CALL, ANSWER)) as server:
        model = HermesModel(OpenAIModel("m", server.base_url))
        conversation = await Agent(model=model, tools=[add], system="Be brief.").run("2 + 3?")
        await model.close()
    assert conversation.answer == "It is 5."
    second = server.requests[1].body["messages"]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[2]["content"] == CALL
    assert "<tool_response>" in second[3]["content"]
    assert "5" in second[3]["content"]
