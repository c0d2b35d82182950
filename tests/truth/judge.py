"""Holds what a trainer would train on against what was sampled.

For every sampled reply: it is trained exactly once, byte for byte, after exactly its context; or the receipts list it
as excluded, with a reason. Nothing else is trained. The report's counts agree, in replies. A reply that no format has
a difficulty with must be trained, and one that nobody may train must not be: `duty` says which.

What a format forces is allowed where the row says so, with `on_policy: false` and a reason in `off_policy`: a generated
system prompt in place of the conversation's own (hermes), tools written as text (unsloth), questions merged into one
(llamafactory), arguments in the context that are no JSON. A row that says so without such a cause is a fault, too.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile
from typing import Any, Literal

from truth.conversations import Reply, World
from truth.readers import RAW_ARGUMENTS, Export, Row, TokenRow, Turn
from truth.shapes import MARK, Spoken, ToolCall, parsed

Duty = Literal["train", "leave out", "either"]

NEVER = {"empty", "refusal", "media", "function_call", "custom", "redacted", "unknown part",
         "untrainable", "undelivered"}  # fmt: skip
"""Replies that no text preset trains."""
HARMLESS = {"padded", "ephemeral", "prefill"}
"""Traits that no format has a difficulty with."""
UNKNOWN = "?"
"""A finish reason that the path does not let one know."""
KEEP_BROKEN_ARGUMENTS = ("openai", "parquet")
EVERY_TURN = ("llamafactory", "unsloth")
"""Formats that train every turn of the model, so that a row cannot have one as context."""
ALTERNATING = ("llamafactory", "llamafactory-turns")
RESIDUE = re.compile(r"(?:\s|\0|</?think>)*")
"""What may stand between the texts of a reply: space, and the tags of a thought."""

MARKER = re.compile(r"<\|im_(?:start|end)\|>")
"""What would begin or end a turn of the template; in JSON within a text it must be escaped."""


@dataclass(frozen=True)
class Fault:
    """Something that is not true of an export."""

    problem: str
    """The class of fault."""
    preset: str
    path: str
    conversation: str
    mark: str
    detail: str = ""

    def __str__(self) -> str:
        return f"[{self.preset} · {self.path}] {self.problem}: {self.conversation} {self.mark} {self.detail}"


@dataclass(frozen=True)
class Expected:
    """A reply that is either trained or accounted for."""

    label: str
    """The first of its marks; something else that names it if it has none."""
    conversation: str
    thoughts: tuple[str, ...]
    texts: tuple[str, ...]
    calls: tuple[ToolCall, ...]
    marks: frozenset[str]
    context: tuple[tuple[str, tuple[str, ...]], ...]
    """For each message before it the speaker and the marks."""
    tools: tuple[str, ...]
    duty: Duty
    content: str | None = None
    """The content byte for byte, where a format that has such a field must keep it."""
    system: str | None = None
    """The text of the conversation's only system message."""
    on_policy: bool | None = True
    """Whether the model saw its context and nothing else; None if the path does not let one know."""
    differs: bool = False
    """Whether the format forces the context to differ, as far as the format's rules are known here."""
    unspeakable: frozenset[str] = frozenset()
    """Marks of arguments in the context that are no JSON, which some formats cannot say."""
    raw: bool = True
    """Whether arguments are still the string that was received."""
    finish_reason: str | None = None
    pieces: tuple[tuple[str, str], ...] = ()
    """The texts of the context byte for byte, each with its speaker; none where only marks are known."""
    columns: tuple[tuple[str, Any], ...] = ()
    """The dataset's own columns."""
    shape: str = ""
    """What it is, for whoever reads the fault."""


def label_of(marks: Iterable[str]) -> str | None:
    """The mark that names a reply: the first that was given out."""
    return min((mark for mark in marks if mark[0] == "S"), key=lambda mark: int(mark[1:-1]), default=None)


def empty_label(context: Iterable[str]) -> str:
    """What names a reply that says nothing: the newest text before it."""
    return f"the empty reply after {max(context, key=lambda mark: int(mark[1:-1]), default='nothing')}"


