"""A random history, kept twice: what the SQLite file answers is what the store in memory answers, after every step.

Handles are made, edited, recorded on, forked, loaded, linked below one another, and saved under names that others hold;
the file is closed and opened in between, and both stores are merged into a third of their kind. Whatever a name was
last saved as is what both stores give back, to the last call of the last subagent.
"""

import copy
import pickle
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hostile import messages as hostile_messages
from stemma import Call, MessageGraph
from stemma.core.canonical import canonical
from stemma.core.fingerprint import fingerprint
from stemma.errors import BadLink, BadMessage, NameTaken, NotFound, StemmaError
from stemma.store import MemoryStore, SQLiteStore

ROOMY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files cost little; that a sync is a sync is proved in tests/crash."""

NAMES = ["a", "b", "chat 1", "a~"]
RUNS = [None, "run-1", "run-2"]
FEW = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {"role": "user", "content": "\ud83d V"},
    {"role": "assistant", "content": "A"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"arguments": '{"a":1,"a":2}'}}]},
    {"role": "tool", "tool_call_id": "1", "content": "T"},
    {"role": "tool", "tool_call_id": "2", "content": ""},
]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALLS = [
    Call(model="m"),
    Call(model="m", tools=[]),
    Call(model="m", tools=TOOLS, params={"temperature": 1.0, "top_p": True}),
    Call(model="m", prompt_ids=[1, 2], sampled_ids=[3], logprobs=[-0.5], usage={"n": 1}, cost=0.25),
    Call(model="m", id="mine", extra={"raw": "\udfff\x00"}, finish_reason="stop", started=1.5, seconds=2.0),
]

some_message = st.sampled_from(FEW) | hostile_messages()
some_messages = st.lists(some_message, max_size=3)
some_reply = st.sampled_from([m for m in FEW if m["role"] == "assistant"])
some_result = st.sampled_from([m for m in FEW if m["role"] == "tool"])
some_name = st.sampled_from(NAMES)
some_run = st.sampled_from(RUNS)
some_metadata = st.sampled_from([None, {}, {"k": 1}, {"k": 1.0, "s": "\ud800"}, {"k": True}])
anywhere = st.integers(-9, 9)
which = st.integers(0, 99)


def said(graph: MessageGraph) -> dict[str, Any]:
    """All that a graph says, as values that compare exactly; of equal messages, a store keeps one order of keys."""
    return {
        "whole": fingerprint(graph),
        "lines": canonical(graph.lines()),
        "rows": [
            (canonical(msgspec.to_builtins(row.messages)), row.trained, row.calls, row.tip) for row in graph.rows()
        ],
        "calls": graph.calls(),
        "versions": [
            (v.reason, v.index, v.tip, canonical(v.replaced), canonical(v.replacement)) for v in graph.versions
        ],
    }


def answer(store: Any, act: str, *args: Any, **rest: Any) -> Any:
    """What a store says to something asked of it; a typed refusal is an answer too."""
    try:
        return getattr(store, act)(*args, **rest)
    except StemmaError as refusal:
        return type(refusal)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=ROOMY)
        self.memory, self.file = MemoryStore(), self.open("store.db")
        self.other_memory, self.other_file = MemoryStore(), self.open("other.db")
        self.handles: list[MessageGraph] = []
        self.last: dict[str, dict[str, Any]] = {}
        """What each name was last saved as."""
        self.changed = False

    def open(self, name: str) -> SQLiteStore:
        return SQLiteStore(Path(self.folder.name, name))

    def teardown(self) -> None:
        self.file.close()
        self.other_file.close()
        self.folder.cleanup()

    def pick(self, number: int) -> MessageGraph:
        return self.handles[number % len(self.handles)]

    def both(self, act: str, *args: Any, **rest: Any) -> Any:
        """Ask both stores; they agree."""
        expected, found = answer(self.memory, act, *args, **rest), answer(self.file, act, *args, **rest)
        assert found == expected
        return found

    # ── handles ──────────────────────────────────────────────────────────────────────────────────────────────

    @initialize(new=some_messages)
    def make_the_first(self, new):
        self.handles.append(MessageGraph(new))

    @precondition(lambda self: len(self.handles) < 8)
    @rule(new=some_messages)
    def make(self, new):
        self.handles.append(MessageGraph(new))

    @rule(n=which, new=some_messages)
    def grow(self, n, new):
        self.pick(n).extend(new)

    @rule(n=which, message=some_reply, call=st.sampled_from(CALLS), times=st.integers(1, 2))
    def record(self, n, message, call, times):
        graph = self.pick(n)
        for _ in range(times):
            graph.record(message, call)

    @rule(n=which, message=some_reply, call=st.sampled_from(CALLS))
    def sample_the_same_reply_again(self, n, message, call):
        """Two calls equal in all: the same context, the same reply, nothing that tells them apart."""
        graph = self.pick(n)
        graph.record(message, call)
        graph.pop()
        graph.record(message, call)

    @rule(n=which, at=anywhere, to=anywhere, new=some_messages)
    def edit(self, n, at, to, new):
        self.pick(n)[at:to] = new

    @rule(n=which, at=anywhere, message=some_message)
    def edit_one(self, n, at, message):
        graph = self.pick(n)
        if graph:
            graph[at % len(graph)] = message

    @rule(n=which, at=anywhere)
    def take_out(self, n, at):
        graph = self.pick(n)
        if graph:
            del graph[at % len(graph)]

    @rule(n=which, reason=st.sampled_from(["compaction", "repair"]), new=some_messages, at=anywhere, m=some_message)
    def edit_in_a_block(self, n, reason, new, at, m):
        graph = self.pick(n)
        with graph.edit(reason=reason):
            graph[at:] = new
            graph.insert(at, m)
            graph.append(m)
            graph.reverse()

    @precondition(lambda self: len(self.handles) < 8)
    @rule(n=which, how=st.sampled_from([MessageGraph.fork, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]))
    def fork(self, n, how):
        """Another handle with the same past: with the same subagents, or with copies of them."""
        self.handles.append(how(self.pick(n)))

    @rule(n=which, m=which, result=some_result, twice=st.booleans())
    def contain(self, n, m, result, twice):
        """A subagent's conversation below another; it may grow later, contain others, and hang in several places."""
        graph, child = self.pick(n), self.pick(m)
        if len(graph.links()) > 4 or len(graph.reach()) > 6:
            return
        if graph in [*child.reach()] and any(graph is below for below in child.reach()):
            with pytest.raises(BadLink):
                graph.append(result, contains=child)
            return
        graph.append(result, contains=child)
        if twice:
            graph.attach(-1, child)

    # ── saving ───────────────────────────────────────────────────────────────────────────────────────────────

    @rule(n=which, name=some_name, run=some_run, metadata=some_metadata)
    def save(self, n, name, run, metadata):
        self.keep(self.pick(n), name, run=run, metadata=metadata)

    @rule(n=which)
    def save_under_two_names(self, n):
        self.keep(self.pick(n), "a")
        self.keep(self.pick(n), "b")

    @rule(n=which, name=some_name, message=some_message)
    def save_inside_a_block(self, n, name, message):
        graph = self.pick(n)
        with graph.edit(reason="compaction"):
            graph.insert(0, message)
            self.keep(graph, name)
            graph.append(message)

    def keep(self, graph: MessageGraph, name: str, **rest: Any) -> None:
        now = said(graph)
        if self.both("save", graph, name, **rest) is None:
            self.last[name] = now
        self.changed = True

    @precondition(lambda self: self.last)
    @rule(n=which, message=some_message, name=some_name)
    def a_stale_handle_is_refused(self, n, message, name):
        if name not in self.last:
            return
        one, other = self.load(name), self.load(name)
        one.append(message)
        self.keep(one, name)
        other.append({"role": "user", "content": "late"})
        assert self.both("save", other, name) is NameTaken
        assert self.both("save", other, name) is NameTaken

    @precondition(lambda self: self.last)
    @rule(name=some_name, message=st.sampled_from(FEW[:3]))
    def another_handle_goes_away_and_comes_back(self, name, message):
        """Then the first handle is not stale: the name holds what it knows."""
        if name not in self.last:
            return
        first, other = self.load(name), self.load(name)
        other.append(message)
        self.keep(other, name)
        other.pop()
        self.keep(other, name, metadata={"by": "another"})
        first.append({"role": "user", "content": "on"})
        self.keep(first, name)
        assert self.last[name] == said(first)

    @rule(n=which, name=some_name, run=some_run)
    def a_save_that_is_refused_changes_nothing(self, n, name, run):
        assert self.both("save", self.pick(n), name, run=run, metadata={"k": {1}}) is BadMessage
        self.changed = True

    @rule(run=st.sampled_from(["run-1", "run-3"]), metadata=some_metadata)
    def save_a_run(self, run, metadata):
        self.both("save_run", run, metadata or {})
        self.changed = True

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.handles) < 8)
    @rule(name=some_name)
    def go_on_from_what_is_stored(self, name):
        if name in self.last:
            self.handles.append(self.load(name))
        else:
            assert self.both("load", name) is NotFound

    def load(self, name: str) -> MessageGraph:
        """A handle that both stores know as loaded from them."""
        found, expected = self.file.load(name), self.memory.load(name)
        assert said(found) == said(expected)
        found.marks.update(expected.marks)
        return found

    @rule(n=which, length=st.integers(1, 4), of_messages=st.booleans(), odd=st.sampled_from(["", "x", "A", "é"]))
    def find(self, n, length, of_messages, odd):
        graph = self.pick(n)
        ids = [m.id.hex() for m in graph._line] if of_messages else [node.hex() for node in graph.node_ids()]
        for prefix in [name[:length] for name in ids[-2:]] + ids[-1:] + [odd]:
            found, expected = self.file.find(prefix), self.memory.find(prefix)
            assert {(one.kind, one.id) for one in found} == {(one.kind, one.id) for one in expected}
            for one in found:
                assert one.id == self.at(one)

    def at(self, place: Any) -> str:
        """The id of what stands at a place."""
        graph = self.file.load(place.graph)
        for number in place.path:
            graph = graph.links()[number][1]
        line = graph._line if place.version is None else graph.versions[place.version].line()
        if place.kind == "message":
            return line[place.index].id.hex()
        return MessageGraph(line[: place.index + 1]).tip

    # ── the file ─────────────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def reopen(self):
        """A store that was opened anew knows no handle; one that says exactly what is stored may go on."""
        self.file.close()
        self.file = self.open("store.db")
        for graph in [below for handle in self.handles for below in handle.reach()]:
            graph.marks.clear()
        self.changed = True

    @rule()
    def both_merge_into_a_third(self):
        report = self.other_memory.merge(self.memory)
        assert self.other_file.merge(self.file) == report
        again = self.other_file.merge(self.file)
        assert (again.added, again.renamed) == ([], {})
        assert self.other_file.graphs() == self.other_memory.graphs()
        assert self.other_file.runs() == self.other_memory.runs()
        assert self.other_file.verify() == []
        for name in {*report.added, *report.same}:
            assert said(self.other_file.load(name)) == said(self.other_memory.load(name))
        held = {fingerprint(self.other_file.load(info.name)) for info in self.other_file.graphs()}
        assert held >= {saved["whole"] for saved in self.last.values()}

    # ── what is true after each step ─────────────────────────────────────────────────────────────────────────

    @invariant()
    def both_hold_what_was_saved(self):
        if not self.changed:
            return
        self.changed = False
        infos = self.both("graphs")
        assert sorted(self.last) == [info.name for info in infos]
        self.both("runs")
        for run in RUNS[1:]:
            self.both("graphs", run)
        for name, expected in self.last.items():
            assert said(self.file.load(name)) == expected
            assert said(self.memory.load(name)) == expected
        assert self.file.verify() == []
        assert self.memory.verify() == []


class TestStoreMachine(StoreMachine.TestCase):
    settings = settings(max_examples=250, stateful_step_count=30)


@pytest.mark.slow
class TestStoreMachineForLong(StoreMachine.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=50)
