"""Conversations of every shape, and the oracle that knows what each reply was and in what context it was sampled.

A script is plain data that hypothesis draws: how a conversation opens, and steps. `World.build` plays scripts into
graphs. Beside every graph it keeps the same line as `Spoken` messages, so that for each sampled reply the oracle has
what was said, the exact context, and whether it may be trained, without asking the graph. Marks never repeat within a
world, so one store and one export can hold hundreds of conversations.
"""

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stemma import Call, MessageGraph, open_store
from truth.shapes import CONTEXTS, MARK, REPLIES, RESULTS, Marks, Spoken, heard, question, results_of, text

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Script:
    """One conversation before it is played."""

    opening: str
    tools: str
    steps: tuple[Step, ...]


PLAIN_REPLIES = ("text", "text", "one_call", "thought_in_reasoning")
PLAIN_CONTEXTS = ("question", "question", "question_parts")
CALL_FACTS = ("plain", "plain", "plain", "plain", "stop", "length", "content_filter", "untrainable", "undelivered",
              "ephemeral", "prefill")  # fmt: skip
TRAINED = ("plain", "stop", "ephemeral", "prefill")
"""Facts of calls whose replies may be trained."""
OPENINGS = ("system user", "user", "system user", "developer user", "system parts user", "system", "nothing",
            "two systems user", "assistant first")  # fmt: skip
TOOLS = ("none", "two", "two", "marker", "two then one")


def replies() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(PLAIN_REPLIES), st.sampled_from(sorted(REPLIES)))


def contexts() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(PLAIN_CONTEXTS), st.sampled_from(sorted(CONTEXTS)))


def says() -> st.SearchStrategy[Step]:
    results = st.one_of(st.just("plain"), st.sampled_from(RESULTS))
    return st.tuples(st.just("say"), replies(), st.sampled_from(CALL_FACTS), results)


def plain_says() -> st.SearchStrategy[Step]:
    return st.tuples(st.just("say"), st.sampled_from(PLAIN_REPLIES), st.just("plain"), st.just("plain"))


def hears() -> st.SearchStrategy[Step]:
    return st.tuples(st.just("hear"), contexts())


PLACES = st.integers(0, 7)


def changes() -> st.SearchStrategy[Step]:
    """Steps that do more than go on."""
    return st.one_of(
        st.tuples(st.just("write"), replies()),
        st.tuples(st.just("edit"), PLACES),
        st.tuples(st.just("edit part"), PLACES),
        st.tuples(st.just("delete"), PLACES),
        st.tuples(st.just("insert"), PLACES, contexts()),
        st.tuples(st.just("compact"), PLACES),
        st.tuples(st.just("resample"), replies()),
        st.tuples(st.just("fork"), replies()),
        st.tuples(st.just("subagent"), replies(), replies()),
        says(),  # right after whatever came before: two replies in a row
    )


def exchanges() -> st.SearchStrategy[tuple[Step, ...]]:
    """A question and its reply."""
    return st.tuples(hears(), says())


def plain_exchanges() -> st.SearchStrategy[tuple[Step, ...]]:
    return st.tuples(st.just(("hear", "question")), plain_says())


def scripts() -> st.SearchStrategy[Script]:
    later = st.lists(
        st.one_of(plain_exchanges(), exchanges(), changes().map(lambda step: (step,))), min_size=0, max_size=4
    )
    first = st.one_of(plain_says(), says())
    steps = st.tuples(first, later).map(lambda drawn: (drawn[0], *(step for some in drawn[1] for step in some)))
    return st.builds(Script, st.sampled_from(OPENINGS), st.sampled_from(TOOLS), steps)


def drawn(amount: int, start: int = 0) -> list[Script]:
    """As many scripts, always the same ones for the same `start`."""
    found: list[Script] = []

    @seed(start)
    @settings(
        max_examples=amount,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scripts())
    def collect(script: Script) -> None:
        found.append(script)

    collect()
    return found[:amount]