def expected_of(
    reply: Reply, preset: str, columns: Mapping[str, Any] | None = None, keep_truncated: bool = False
) -> Expected:
    """What is expected of an export that comes straight from the store."""
    spoken = reply.spoken
    systems = [one for one in reply.context if one.speaker == "system"]
    traits = " ".join(sorted(reply.traits)) or "plain"
    finish = {"stop": "stop", "length": "length", "content_filter": "content_filter"}.get(reply.facts)
    return Expected(
        label=label_of(spoken.marks()) or empty_label(mark for one in reply.context for mark in one.marks()),
        conversation=reply.conversation,
        thoughts=spoken.reasoning,
        texts=spoken.texts,
        calls=spoken.calls,
        marks=frozenset(spoken.marks()),
        context=tuple((one.speaker, one.marks()) for one in reply.context),
        tools=described(reply.tools),
        duty=duty(reply, preset, keep_truncated),
        content=spoken.content(),
        system=systems[0].content() if len(systems) == 1 else None,
        on_policy=reply.facts not in ("ephemeral", "prefill"),
        differs=_differs(reply, preset),
        unspeakable=frozenset(
            mark
            for one in reply.context
            if "bad arguments" in one.traits
            for called in one.calls
            for mark in MARK.findall(json.dumps(called.arguments))
        ),
        finish_reason=finish,
        pieces=tuple((one.speaker, text) for one in reply.context for text in (*one.reasoning, *one.texts)),
        columns=tuple((columns or {}).items()),
        shape=f"({traits}; after {', '.join(sorted({t for one in reply.context for t in one.traits})) or 'plain'})",
    )


def _differs(reply: Reply, preset: str) -> bool:
    """Whether a format may have to show another context than the model saw."""
    context = reply.context
    if preset in ("openai", "parquet"):
        return False
    if any(one.message["role"] == "developer" or "bad arguments" in one.traits for one in (*context, reply.spoken)):
        return True
    speakers = [one.speaker for one in context if one.speaker != "system"]
    merged = any("assistant" not in pair for pair in pairwise(speakers))
    return (
        preset == "hermes"
        or (preset == "unsloth" and bool(reply.tools))
        or (preset in ALTERNATING and (merged or len([one for one in context if one.speaker == "system"]) > 1))
    )


def described(tools: Any) -> tuple[str, ...]:
    return tuple(MARK.findall(json.dumps(tools)))


def duty(reply: Reply, preset: str, keep_truncated: bool = False) -> Duty:
    """Whether a text preset must train a reply, must not, or may do either as long as it says so."""
    traits = reply.traits
    cut = traits & {"length", "content_filter"}
    if traits & NEVER or (cut and not keep_truncated):
        return "leave out"
    if "bad arguments" in traits and preset not in KEEP_BROKEN_ARGUMENTS:
        return "leave out"
    if traits - HARMLESS - {"length"} or any(one.traits - HARMLESS for one in reply.context):
        return "either"
    return "train" if _fits(reply, preset) else "either"


def _fits(reply: Reply, preset: str) -> bool:
    """Whether a row of this preset can hold a reply without difficulty after a context without difficulty."""
    speakers = [one.speaker for one in reply.context if one.speaker != "system"]
    if not speakers or speakers[0] != "user" or speakers[-1] == "assistant":
        return False
    if any("<|im_end|>" in json.dumps(tool) for tool in reply.tools or []):
        return False
    inside = [one.speaker for one in dropwhile(lambda one: one.speaker == "system", reply.context)]
    if preset in ALTERNATING and "system" in inside:
        return False
    if any(one == two == "assistant" for one, two in pairwise(speakers)):
        return False
    if not all(_answered(reply.context, at) for at in range(len(reply.context))):
        return False
    sampled = all(
        fresh for one, fresh in zip(reply.context, reply.sampled_context, strict=True) if one.speaker == "assistant"
    )
    return preset not in EVERY_TURN or (reply.linear and sampled and reply.script.tools != "two then one")


