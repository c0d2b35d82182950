"""MessageGraph against a plain list of dicts and a log of snapshots: whatever one does to it, in any order.

The model is a list that an author would have used, and the user's rule applied to it by comparing before and after:
a version is logged exactly if something changed and an assistant message stood at or after the first difference.
"""

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product, starmap
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hostile import NASTY, SAME_IN_PYTHON, messages
from stemma import Call, MessageGraph
from stemma.errors import BadMessage, NotAList, StaleView

Dict = dict[str, Any]


def exact(value: Any) -> str:
    """What a JSON value is: types count (True, 1, 1.0), the order of keys does not, split surrogates stay split."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def first_difference(old: list[str], new: list[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def common_tail(old: list[str], new: list[str]) -> int:
    return first_difference(old[::-1], new[::-1])


def call(name: str, *args: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": "".join(args) or "{}"}}


FEW = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {"role": "user", "content": "V"},
    {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "text", "text": "V", "n": [1, [2]]}]},
    {"role": "assistant", "content": "A"},
    {"role": "assistant", "content": "B", "reasoning": "why"},
    {"role": "assistant", "content": None, "tool_calls": [call("t1"), call("t2", '{"a": 1, "a": 2}')]},
    {"role": "tool", "tool_call_id": "t1", "content": "T"},
    {"role": "user", "content": "U", "x": True, "y": {"z": {}, "e": []}},
    {"role": "user", "content": "U", "x": 1, "y": {"z": {}, "e": []}},
    {"role": "user", "content": "U", "x": 1.0, "y": {"z": {}, "e": []}},
]
"""Few enough that equal ones meet, and prefixes are broken and mended again."""

HOSTILE = [{"role": "user" if i % 2 else "assistant", "content": text, text: [text]} for i, text in enumerate(NASTY)]

# Everything below is picked from a list, in one draw each: a step is cheap, so there can be many.
ANYWHERE = range(-9, 10)
SLICES = list(starmap(slice, product([None, *ANYWHERE], [None, *ANYWHERE], [None, None, 1, -1, 2, -2, 3, -3])))
VALUES = [*SAME_IN_PYTHON, "U", "V", "", "\ud83d\ude00", "😀", None, [], {}, [1], {"k": True}, [{"text": "U"}]]
KEYS = ["role", "content", "tool_calls", "x", "y", "z", "k", "text", "function", "arguments"]
FIELDS = [{}, *({key: value} for key in KEYS for value in VALUES), {"x": 1, "content": []}, {"y": 1.0, "role": None}]
LISTS = [[], *([value] for value in VALUES), [1, True], [{"text": "V"}, "U", []]]
BAD = [float("nan"), 2**64, {1: 2}, {"deep": [{4, 5}]}, object()]
REASONS = ["compaction", "resample", "repair", "mine"]


def pick(values: Iterable[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(values)).map(copy.deepcopy)


some_message = pick(FEW * 4 + HOSTILE)
some_messages = pick([[], *([m] for m in FEW), *([one, two] for one in FEW for two in FEW[::3]), FEW[1:5], FEW[2:9:2]])
anywhere = pick(ANYWHERE)
some_slice = pick(SLICES)

on_a_dict = st.one_of(
    pick(("__setitem__", pair) for pair in product(KEYS, VALUES)),
    pick(("setdefault", pair) for pair in product(KEYS, VALUES)),
    pick((name, (fields,)) for name in ("update", "__ior__") for fields in FIELDS),
    pick((name, (key,)) for name in ("__delitem__", "pop") for key in KEYS),
    pick([*(("pop", (key, "none")) for key in KEYS), *[("popitem", ()), ("clear", ())] * 3]),
)
on_a_list = st.one_of(
    pick((name, (value,)) for name in ("append", "remove") for value in VALUES),
    pick((name, (values,)) for name in ("extend", "__iadd__") for values in LISTS),
    pick((name, pair) for name in ("insert", "__setitem__") for pair in product(ANYWHERE, VALUES)),
    pick(("__setitem__", pair) for pair in product(SLICES[::7], LISTS[::3])),
    pick((name, (i,)) for name in ("__delitem__", "pop") for i in ANYWHERE),
    pick(("__delitem__", (where,)) for where in SLICES),
    pick([*((name, ()) for name in ("pop", "clear", "reverse", "sort")), *(("__imul__", (n,)) for n in (-1, 0, 1, 2))]),
)


def is_message(value: Any) -> bool:
    return isinstance(value.get("role"), str) and value["role"] != ""


def parts_of(value: Any) -> Iterator[tuple[Any, ...]]:
    """The paths to every dict and list inside a message, the message itself first."""
    yield ()
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    for step, item in steps:
        if isinstance(item, dict | list):
            yield from ((step, *rest) for rest in parts_of(item))


def follow(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def assert_plain(value: Any) -> None:
    """Nothing in it writes to a graph any more."""
    assert type(value) in (dict, list, str, int, float, bool, type(None), tuple)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        assert_plain(item)


class ListMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.graph = MessageGraph()
        self.model: list[Dict] = []
        self.log: list[dict[str, Any]] = []  # the versions that must have been kept
        self.nodes: list[str] = []  # the ids of their tips, as first seen
        self.blocks: list[Any] = []  # open `with graph.edit()` blocks
        self.before: list[Dict] = []  # the line when the outermost of them began
        self.reason = ""
        self.sampled: list[dict[str, Any]] = []  # what each call saw and made, when it was recorded
        self.forks: list[tuple[MessageGraph, list[str], int]] = []
        self.held: list[tuple[Any, Any, int]] = []  # views, a part of each, and where they were read

    @initialize(start=some_messages)
    def begin(self, start):
        self.graph, self.model = MessageGraph(start), copy.deepcopy(start)

    # ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────

    def apply_the_rule(self, old: list[Dict], reason: str) -> None:
        """Log a version if the way from `old` to the model broke a prefix."""
        was, now = [exact(m) for m in old], [exact(m) for m in self.model]
        index = first_difference(was, now)
        if was == now or not any(m["role"] == "assistant" for m in old[index:]):
            return
        tail = common_tail(was[index:], now[index:])
        self.log.append(
            {
                "line": was,
                "index": index,
                "reason": reason,
                "replaced": was[index : len(was) - tail],
                "replacement": now[index : len(now) - tail],
            }
        )

    @contextmanager
    def editing(self) -> Iterator[None]:
        """What happens to the model in here is one edit, unless a block is open: then it waits for its end."""
        old = copy.deepcopy(self.model)
        yield
        if not self.blocks:
            self.apply_the_rule(old, "edit")

    def settle(self) -> None:
        """What a call, a fork or the end of a block does to an open block."""
        if self.blocks:
            self.apply_the_rule(self.before, self.reason)
            self.before = copy.deepcopy(self.model)

    def both(self, act: Callable[[Any], Any]) -> Any:
        """Do the same to the graph and to the model; they agree in what they return and in what they refuse."""
        with self.editing():
            try:
                expected = act(self.model)
            except (IndexError, ValueError, TypeError) as problem:
                with pytest.raises(type(problem)):
                    act(self.graph)
                return None
            found = act(self.graph)
        if expected is not self.model:
            assert exact(found) == exact(expected)
        return found

    # ── what a list can do ───────────────────────────────────────────────────────────────────────────────────

    @rule(message=some_message | messages())
    def append(self, message):
        self.both(lambda line: line.append(copy.deepcopy(message)))

    @rule(new=some_messages)
    def extend(self, new):
        self.both(lambda line: line.extend(iter(copy.deepcopy(new))))

    @rule(new=some_messages)
    def add_in_place(self, new):
        assert self.both(lambda line: line.__iadd__(copy.deepcopy(new))) is self.graph

    @rule(index=anywhere, message=some_message)
    def insert(self, index, message):
        self.both(lambda line: line.insert(index, copy.deepcopy(message)))

    @rule(index=anywhere, message=some_message)
    def set_one(self, index, message):
        self.both(lambda line: line.__setitem__(index, copy.deepcopy(message)))

    @rule(where=some_slice, new=some_messages)
    def set_slice(self, where, new):
        self.both(lambda line: line.__setitem__(where, copy.deepcopy(new)))

    @rule(index=anywhere)
    def delete_one(self, index):
        self.both(lambda line: line.__delitem__(index))

    @rule(where=some_slice)
    def delete_slice(self, where):
        self.both(lambda line: line.__delitem__(where))

    @rule(index=anywhere)
    def pop(self, index):
        taken = self.both(lambda line: line.pop(index))
        if taken is not None:
            assert_plain(taken)

    @rule()
    def pop_the_last(self):
        self.both(lambda line: line.pop())

    @rule(message=some_message)
    def remove(self, message):
        found = [exact(m) for m in self.model]
        if exact(message) not in found:
            with pytest.raises(ValueError, match="not in"):
                self.graph.remove(message)
            return
        with self.editing():
            del self.model[found.index(exact(message))]
            self.graph.remove(message)

    @rule()
    def reverse(self):
        self.both(lambda line: line.reverse())

    @precondition(lambda self: len(self.model) > 6)
    @rule()
    def clear(self):
        self.both(lambda line: line.clear())

    @rule(index=anywhere, other=anywhere)
    def move(self, index, other):
        """As an author would, and as two edits: pop it here, insert it there."""
        taken = self.both(lambda line: line.pop(index))
        if taken is not None:
            self.both(lambda line: line.insert(other, taken))

    @rule(index=anywhere, other=anywhere)
    def copy_a_message(self, index, other):
        self.both(lambda line: line.__setitem__(index, copy.deepcopy(line[other])))

    @rule()
    def sort_and_repeat_are_refused(self):
        with pytest.raises(NotAList):
            self.graph.sort()
        with pytest.raises(NotAList):
            self.graph *= 2

    @rule(index=anywhere, new=some_messages, bad=pick(BAD), data=st.data())
    def a_value_that_is_no_message_changes_nothing(self, index, new, bad, data):
        bad = data.draw(st.sampled_from([bad, {"role": "user", "content": bad}, {"content": "no role"}]))
        attempts: list[Callable[[], Any]] = [
            lambda: self.graph.append(bad),
            lambda: self.graph.extend([*new, bad]),
            lambda: self.graph.insert(index, bad),
            lambda: self.graph.__setitem__(slice(index, None), [*new, bad]),
            lambda: self.graph.record(bad, Call(model="m")),
        ]
        with pytest.raises(BadMessage):
            data.draw(st.sampled_from(attempts))()

    # ── what reading gives ───────────────────────────────────────────────────────────────────────────────────

    @rule(index=anywhere, where=some_slice)
    def read(self, index, where):
        self.both(lambda line: line[index])
        self.both(lambda line: line[where])
        assert exact(list(reversed(self.graph))) == exact(self.model[::-1])

    @rule(message=some_message, start=anywhere, stop=anywhere)
    def find(self, message, start, stop):
        texts = [exact(m) for m in self.model]
        wanted = exact(message)
        assert (message in self.graph) == (wanted in texts)
        assert self.graph.count(message) == texts.count(wanted)
        if wanted in texts[start:stop]:
            assert self.graph.index(message, start, stop) == texts.index(wanted, start, stop)
        else:
            with pytest.raises(ValueError, match="not in"):
                self.graph.index(message, start, stop)

    @rule(index=anywhere, message=some_message)
    def equality(self, index, message):
        other = copy.deepcopy(self.model)
        assert self.graph == other
        assert self.graph == MessageGraph(other)
        assert self.graph != [*other, message]
        other.insert(index, message)
        assert (self.graph == other) == (exact(self.model) == exact(other))

    # ── what an item can do, at any depth ────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def write_through_a_view(self, data):
        index = data.draw(st.integers(-len(self.model), len(self.model) - 1))
        path = data.draw(st.sampled_from(list(parts_of(self.model[index]))))
        part = follow(self.model[index], path)
        name, args = data.draw(on_a_dict if isinstance(part, dict) else on_a_list)
        self.write(index, path, lambda part, _: getattr(part, name)(*copy.deepcopy(args)))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def put_a_part_of_a_message_elsewhere_in_it(self, data):
        """What is put in is copied: a later write to one of the two does not reach the other."""
        index = data.draw(st.integers(-len(self.model), len(self.model) - 1))
        paths = list(parts_of(self.model[index]))
        target = data.draw(st.sampled_from(paths))
        around = [target[:depth] for depth in range(len(target) + 1)]  # these would contain themselves
        source = data.draw(st.sampled_from([path for path in paths if path not in around] or [None]))
        if source is None:
            return
        key, place = data.draw(pick(KEYS)), data.draw(anywhere)

        def put(part: Any, message: Any) -> Any:
            value = follow(message, source)
            value = copy.deepcopy(value) if type(message) is dict else value
            return part.__setitem__(key, value) if isinstance(part, dict) else part.insert(place, value)

        self.write(index, target, put)

    def write(self, index: int, path: tuple[Any, ...], act: Callable[[Any, Any], Any]) -> None:
        """Do the same to a part of a message and to its model."""
        view = self.graph[index]
        fresh = copy.deepcopy(self.model[index])
        try:
            expected = act(follow(fresh, path), fresh)
        except (KeyError, IndexError, ValueError, TypeError) as problem:
            with pytest.raises(type(problem)):
                act(follow(view, path), view)
            return
        if not is_message(fresh):
            with pytest.raises(BadMessage):
                act(follow(view, path), view)
            return
        with self.editing():
            found = act(follow(view, path), view)
            self.model[index] = fresh
        assert exact(found) == exact(expected)
        assert exact(view) == exact(fresh)
        assert self.graph[index] is view

    @precondition(lambda self: self.model)
    @rule(data=st.data(), bad=pick(BAD))
    def a_refused_write_changes_nothing(self, data, bad):
        index = data.draw(st.integers(0, len(self.model) - 1))
        path = data.draw(st.sampled_from(list(parts_of(self.model[index]))))
        part = follow(self.graph[index], path)
        with pytest.raises(BadMessage):
            part.update({"ok": 1, "bad": bad}) if isinstance(part, dict) else part.extend([1, bad])
        assert exact(self.graph[index]) == exact(self.model[index])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def hold_a_view(self, data):
        index = data.draw(st.integers(0, len(self.model) - 1))
        view = self.graph[index]
        part = follow(view, data.draw(st.sampled_from(list(parts_of(view)))))
        self.held.append((view, part, index))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=pick(VALUES))
    def write_through_a_view_held_since_long(self, data, value):
        """It is stale and writes nowhere, or it writes to the message it shows, at the place it was read."""
        view, part, index = data.draw(st.sampled_from(self.held))
        shown = exact(view)
        try:
            part.update(held=value) if isinstance(part, dict) else part.append(value)
        except StaleView:
            assert exact(view) == shown
            return
        assert shown == exact(self.model[index])
        with self.editing():
            self.model[index] = copy.deepcopy(view)

    # ── many edits as one, calls, forks ──────────────────────────────────────────────────────────────────────

    @rule(reason=pick(REASONS))
    def open_a_block(self, reason):
        block = self.graph.edit(reason=reason)
        block.__enter__()
        if not self.blocks:
            self.reason, self.before = reason, copy.deepcopy(self.model)
        self.blocks.append(block)

    @precondition(lambda self: self.blocks)
    @rule()
    def close_a_block(self):
        self.blocks.pop().__exit__(None, None, None)
        if not self.blocks:
            self.apply_the_rule(self.before, self.reason)

    @precondition(lambda self: self.blocks and self.before)
    @rule(data=st.data())
    def take_back_part_of_what_a_block_did(self, data):
        size = data.draw(st.integers(0, len(self.before)))
        self.graph[:size] = copy.deepcopy(self.before[:size])
        self.model[:size] = copy.deepcopy(self.before[:size])

    @rule(message=pick(m for m in FEW if m["role"] == "assistant"), named=st.booleans())
    def record(self, message, named):
        self.settle()
        saw = self.graph.tip
        self.graph.record(copy.deepcopy(message), Call(model="m", id=str(len(self.sampled)) if named else None))
        self.model.append(copy.deepcopy(message))
        self.settle()
        self.sampled.append({"line": [exact(m) for m in self.model], "saw": saw, "made": self.graph.tip})

    @rule(stay=st.booleans(), as_copy=st.booleans())
    def fork(self, stay, as_copy):
        self.settle()
        other = self.graph.copy() if as_copy else self.graph.fork()
        assert other == self.graph
        if stay or self.blocks:
            left = other
        else:
            left, self.graph, self.held = self.graph, other, []
        self.forks.append((left, [exact(m) for m in self.model], len(self.log)))

    @precondition(lambda self: not self.blocks)
    @rule()
    def every_call_is_where_it_was_recorded(self):
        found = self.graph.calls()
        assert [(one.saw, one.made) for one in found] == [(one["saw"], one["made"]) for one in self.sampled]
        for one, recorded in zip(found, self.sampled, strict=True):
            line = self.log[one.version]["line"] if one.version is not None else [exact(m) for m in self.model]
            assert line[: one.index + 1] == recorded["line"]

    # ── what is true after each step ─────────────────────────────────────────────────────────────────────────

    @invariant()
    def the_graph_is_the_list(self):
        texts = [exact(m) for m in self.model]
        assert [exact(m) for m in self.graph.messages()] == texts
        assert [exact(m) for m in self.graph] == texts
        assert len(self.graph) == len(texts)

    @invariant()
    def the_versions_are_the_log(self):
        versions = self.graph.versions
        assert len(versions) == len(self.log)
        for version in versions[len(self.nodes) :]:
            self.nodes.append(version.tip)
        if versions:
            self.assert_version(len(versions) - 1)
            assert self.graph.previous == versions[-1]
        else:
            assert self.graph.previous is None

    def assert_version(self, number: int) -> None:
        version, expected = self.graph.versions[number], self.log[number]
        assert [exact(m) for m in version.messages()] == expected["line"]
        assert (version.index, version.reason, len(version)) == (
            expected["index"],
            expected["reason"],
            len(expected["line"]),
        )
        assert [exact(m) for m in version.replaced] == expected["replaced"]
        assert [exact(m) for m in version.replacement] == expected["replacement"]
        assert version.tip == self.nodes[number]

    @precondition(lambda self: self.log)
    @rule()
    def nothing_recorded_ever_changes(self):
        for number in range(len(self.log)):
            self.assert_version(number)

    def teardown(self):
        while self.blocks:
            self.close_a_block()
        self.the_graph_is_the_list()
        self.the_versions_are_the_log()
        self.nothing_recorded_ever_changes()
        self.every_call_is_where_it_was_recorded()
        for graph, texts, versions in self.forks:
            assert [exact(m) for m in graph.messages()] == texts
            assert [[exact(m) for m in version] for version in graph.versions] == [
                logged["line"] for logged in self.log[:versions]
            ]


TestListMachine = ListMachine.TestCase
TestListMachine.settings = settings(max_examples=300, stateful_step_count=50)
