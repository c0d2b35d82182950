"""Stores: a compressed conversation is a new line of its graph; nothing is trained under a context it did not see."""

import asyncio

import pytest

from compress.rows import Words, failing, model_summarizer, saying, settings, words
from stemma import Call, MessageGraph, open_store
from stemma.compress.run import Run
from stemma.compress.settings import Output
from stemma.compress.stores import Graphs, compress_graphs, forecast_graphs
from stemma.formats.export import export
from stemma.formats.files import load_trajectories
from stemma.formats.presets import preset
from stemma.formats.training import rows_of_graph

TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {}}}]


def say(role, count, **more):
    return {"role": role, "content": words(count), **more}


def conversation(steps=10):
    graph = MessageGraph([say("system", 10), say("user", 10)])
    for step in range(steps):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
        graph.record(say("assistant", 10, tool_calls=[call]), Call(model="m", tools=TOOLS))
        graph.append(say("tool", 90, tool_call_id=f"c{step}"))
    graph.record(say("assistant", 10), Call(model="m", tools=TOOLS))
    return graph


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "stemma.db") as opened:
        yield opened


def compress(store, folder, summarizer=None, how=None, identity="one", **which):
    async def go():
        run = Run(how or settings(target=700), Words(), summarizer or saying(20))
        await compress_graphs(Graphs(store, **which), folder, run, {"run": identity})
        return run.report

    return asyncio.run(go())


def test_compression_makes_a_new_line_that_traces_back_to_the_original(store, tmp_path):
    before = conversation()
    store.save(before, "long", run="r", metadata={"level": "hard"})
    store.save(conversation(1), "short")
    report = compress(store, tmp_path)
    assert (report.rows, report.compressed, report.skipped) == (2, 1, 1)
    graph = store.load("long")
    assert graph.previous.reason == "compression"
    assert graph.previous == before
    assert graph.previous.tip == before.tip
    assert graph[4]["role"] == "user"
    assert graph[4]["content"].startswith("[CONTEXT SUMMARY]:")
    assert graph.messages()[1:4] == before.messages()[1:4]
    assert store.load("short").versions == ()
    assert store.metadata("long")["level"] == "hard"
    assert store.verify() == []
    assert (tmp_path / "compression_metrics.json").exists()


def test_what_was_sampled_under_the_full_context_is_trained_there_and_nowhere_else(store, tmp_path):
    store.save(conversation(), "long")
    before = list(rows_of_graph(store.load("long"), {}))
    compress(store, tmp_path)
    graph = store.load("long")
    assert all(call.version == 0 for call in graph.calls()), "every reply belongs to the line it was sampled in"
    after = list(rows_of_graph(graph, {}))
    assert [(row.messages, row.trained) for row in after] == [(row.messages, row.trained) for row in before]
    assert sum(len(row.trained) for row in after) == 11

    report = export(iter(after), preset("hermes"), tmp_path / "out")
    assert (report.written, report.trained_messages) == (1, 11)
    written = next(load_trajectories(tmp_path / "out" / "train.jsonl"))
    assert not any("[CONTEXT SUMMARY]" in turn["value"] for turn in written["conversations"])


def test_a_reply_sampled_after_the_compression_is_trained_under_the_compressed_context(store, tmp_path):
    store.save(conversation(), "long")
    compress(store, tmp_path)
    graph = store.load("long")
    graph.append(say("user", 5))
    graph.record(say("assistant", 7), Call(model="m", tools=TOOLS))
    rows = graph.rows()
    assert sorted(len(row.trained) for row in rows) == [1, 11]
    fresh = min(rows, key=lambda row: len(row.trained))
    assert fresh.trained == (len(fresh.messages) - 1,), "the older replies are context here"


def test_without_a_notice_replies_before_the_summary_stay_on_the_line(store, tmp_path):
    store.save(conversation(), "long")
    compress(store, tmp_path, how=settings(target=700, output=Output(add_summary_notice=False)))
    graph = store.load("long")
    assert [call.index for call in graph.calls() if call.version is None] == [2], "it saw exactly this context"


def test_the_same_run_once_more_asks_for_nothing(store, tmp_path):
    store.save(conversation(), "long")
    store.save(MessageGraph([say("user", 2000)]), "hopeless")
    compress(store, tmp_path)
    summarizer, model = model_summarizer(lambda request: words(20))
    compress(store, tmp_path, summarizer)
    assert model.requests == []
    assert len(store.load("long").versions) == 1


def test_a_failed_summary_leaves_the_graph_and_is_tried_again(store, tmp_path):
    store.save(conversation(), "long")
    report = compress(store, tmp_path, failing())
    assert report.failed == 1
    assert store.load("long").versions == ()
    assert compress(store, tmp_path).compressed == 1


def test_subagents_are_compressed_where_they_hang(store, tmp_path):
    top = MessageGraph([say("user", 5)])
    call = {"id": "d", "type": "function", "function": {"name": "delegate", "arguments": "{}"}}
    top.record(say("assistant", 5, tool_calls=[call]), Call(model="m"))
    top.append(say("tool", 5, tool_call_id="d"), contains=conversation())
    store.save(top, "top")
    report = compress(store, tmp_path)
    assert (report.rows, report.compressed) == (2, 1)
    child = store.load("top").nested(2)[0]
    assert child.previous.reason == "compression"
    assert store.verify() == []


def test_a_run_killed_between_two_graphs_goes_on(store, tmp_path):
    for n in range(4):
        store.save(conversation(9 + n), f"g{n}")
    asked = []

    def answer(request):
        asked.append(request)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return words(20)

    how = settings(target=700)
    with pytest.raises(KeyboardInterrupt):
        compress(store, tmp_path, model_summarizer(answer)[0], how)
    paid = len(asked) - 1
    summarizer, model = model_summarizer(lambda request: words(20))
    compress(store, tmp_path, summarizer, how)
    assert len(model.requests) == 4 - paid
    assert all(store.load(f"g{n}").previous.reason == "compression" for n in range(4))


def test_one_run_of_the_store_and_a_forecast(store, tmp_path):
    store.save(conversation(), "a", run="x")
    store.save(conversation(11), "b", run="y")
    assert compress(store, tmp_path, run="x").rows == 1
    assert store.load("b").versions == ()

    async def go():
        return await forecast_graphs(Graphs(store), Run(settings(target=700), Words(), failing()))

    told = asyncio.run(go()).to_dict()
    assert (told["rows"], told["rows_affected"]) == (2, 1)