def _answered(context: tuple[Spoken, ...], at: int) -> bool:
    """Whether results follow the calls at `at`, as many as there are; and whether results follow calls."""
    spoken = context[at]
    if spoken.answers:
        return at > 0 and (bool(context[at - 1].calls) or context[at - 1].answers)
    if not spoken.calls:
        return True
    after = [one for one in context[at + 1 : at + 1 + len(spoken.calls)] if one.answers]
    return len(after) == (1 if spoken.results != "tool" else len(spoken.calls))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────

Identify = Callable[[dict[str, Any]], list[str]]
"""The labels of the replies that a line of the receipts may mean: several if they are alike in everything."""


class TextJudge:
    """Judges one export of a preset that takes text."""

    def __init__(self, export: Export, expected: list[Expected], path: str, identify: Identify) -> None:
        self.export, self.path, self.identify = export, path, identify
        self.expected = _numbered(expected)
        self.of_mark = {mark: one for one in expected for mark in one.marks}
        self.trained: Counter[str] = Counter()
        self.faults: list[Fault] = []

    def fault(self, problem: str, where: str, mark: str, detail: str = "") -> None:
        self.faults.append(Fault(problem, self.export.preset, self.path, where, mark, detail[:400]))

    def alike(self, name: str) -> list[str]:
        """The replies of that name: several only if they say nothing."""
        labels = [name, *(f"{name} #{number}" for number in range(1, 100))]
        return list(takewhile(lambda label: label in self.expected, labels))

    def judge(self) -> list[Fault]:
        for row in self.export.rows:
            self._row(row)
        self._replies()
        self._counts()
        return self.faults

    def _row(self, row: Row) -> None:
        trained = [self._turn(row, at) for at, turn in enumerate(row.turns) if turn.trained]
        known = [one for one in trained if one is not None]
        where = known[0].conversation if known else f"row {row.number}"
        if not trained:
            self.fault("a row trains nothing", where, "")
        for problem in row.problems:
            self.fault(problem, where, known[-1].label if known else "")
        said = {name: value for name, value in row.record.items() if name not in ("id", "metadata")}
        if MARKER.search(json.dumps(said, ensure_ascii=False)):
            self.fault("a control marker is written", where, known[-1].label if known else "")
        if known:
            self._columns(row, known)

    def _turn(self, row: Row, at: int) -> Expected | None:
        turn = row.turns[at]
        marks = turn.marks()
        found = next((self.of_mark[mark] for mark in marks if mark in self.of_mark), None)
        where = found.conversation if found else f"row {row.number}"
        for mark in marks:
            if mark[0] != "S":
                kind = {"H": "hand-written", "E": "edited", "X": "ephemeral", "C": "context", "D": "tools"}[mark[0]]
                self.fault(f"{kind} text is trained", where, mark, turn.text)
            elif mark not in self.of_mark:
                self.fault("a reply is trained that nobody may train here", where, mark, turn.text)
            elif found and mark not in found.marks:
                self.fault("two replies are trained as one", where, mark)
        if found is None:
            if not marks:
                self.fault("an empty turn is trained", where, "", f"turn {at}: {turn.text!r}")
            return None
        self.trained[found.label] += 1
        self._said(turn, found)
        self._context(row, at, found)
        return found

    def _said(self, turn: Turn, wanted: Expected) -> None:
        def fault(problem: str, detail: str) -> None:
            self.fault(problem, wanted.conversation, wanted.label, f"{wanted.shape} {detail}")

        if turn.speaker != "assistant":
            fault("a turn of another speaker is trained", turn.speaker)
        rest, lost = remains(turn.text, (*wanted.thoughts, *wanted.texts))
        if lost:
            fault("sampled text is lost or changed", f"{lost!r} is not in {turn.text!r}")
        elif not RESIDUE.fullmatch(rest):
            fault("text is trained that nobody sampled", repr(rest.strip()))
        elif wanted.content is not None and turn.content is not None and turn.content != wanted.content:
            fault("content is changed", f"{wanted.content!r} → {turn.content!r}")
        self._calls(turn, wanted, fault)

    def _calls(self, turn: Turn, wanted: Expected, fault: Callable[[str, str], None]) -> None:
        if [call.name for call in turn.calls] != [call.name for call in wanted.calls]:
            fault("calls are lost or made up", f"{wanted.calls} → {turn.calls}")
            return
        for sampled, written in zip(wanted.calls, turn.calls, strict=True):
            raw = wanted.raw and self.export.preset in RAW_ARGUMENTS and isinstance(sampled.arguments, str)
            same = sampled.arguments == written.arguments if raw else sampled.parsed() == parsed(written.arguments)
            if not same:
                fault("arguments are changed", f"{sampled.arguments!r} → {written.arguments!r}")

    def _context(self, row: Row, at: int, wanted: Expected) -> None:
        hermes, lost = self.export.preset == "hermes" and row.turns[0].text != wanted.system, set[str]()
        shown = flat((turn.speaker, turn.marks()) for turn in row.turns[:at])
        meant = flat((speaker, marks) for speaker, marks in wanted.context if not (hermes and speaker == "system"))
        if shown != meant and row.record.get("on_policy") is False:
            meant = [mark for mark in meant if mark[1] not in wanted.unspeakable]
        if shown != meant:
            missing = [mark for mark in meant if mark not in shown]
            lost = {mark for _, mark in missing}
            extra = [mark for mark in shown if mark not in meant]
            detail = f"{wanted.shape} missing {missing}, extra {extra}" if missing or extra else f"{meant} → {shown}"
            problem = "missing from" if missing else "extra in" if extra else "another order in"
            self.fault(f"{problem} the context of a trained reply", wanted.conversation, wanted.label, detail)
        said = "\0".join(turn.text for turn in row.turns[:at])
        for speaker, piece in wanted.pieces:
            if not (_is_said(piece, said) or (hermes and speaker == "system") or set(MARK.findall(piece)) & lost):
                self.fault("text of the context is changed", wanted.conversation, wanted.label, repr(piece))
        if row.described() != wanted.tools:
            detail = f"offered {wanted.tools}, shown {row.described()}"
            self.fault("other tools than were offered", wanted.conversation, wanted.label, detail)

    def _columns(self, row: Row, known: list[Expected]) -> None:
        last, record = known[-1], row.record

        def fault(column: str, detail: str) -> None:
            self.fault(f"column `{column}` is missing or wrong", last.conversation, last.label, detail)

        for column in ("id", "model", "finish_reason", "on_policy", "metadata"):
            if column not in record:
                fault(column, "missing")
        if told := self._on_policy(row, known):
            fault("on_policy", f"{told} {last.shape}")
        metadata = row.metadata()
        for name, value in last.columns:
            if metadata.get(name) != value:
                fault(f"metadata.{name}", f"{value} → {metadata.get(name)}")
        if self.path == "store" and record.get("id") != last.conversation:
            fault("id", f"{last.conversation} → {record.get('id')}")
        if last.finish_reason != UNKNOWN and (record.get("finish_reason") or None) != last.finish_reason:
            fault("finish_reason", f"{last.finish_reason} → {record.get('finish_reason')}")

    def _on_policy(self, row: Row, known: list[Expected]) -> str:
        """What is wrong with what a row says of its context."""
        says, why = row.record.get("on_policy"), row.record.get("off_policy", "")
        replaced = self.export.preset == "hermes" and any(row.turns[0].text != one.system for one in known)
        if type(says) is not bool:
            return f"is {says!r}"
        if says is bool(why):
            return f"is {says}, and `off_policy` is {why!r}"
        if says and (replaced or any(one.on_policy is False for one in known)):
            return "is true, and the model saw something else"
        if not says and not any(one.differs or one.on_policy is not True or _is_cause(why, one) for one in known):
            return f"is false without a cause: {why!r}"
        return ""

    def _replies(self) -> None:
        listed = Counter(self._identified())
        for label, one in self.expected.items():
            trained, excluded = self.trained[label], listed[label]
            if trained > 1:
                self.fault("a reply is trained more than once", one.conversation, label, f"{trained} times {one.shape}")
            if excluded > 1:
                self.fault("a reply is listed as excluded more than once", one.conversation, label, one.shape)
            if trained and excluded:
                self.fault("a reply is trained and listed as excluded", one.conversation, label, one.shape)
            if not trained and not excluded:
                self.fault("a reply is neither trained nor listed as excluded", one.conversation, label, one.shape)
            if trained and one.duty == "leave out":
                self.fault("a reply is trained that must be left out", one.conversation, label, one.shape)
            if not trained and one.duty == "train":
                self.fault("a plain reply is not trained", one.conversation, label, one.shape)

    def _identified(self) -> list[str]:
        found: list[str] = []
        for line in self.export.excluded():
            meant = [label for name in self.identify(line) for label in self.alike(name)]
            if not meant:
                self.fault("an excluded reply that nobody sampled", str(line.get("rollout")), "", str(line))
            elif not line.get("reason"):
                self.fault("an excluded reply without a reason", str(line.get("rollout")), meant[0])
            else:
                found.append(next((label for label in meant if label not in found), meant[0]))
        return found

    def _counts(self) -> None:
        report, trained = self.export.report, sum(self.trained.values())
        left = report.get("left_out", {})
        replies = [one.get("replies") if isinstance(one, dict) else None for one in left.values()]
        counts = {
            "written": (report.get("written"), len(self.export.rows)),
            "trained_messages": (report.get("trained_messages"), trained),
            "replies": (report.get("replies"), len(self.expected)),
            "left_out": (None if None in replies else sum(replies), len(self.expected) - trained),
        }
        for name, (told, true) in counts.items():
            if told != true:
                self.fault(f"report.json: `{name}` does not add up", "", "", f"says {told}, is {true}")