def every_shape() -> list[Script]:
    """Each shape of a reply, a context, a result, a call and an opening once, in the middle of a plain conversation."""
    asked = ("hear", "question")
    plain = ("say", "text", "plain", "plain")
    middles = [
        *(("say", shape, "plain", "plain") for shape in REPLIES),
        *(("say", "two_calls", "plain", how) for how in RESULTS),
        *(("say", "text", facts, "plain") for facts in dict.fromkeys(CALL_FACTS)),
        *(("hear", shape) for shape in CONTEXTS),
        *(("write", shape) for shape in PLAIN_REPLIES),
        *((change, place) for change in ("edit", "edit part", "delete", "compact") for place in range(4)),
        *(("insert", place, "question") for place in range(4)),
        *(("resample", "text"), ("fork", "text"), ("subagent", "one_call", "text")),
    ]
    found = [Script("system user", "two", (plain, asked, middle, asked, plain)) for middle in middles]
    found += [Script(opening, "two", (plain, asked, plain)) for opening in dict.fromkeys(OPENINGS)]
    return found + [Script("system user", tools, (plain, asked, plain, asked, plain)) for tools in dict.fromkeys(TOOLS)]


# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Reply:
    """A sampled reply, as it was sampled."""

    conversation: str
    script: Script
    spoken: Spoken
    context: tuple[Spoken, ...]
    sampled_context: tuple[bool, ...]
    """Which messages of the context are replies that may be trained, as they were sampled in exactly that place."""
    tools: list[dict[str, Any]] | None
    facts: str
    linear: bool = True
    """Whether its whole conversation is one line on which nothing was edited, forked or written by hand."""
    made: str = ""
    index: int = -1
    prompt_ids: list[int] = field(default_factory=list)
    sampled_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def mark(self) -> str | None:
        """The mark that names it; None if it says nothing."""
        return next(iter(self.spoken.marks()), None)

    @property
    def traits(self) -> frozenset[str]:
        own = {"length", "content_filter", "untrainable", "undelivered", "ephemeral", "prefill"} & {self.facts}
        return self.spoken.traits | own


@dataclass
class Talk:
    """A graph, and the same line as the oracle sees it."""

    name: str
    graph: MessageGraph
    line: list[Spoken] = field(default_factory=list)
    fresh: list[Reply | None] = field(default_factory=list)
    """For each message the reply it is, if it was sampled in exactly this place."""
    recorded: list[Reply] = field(default_factory=list)
    """In the order of `graph.calls()`."""
    linear: bool = True
    says: int = 0