def _is_said(piece: str, text: str) -> bool:
    """Whether a text holds a piece, as it is or as JSON writes it; a marker may be escaped there."""
    text = text.replace("\\u003c", "<").replace("\\u005b", "[")
    return piece in text or json.dumps(piece, ensure_ascii=False)[1:-1] in text or json.dumps(piece)[1:-1] in text


def _numbered(expected: list[Expected]) -> dict[str, Expected]:
    """By label; replies that say nothing may share theirs, and get numbers."""
    found: dict[str, Expected] = {}
    for one in expected:
        again = (
            sum(label == one.label or label.startswith(f"{one.label} #") for label in found) if " " in one.label else 0
        )
        found[f"{one.label} #{again}" if again else one.label] = one
    return found


def remains(text: str, pieces: tuple[str, ...]) -> tuple[str, str | None]:
    """What is left of a text when its pieces are taken out in their order, and the first piece that is not there."""
    rest, at = "", 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            return rest + text[at:], piece
        rest += text[at:found] + "\0"
        at = found + len(piece)
    return rest + text[at:], None


def flat(said: Iterable[tuple[str, tuple[str, ...]]]) -> list[tuple[bool, str]]:
    """The marks one after another, each with whether the model says it; tools are looked at by themselves."""
    return [(speaker == "assistant", mark) for speaker, marks in said for mark in marks if mark[0] != "D"]


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def judge_tokens(preset: str, path: str, rows: list[TokenRow], world: World, export: Export) -> list[Fault]:
    """Every sampled token trained once after exactly its prompt, or its call listed as excluded."""
    return _TokenJudge(preset, path, world, export).judge(rows)


class _TokenJudge:
    def __init__(self, preset: str, path: str, world: World, export: Export) -> None:
        self.preset, self.path, self.world = preset, path, world
        self.words = {number: word for word, number in world.vocabulary.items()}
        self.by_prompt: dict[tuple[int, ...], list[Reply]] = defaultdict(list)
        for reply in world.replies:
            self.by_prompt[tuple(reply.prompt_ids)].append(reply)
        self.excluded = export.excluded()
        self.made = Counter(reply.made for reply in world.replies)
        self.trained: Counter[int] = Counter()
        self.faults: list[Fault] = []

    def fault(self, problem: str, reply: Reply | None, detail: str = "") -> None:
        where, mark = (reply.conversation, reply.mark or "") if reply else ("", "")
        self.faults.append(Fault(problem, self.preset, self.path, where, mark, detail[:400]))

    def judge(self, rows: list[TokenRow]) -> list[Fault]:
        for row in rows:
            for start, stop in spans(row.trained):
                self._span(row, start, stop)
        listed = self._listed()
        for reply in self.world.replies:
            self._reply(reply, self.trained[id(reply)], listed[reply.made])
        return self.faults

    def _listed(self) -> Counter[str]:
        """How often each reply is listed. A line that says only call and rollout means one of its untrained replies."""
        listed = Counter(line["made"] for line in self.excluded if "made" in line)
        waiting: dict[str, list[Reply]] = defaultdict(list)
        for reply in self.world.replies:
            if not self.trained[id(reply)] and not listed[reply.made]:
                waiting[reply.conversation].append(reply)
        for line in self.excluded:
            if "made" not in line and (some := waiting[line["rollout"]]):
                listed[some.pop(0).made] += 1
            elif "made" not in line:
                self.fault("an excluded reply that nobody sampled", None, str(line))
        return listed

    def _span(self, row: TokenRow, start: int, stop: int) -> None:
        alike = [
            one for one in self.by_prompt.get(tuple(row.ids[:start]), []) if one.sampled_ids == row.ids[start:stop]
        ]
        if not alike:
            shown = " ".join(self.words.get(token, "?") for token in row.ids[start:stop])
            self.fault("tokens are trained that nobody sampled after this prompt", None, f"{row.rollout}: {shown}")
            return
        reply = min(alike, key=lambda one: self.trained[id(one)])
        self.trained[id(reply)] += 1
        told = [round(one, 4) if one is not None else None for one in row.logprobs[start:stop]]
        if told != [round(one, 4) for one in reply.logprobs]:
            self.fault("logprobs are changed", reply, f"{reply.logprobs} → {row.logprobs[start:stop]}")

    def _reply(self, reply: Reply, trained: int, listed: int) -> None:
        traits = str(set(reply.traits))
        if trained > 1:
            self.fault("a reply is trained more than once", reply, f"{trained} times")
        if trained and reply.traits & {"untrainable", "undelivered", "ephemeral", "prefill"}:
            self.fault("a reply is trained that must be left out", reply, traits)
        if not trained and not listed:
            self.fault("a reply is neither trained nor listed as excluded", reply, traits)
        if trained and listed >= self.made[reply.made]:
            self.fault("a reply is trained and listed as excluded", reply, traits)
        if self.preset in ("tokens", "tree") and not trained and not reply.traits & _MAY_BE_LEFT_OUT:
            self.fault("a plain reply is not trained", reply, traits)