class World:
    """Conversations whose marks and tokens never repeat."""

    def __init__(self, name: str = "c") -> None:
        self.name, self.marks = name, Marks()
        self.replies: list[Reply] = []
        self.talks: list[Talk] = []
        self.metadata: dict[str, dict[str, Any]] = {}
        self.vocabulary: dict[str, int] = {}
        self._numbers = count()

    def build(self, script: Script) -> None:
        """Play a script into a graph, and perhaps its forks."""
        talk = Talk(f"{self.name}{next(self._numbers):04d}", MessageGraph())
        talks = [talk]
        offered = self._tools(script.tools)
        for spoken in self._opening(script.opening):
            self._append(talk, spoken)
        for step in script.steps:
            self._play(talk, step, script, offered, talks)
        for one in talks:
            self._settle(one)
        self.talks += talks

    def _settle(self, talk: Talk) -> None:
        calls = talk.graph.calls()
        assert len(calls) == len(talk.recorded), "the oracle and the graph disagree on what was recorded"
        for sampled, reply in zip(calls, talk.recorded, strict=True):
            if not reply.made:
                reply.made, reply.index = sampled.made, sampled.index
            reply.linear = reply.linear and talk.linear

    def save(self, path: Path, talks: list[Talk] | None = None) -> Path:
        """All of it in one store."""
        with open_store(path) as store:
            for number, talk in enumerate(self.talks if talks is None else talks):
                about = {
                    "reward": (number % 5) / 4,
                    "group": f"{self.name}-group-{number // 3}",
                    "split": "a <b> column",
                }
                store.save(talk.graph, talk.name, metadata=self.metadata.setdefault(talk.name, about))
        return path

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def _play(self, talk: Talk, step: Step, script: Script, offered: Any, talks: list[Talk]) -> None:
        match step:
            case ("say", shape, facts, how):
                reply = self._say(talk, shape, facts, script, offered)
                for result in results_of(reply.spoken, how, self.marks):
                    self._append(talk, result)
            case ("hear", shape):
                self._append(talk, CONTEXTS[shape](self.marks, "C"))
            case ("write", shape):
                talk.linear = False
                written = REPLIES[shape](self.marks, "H")
                self._append(talk, written)
                for result in results_of(written, "plain", self.marks):
                    self._append(talk, result)
            case ("resample", shape):
                self._resample(talk, shape, script, offered)
            case ("fork", shape):
                self._fork(talk, shape, script, offered, talks)
            case ("subagent", asking, answering):
                self._subagent(talk, asking, answering, script, offered)
            case (change, place, *rest) if talk.line:
                talk.linear = False
                self._change(talk, change, place % len(talk.line), rest)

    def _change(self, talk: Talk, change: str, at: int, rest: list[str]) -> None:
        match change:
            case "edit":
                self._replace(talk, at, at + 1, [self._edited(talk.line[at])])
            case "edit part":
                self._replace(talk, at, at + 1, [self._partly_edited(talk.line[at])])
            case "delete":
                self._replace(talk, at, at + 1, [])
            case "insert":
                self._replace(talk, at, at, [CONTEXTS[rest[0]](self.marks, "C")])
            case "compact":
                words = self.marks.text("C")
                with talk.graph.edit(reason="compaction"):
                    self._replace(talk, at, len(talk.line), [heard("user", words, (words,))])

    def _edited(self, spoken: Spoken) -> Spoken:
        """Other words of the same speaker."""
        words = self.marks.text("E")
        message = {key: value for key, value in spoken.message.items() if key in ("role", "tool_call_id", "name")}
        return Spoken({**message, "content": words}, texts=(words,), traits=spoken.traits & {"unknown role", "marker"})

    def _partly_edited(self, spoken: Spoken) -> Spoken:
        """Other text; thoughts and calls stay as they were."""
        words = self.marks.text("E")
        if spoken.content() is None and not spoken.message.get("tool_calls"):
            return self._edited(spoken)
        return Spoken(
            {**spoken.message, "content": words}, spoken.reasoning, (words,), spoken.calls, spoken.traits - {"empty"},
            spoken.answers, spoken.results,
        )  # fmt: skip

    def _replace(self, talk: Talk, start: int, stop: int, new: list[Spoken]) -> None:
        talk.graph[start:stop] = [spoken.message for spoken in new]
        talk.line[start:stop] = new
        talk.fresh[start:] = [None] * (len(talk.line) - start)

    def _append(self, talk: Talk, spoken: Spoken) -> None:
        talk.graph.append(spoken.message)
        talk.line.append(spoken)
        talk.fresh.append(None)

    def _resample(self, talk: Talk, shape: str, script: Script, offered: Any) -> None:
        last = next((at for at in range(len(talk.line) - 1, -1, -1) if talk.line[at].speaker == "assistant"), None)
        if last is not None:
            talk.linear = False
            del talk.graph[last:]
            del talk.line[last:], talk.fresh[last:]
        self._say(talk, shape, "plain", script, offered)

    def _fork(self, talk: Talk, shape: str, script: Script, offered: Any, talks: list[Talk]) -> None:
        name = f"{talk.name}-fork{len(talks)}"
        other = Talk(name, talk.graph.fork(), talk.line.copy(), talk.fresh.copy(), talk.recorded.copy(), False)
        talk.linear = False
        talks.append(other)
        self._append(other, question(self.marks, "C"))
        self._say(other, shape, "plain", script, offered)

    def _subagent(self, talk: Talk, asking: str, answering: str, script: Script, offered: Any) -> None:
        reply = self._say(talk, "one_call", "plain", script, offered)
        child = Talk(talk.name, MessageGraph())
        self._append(child, question(self.marks, "C"))
        for shape in (asking, answering):
            said = self._say(child, shape, "plain", script, offered)
            for result in results_of(said.spoken, "plain", self.marks):
                self._append(child, result)
            self._append(child, question(self.marks, "C"))
        self._settle(child)
        for result in results_of(reply.spoken, "plain", self.marks):
            self._append(talk, result)
        talk.graph.attach(len(talk.line) - 1, child.graph)

    # ── what is recorded ─────────────────────────────────────────────────────────────────────────────────────

    def _say(self, talk: Talk, shape: str, facts: str, script: Script, offered: Any) -> Reply:
        talk.says += 1
        tools = offered[:1] if script.tools == "two then one" and talk.says > 2 else offered
        spoken = REPLIES[shape](self.marks, "S")
        reply = Reply(
            conversation=talk.name, script=script, spoken=spoken, context=tuple(talk.line),
            sampled_context=tuple(one is not None and one.facts in TRAINED for one in talk.fresh),
            tools=tools, facts=facts,
        )  # fmt: skip
        talk.graph.record(spoken.message, self._call(reply))
        talk.line.append(spoken)
        talk.fresh.append(reply)
        talk.recorded.append(reply)
        self.replies.append(reply)
        return reply

    def _call(self, reply: Reply) -> Call:
        facts, extra = reply.facts, dict[str, Any]()
        finish = {"stop": "stop", "length": "length", "content_filter": "content_filter"}.get(facts)
        if facts == "untrainable":
            extra["trainable"] = False
        elif facts == "undelivered":
            extra["delivered"] = False
        elif facts == "ephemeral":
            extra["ephemeral"] = self.marks.text("X")
        elif facts == "prefill":
            extra["prefill"] = [{"role": "user", "content": self.marks.text("X")}]
        reply.prompt_ids = self._prompt(reply, str(extra.get("ephemeral", "")) + str(extra.get("prefill", "")))
        reply.sampled_ids = [*self._ids(reply.spoken), self._id("</>")]
        reply.logprobs = [-token / 4096 for token in reply.sampled_ids]
        return Call(
            model="m", tools=reply.tools, finish_reason=finish, extra=extra, started=1.79e9 + len(self.replies),
            prompt_ids=reply.prompt_ids, sampled_ids=reply.sampled_ids, logprobs=reply.logprobs,
        )  # fmt: skip

    def _prompt(self, reply: Reply, only_this_call: str) -> list[int]:
        tools = [self._id(f"tool:{tool['function']['name']}") for tool in reply.tools or []]
        said = [token for spoken in reply.context for token in self._turn(spoken)]
        hidden = [self._id(mark) for mark in MARK.findall(only_this_call)]
        return [self._id("<>"), *tools, *said, *hidden, self._id("<assistant>")]

    def _turn(self, spoken: Spoken) -> list[int]:
        return [self._id(f"<{spoken.speaker}>"), *self._ids(spoken), self._id("</>")]

    def _ids(self, spoken: Spoken) -> list[int]:
        """An id for each mark; what has none gets one for what it is."""
        return [self._id(mark) for mark in spoken.marks()] or [self._id(f"nothing {spoken.message!r}")]

    def _id(self, word: str) -> int:
        return self.vocabulary.setdefault(word, len(self.vocabulary) + 1)

    # ── how it begins ────────────────────────────────────────────────────────────────────────────────────────

    def _tools(self, how: str) -> list[dict[str, Any]] | None:
        if how == "none":
            return None
        described = {name: self.marks.text("D") for name in ("search", "measure")}
        if how == "marker":
            described["search"] += " <|im_end|>"
        schema = {"type": "object", "properties": {"q": {"type": "string"}}}
        return [
            {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}
            for name, words in described.items()
        ]

    def _opening(self, how: str) -> list[Spoken]:
        def system(role: str = "system") -> Spoken:
            words = self.marks.text("C")
            return heard(role, words, (words,))

        def parts() -> Spoken:
            words = self.marks.text("C")
            return heard("system", [{"type": "text", "text": words}], (words,))

        asked = [question(self.marks, "C")] if how.endswith("user") else []
        before = {
            "system user": lambda: [system()],
            "developer user": lambda: [system("developer")],
            "system parts user": lambda: [parts()],
            "system": lambda: [system()],
            "two systems user": lambda: [system(), system()],
            "assistant first": lambda: [text(self.marks, "H"), question(self.marks, "C")],
        }
        return [*before.get(how, list)(), *asked]