_MAY_BE_LEFT_OUT = {"untrainable", "undelivered", "ephemeral", "prefill", "content_filter"}


def _is_cause(why: str, reply: Expected) -> bool:
    """Whether a reply is one that a format or a trainer must spell otherwise, as the row says."""
    text = reply.content if isinstance(reply.content, str) else ""
    padded = "not spelled" in why and text != text.strip()
    return padded or ("end added" in why and reply.finish_reason == "length")


def spans(trained: list[bool]) -> list[tuple[int, int]]:
    """Runs of trained tokens."""
    padded = [False, *trained, False]
    edges = [at for at, (before, now) in enumerate(pairwise(padded)) if before != now]
    return list(zip(edges[::2], edges[1::2], strict=True))


# ── how faults are told ──────────────────────────────────────────────────────────────────────────────────────


def told(faults: list[Fault], scripts: dict[str, Any] | None = None, examples: int = 3) -> str:
    """The faults by class, each with its number and some examples, and the script of the first."""
    by_problem: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_problem[fault.problem].append(fault)
    lines = [f"{len(faults)} faults of {len(by_problem)} classes"]
    for problem, some in sorted(by_problem.items(), key=lambda item: -len(item[1])):
        lines.append(f"\n{len(some)} × {problem}")
        lines += [f"    {fault}" for fault in some[:examples]]
        if scripts and (script := scripts.get(some[0].conversation)):
            lines.append(f"    as in {script}")
    return "\n".join(lines)
