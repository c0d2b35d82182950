"""The proof of an export of text, from its rows and receipts alone.

For every row of the data it shows that

    the row is, byte for byte, the one that was written            (its hash stands in the receipts)
    the recorded messages make the nodes that its calls saw and made, and those make the calls' ids
    each trained turn says what was recorded: text, reasoning and calls, and no turn is trained beside those
    each turn before them says what was recorded in its place, save for the differences that the row names
    `on_policy` is true exactly if no difference is named

A row that was exported from a file, not from a store, has nothing recorded behind it: for such a row only the first and
the last hold, and how many replies it trains. Over all rows it shows that each call is trained once or excluded for a
reason, and that the counts and the root are the manifest's. It takes the mapping of content blocks to chat messages
from `formats/shapes.py`, and reads rows by itself.

What a text format has are messages, not what the engine made of them: how a trainer's template writes the tokens is not
shown here. `tests/formats/test_text_proof.py` changes cells of every preset and sees each change found.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import file_digest, sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from stemma.core.ids import ROOT, chain, digest
from stemma.core.message import RAW_TURN, message_id
from stemma.core.receipts import MerkleRoot, Receipt
from stemma.core.verify import Finding, Kind
from stemma.errors import BadRecord
from stemma.formats.api import join_reasoning, structured_reasoning, text_of
from stemma.formats.export import RECEIPTS
from stemma.formats.jsonl import from_line, to_line
from stemma.formats.markers import PROMPT_HEAD, PROMPT_TAIL
from stemma.formats.shapes import chat_messages
from stemma.formats.text_receipts import RolloutLine, TextManifest, TextRow
from stemma.formats.training import Excluded

Message = dict[str, Any]
Line = RolloutLine | TextRow | Receipt | Excluded
_decode = msgspec.json.Decoder(Line).decode

_UNREADABLE = (msgspec.MsgspecError, BadRecord, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a line or a row raises that somebody has changed."""
_SYSTEM_REPLACED = "system prompt replaced"
_TOOLS_AS_TEXT = "tools written into the system prompt"
_MERGED = "messages between two replies merged"


class TextChecked(msgspec.Struct, frozen=True):
    """What a proof came to."""

    findings: list[Finding]
    rows: int
    replies: int
    trained: int
    excluded: dict[str, int]
    off_policy: dict[str, int]
    """Rows by how their context differs from what the model saw."""
    unrecorded: int
    """Rows that were read from files, which no recorded messages can be compared with."""


class Turn(msgspec.Struct, frozen=True):
    """A turn of a row, or what is expected of it."""

    speaker: str
    """system, user, assistant or tool."""
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments, as JSON with sorted keys where they are JSON."""
    trained: bool = False
    raw: str | None = None
    """The turn as it was read from a file, if it was and would be written otherwise."""

    def is_like(self, other: "Turn") -> bool:
        """Whether both say the same."""
        return msgspec.structs.replace(self, raw=None) == msgspec.structs.replace(other, raw=None)


def text_manifest(path: Path) -> TextManifest | None:
    """The manifest at `path`, if it is of an export of text."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=TextManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, FileNotFoundError):
        return None
    return manifest if manifest.preset in _READERS else None


def prove_text(manifest: TextManifest, folder: Path) -> TextChecked:
    """Check an export of text in `folder`; no findings mean that it is what it says."""
    proof = _Proof(manifest)
    data, receipts = folder / Path(manifest.file).name, folder / RECEIPTS
    missing = [path for path in (data, receipts) if not path.is_file()]
    for path in missing:
        proof.find("missing", path.name, "the export cannot be checked without it")
    if missing:
        return proof.checked()
    try:
        proof.read(receipts, _records(data))
    except BadRecord as problem:
        proof.find("damaged", data.name, str(problem))
    with open(data, "rb") as file:
        if file_digest(file, "sha256").hexdigest() != manifest.data:
            proof.find("altered", data.name, "it is not the file that the manifest was written for")
    return proof.checked()


def _records(data: Path) -> Iterator[tuple[bytes, Message]]:
    """Each row of the data, and the bytes that stand for it in the receipts."""
    if data.suffix == ".parquet":
        yield from _parquet_records(data)
        return
    with open(data, "rb") as file:
        for line in file:
            yield line.rstrip(b"\n"), from_line(line)


def _parquet_records(data: Path) -> Iterator[tuple[bytes, Message]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(data) as file:
            for batch in file.iter_batches(256):
                for row in batch.to_pylist():
                    yield to_line(row).rstrip(b"\n"), row
    except (ArrowException, OSError) as problem:
        raise BadRecord(f"cannot be read: {problem}", str(data)) from problem


class _Proof:
    def __init__(self, manifest: TextManifest) -> None:
        self.manifest, self.read_turns = manifest, _READERS[manifest.preset]
        self.findings: list[Finding] = []
        self.root = MerkleRoot()
        self.messages: list[tuple[bytes, Message]] = []
        self.expected: dict[str, tuple[str, str, str]] = {}
        """For each call of the rows so far that has no receipt yet: rollout, saw and made."""
        self.trained: set[str] = set()
        self.excluded: dict[str, str] = {}
        self.off_policy: Counter[str] = Counter()
        self.rows = self.off_policy_rows = self.unrecorded = 0

    def find(self, kind: Kind, subject: str, detail: str) -> None:
        self.findings.append(Finding(kind, subject, detail))

    def read(self, receipts: Path, records: Iterator[tuple[bytes, Message]]) -> None:
        with open(receipts, "rb") as file:
            for number, line in enumerate(file, 1):
                self.root.add(line.rstrip(b"\n"))
                try:
                    self.take(line, records)
                except _UNREADABLE as problem:
                    self.find("damaged", f"receipts line {number}", f"{type(problem).__name__}: {problem}")
        if next(records, None) is not None:
            self.find("altered", "data", "it has more rows than the receipts")

    def take(self, line: bytes, records: Iterator[tuple[bytes, Message]]) -> None:
        if line.startswith(b'{"type":"message",'):
            body = from_line(line)["body"]
            self.messages.append((message_id(body), body))
            return
        match _decode(line):
            case RolloutLine():
                self.messages = []
            case TextRow() as row:
                self.check_row(row, next(records, None))
            case Receipt() as receipt:
                self.check_receipt(receipt)
            case Excluded() as reply:
                if reply.call in self.excluded or reply.call in self.trained:
                    self.find("altered", f"call {reply.call}", "it is excluded and accounted for elsewhere as well")
                self.excluded[reply.call] = reply.reason

    # ── one row ──────────────────────────────────────────────────────────────────────────────────────────────

    def check_row(self, row: TextRow, found: tuple[bytes, Message] | None) -> None:
        subject = f"row {self.rows}"
        self.rows += 1
        self.off_policy.update(row.differs)
        self.off_policy_rows += bool(row.differs)
        self.expect_calls(row, subject) if row.messages else self.note_unrecorded(row, subject)
        if found is None:
            self.find("missing", subject, "the data has fewer rows than the receipts")
            return
        line, record = found
        if sha256(line).hexdigest() != row.record:
            self.find("altered", subject, "it is not the row that was written")
        for detail in self.faults(row, record):
            self.find("altered", subject, detail)

    def expect_calls(self, row: TextRow, subject: str) -> None:
        """Note which nodes the calls of a row must have seen and made."""
        nodes = [ROOT, *chain(ROOT, (self.messages[number][0] for number in row.messages))]
        for one in row.trained:
            if one.call in self.trained:
                self.find("altered", f"call {one.call}", "it is trained twice")
            self.trained.add(one.call)
            self.expected[one.call] = (row.rollout, nodes[one.at].hex(), nodes[one.at + 1].hex())
        if not row.trained or row.trained[-1].at != len(row.messages) - 1:
            self.find("altered", subject, "it does not end with its last trained message")

    def note_unrecorded(self, row: TextRow, subject: str) -> None:
        """A row that was read from a file has no calls; its replies are told apart by their places."""
        self.unrecorded += 1
        for one in row.trained:
            if one.call in self.trained:
                self.find("altered", subject, f"it trains the reply {one.call} once more")
            self.trained.add(one.call)

    def check_receipt(self, receipt: Receipt) -> None:
        """That a receipt is of a call that a row trains, and that its hashes make the call's id."""
        subject = f"call {receipt.call}"
        if self.expected.pop(receipt.call, None) != (receipt.rollout, receipt.saw, receipt.made):
            self.find("altered", subject, "the messages of its row are not those that it saw and made")
        hashes = (receipt.saw, receipt.made, receipt.body, receipt.tools, receipt.prompt, receipt.sampled)
        parts = [bytes.fromhex(one) for one in (*hashes, receipt.logprobs, receipt.event)]
        if digest("call", *parts).hex() != receipt.call:
            self.find("altered", subject, "its receipt does not make its id")

    def faults(self, row: TextRow, record: Message) -> Iterator[str]:
        """What a row says that was not recorded, or does not say that was."""
        if record.get("on_policy") is not (not row.differs) or record.get("off_policy") != "; ".join(row.differs):
            yield "its `on_policy` does not agree with the receipts"
        turns = self.read_turns(record)
        if not row.messages:
            if sum(turn.trained for turn in turns) != len(row.trained):
                yield "it trains another number of replies than the receipts list"
            return
        trained = {one.at for one in row.trained}
        messages, origin = chat_messages([self.messages[number][1] for number in row.messages])
        replies = [at for at, place in enumerate(origin) if place in trained and messages[at]["role"] == "assistant"]
        wanted = [_recorded(message, at in replies) for at, message in enumerate(messages)]
        yield from _differences(self.manifest.preset, set(row.differs), wanted, turns)

    # ── all of them ──────────────────────────────────────────────────────────────────────────────────────────

    def checked(self) -> TextChecked:
        for call in self.expected:
            self.find("missing", f"call {call}", "it is trained and has no receipt")
        for call in self.trained & self.excluded.keys():
            self.find("altered", f"call {call}", "it is trained and excluded")
        if self.root.hex() != self.manifest.root:
            self.find("altered", "receipts", "their lines do not make the root that the manifest has")
        reasons = Counter(self.excluded.values())
        counts = {
            "rows": self.rows,
            "replies": len(self.trained) + len(self.excluded),
            "trained": len(self.trained),
            "excluded": len(self.excluded),
            "off_policy_rows": self.off_policy_rows,
        }
        if self.manifest.counts != counts:
            self.find("altered", "manifest", f"it counts {self.manifest.counts}; there are {counts}")
        if self.manifest.excluded != dict(reasons):
            self.find("altered", "manifest", "it counts other exclusions than the receipts list")
        return TextChecked(
            findings=self.findings,
            rows=self.rows,
            replies=counts["replies"],
            trained=len(self.trained),
            excluded=dict(reasons),
            off_policy=dict(self.off_policy),
            unrecorded=self.unrecorded,
        )


# ── what was recorded ────────────────────────────────────────────────────────────────────────────────────────────


def _recorded(message: Message, trained: bool) -> Turn:
    role = message["role"]
    speaker = "system" if role == "developer" else role
    calls = tuple(_call(call) for call in message.get("tool_calls") or () if call) if role == "assistant" else ()
    reasoning = join_reasoning(structured_reasoning(message)) if role == "assistant" else ""
    raw = message.get(RAW_TURN)
    return Turn(speaker, text_of(message.get("content")), reasoning, calls, trained, raw if type(raw) is str else None)


def _call(call: Any) -> tuple[str, str]:
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    return str(function.get("name", "unknown")), _arguments(function.get("arguments", ""))


def _arguments(arguments: Any) -> str:
    """Arguments that compare equal if they say the same; the text itself if it is not JSON."""
    if isinstance(arguments, str):
        try:
            return _sorted_json(json.loads(arguments))
        except (ValueError, RecursionError):
            return arguments
    return _sorted_json(arguments)


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


# ── what a row says ──────────────────────────────────────────────────────────────────────────────────────────────


def _openai(record: Message) -> list[Turn]:
    return [_read_message(message, message.get("weight") == 1) for message in record["messages"]]


def _axolotl(record: Message) -> list[Turn]:
    return [_read_message(message, message["train"] is True) for message in record["messages"]]


def _trl(record: Message) -> list[Turn]:
    completion = [_read_message(message, message["role"] == "assistant") for message in record["completion"]]
    return [*(_read_message(message, False) for message in record["prompt"]), *completion]


def _parquet(record: Message) -> list[Turn]:
    messages = json.loads(record["messages"])
    return [_recorded(message, at in record["trained"]) for at, message in enumerate(messages)]


def _read_message(message: Message, trained: bool) -> Turn:
    calls = tuple(_call(call) for call in message.get("tool_calls") or ())
    speaker = "system" if message["role"] == "developer" else message["role"]
    return Turn(speaker, text_of(message["content"]), message.get("reasoning_content", ""), calls, trained)


_SPEAKERS = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}


def _trajectory(record: Message) -> list[Turn]:
    flagged = {n for n, turn in enumerate(record["conversations"]) if turn["train"] is True}
    if sorted(flagged) != record["trained_turns"]:
        raise ValueError("`trained_turns` and the turns' `train` do not agree")
    return [
        Turn(_SPEAKERS.get(turn["from"], turn["from"]), turn["value"], trained=n in flagged)
        for n, turn in enumerate(record["conversations"])
    ]


def _unsloth(record: Message) -> list[Turn]:
    turns = record["conversations"]
    return [Turn(turn["role"], turn["content"], trained=turn["role"] == "assistant") for turn in turns]


def _llamafactory(record: Message, last_only: bool = False) -> list[Turn]:
    turns = [
        Turn(_SPEAKERS[turn["from"]], turn["value"], trained=turn["from"] in ("gpt", "function_call"))
        for turn in record["conversations"]
    ]
    if last_only:
        turns = [*(msgspec.structs.replace(turn, trained=False) for turn in turns[:-1]), turns[-1]]
    return [Turn("system", record["system"]), *turns] if record["system"] else turns


_READERS: dict[str, Callable[[Message], list[Turn]]] = {
    "hermes": _trajectory,
    "sharegpt": _trajectory,
    "openai": _openai,
    "trl": _trl,
    "trl-turns": _trl,
    "axolotl": _axolotl,
    "axolotl-turns": _axolotl,
    "llamafactory": _llamafactory,
    "llamafactory-turns": lambda record: _llamafactory(record, last_only=True),
    "unsloth": _unsloth,
    "parquet": _parquet,
}
TEXT_PRESETS = tuple(_READERS)


# ── one beside the other ─────────────────────────────────────────────────────────────────────────────────────────


def _differences(preset: str, named: set[str], wanted: list[Turn], found: list[Turn]) -> Iterator[str]:
    """What is wrong with the turns of a row, beyond the differences that it names."""
    if preset in _IN_WORDS:
        yield from _differences_in_words(preset, named, wanted, found)
        return
    if len(wanted) != len(found):
        yield f"it has {len(found)} messages; {len(wanted)} were recorded"
        return
    for at, (was, is_) in enumerate(zip(wanted, found, strict=True)):
        if not was.is_like(is_):
            yield _which(at, was, is_)


def _which(at: int, was: Turn, is_: Turn) -> str:
    if was.trained != is_.trained:
        return f"message {at} is {'' if is_.trained else 'not '}trained, and was {'' if was.trained else 'not '}to be"
    field = next(name for name in ("speaker", "text", "reasoning", "calls") if getattr(was, name) != getattr(is_, name))
    return f"message {at} has another {field} than was recorded"


_IN_WORDS = ("hermes", "sharegpt", "unsloth", "llamafactory", "llamafactory-turns")


def _differences_in_words(preset: str, named: set[str], wanted: list[Turn], found: list[Turn]) -> Iterator[str]:
    """The same for formats that write reasoning, calls and results as text."""
    system_changed = {_SYSTEM_REPLACED, _TOOLS_AS_TEXT} & named
    expected = [turn for turn in wanted if turn.speaker != "system" or preset == "sharegpt"]
    there = [turn for turn in found if turn.speaker != "system" or preset == "sharegpt"]
    if preset != "sharegpt" and not system_changed:
        was = "\n\n".join(turn.text for turn in wanted if turn.speaker == "system")
        is_ = "\n\n".join(turn.text for turn in found if turn.speaker == "system")
        if is_ != was and _tools_removed(is_) != was:
            yield "its system prompt is not the recorded one"
    at = 0
    for of_model, group in groupby(expected, lambda turn: turn.speaker == "assistant"):
        turns = list(group)
        size = len(turns) if of_model or preset == "sharegpt" else _written_turns(preset, turns)
        here = there[at : at + size]
        at += size
        if len(here) < size:
            yield "turns are missing from it"
            return
        fits = _replies_fit if of_model else _prompts_fit
        yield from fits(preset, named, turns, here, at - size)
    if at != len(there):
        yield f"it has {len(there)} turns; {at} were recorded"


def _tools_removed(prompt: str) -> str:
    """A system prompt without the Hermes prompt for tools before it, as the hermes tool protocol sends it."""
    if not prompt.startswith(PROMPT_HEAD) or PROMPT_TAIL not in prompt:
        return prompt
    return prompt.partition(PROMPT_TAIL)[2].removeprefix("\n\n")


def _written_turns(preset: str, turns: list[Turn]) -> int:
    """How many turns the format makes of what stands between two replies."""
    if preset.startswith("llamafactory"):
        return 1
    return sum(1 if speaker == "tool" else len(list(group)) for speaker, group in groupby(t.speaker for t in turns))


def _replies_fit(preset: str, named: set[str], was: list[Turn], is_: list[Turn], at: int) -> Iterator[str]:
    for number, (recorded, written) in enumerate(zip(was, is_, strict=True), at):
        if written.speaker != "assistant" or recorded.trained != written.trained:
            yield f"turn {number} is {'' if written.trained else 'not '}trained, and that was not to be"
        elif not _says(preset, named, recorded, written.text):
            yield f"turn {number} does not say what the model said"


def _says(preset: str, named: set[str], turn: Turn, text: str) -> bool:
    """Whether a text is the reply: its thought, its words, its calls, in this order; or the turn it was read from."""
    if turn.raw is not None and text == turn.raw:
        return True
    empty = "<think>\n</think>\n" if any(name.startswith("empty think") for name in named) else ""
    of_llamafactory = preset.startswith("llamafactory")
    content, gap = (turn.text, "\n\n") if of_llamafactory else (_with_think_tags(turn.text), "\n")
    words = content if of_llamafactory or content.strip() else ""
    thought = f"<think>\n{turn.reasoning}\n</think>{gap}" if turn.reasoning else ""
    for begin in dict.fromkeys((thought, thought or empty)):
        if not turn.calls and text.strip() == f"{begin}{content}".strip():
            return True
        if turn.calls and _calls_after(text, begin, words, turn.calls, named):
            return True
    return False


def _with_think_tags(text: str) -> str:
    """A text with a scratchpad as trajectories have it."""
    if "<REASONING_SCRATCHPAD>" not in text:
        return text
    return text.replace("<REASONING_SCRATCHPAD>", "<think>").replace("</REASONING_SCRATCHPAD>", "</think>")


def _calls_after(text: str, begin: str, words: str, calls: tuple[tuple[str, str], ...], named: set[str]) -> bool:
    if text.startswith("[") and not begin and not words:  # a list of calls without a word
        return _are_calls([text], calls, named)
    head, bare, tail = text.partition("<tool_call>\n")
    while bare and head.rstrip("\n") != f"{begin}{words}".rstrip("\n"):  # the words may themselves speak of a tag
        more, bare, tail = tail.partition("<tool_call>\n")
        head = f"{head}<tool_call>\n{more}"
    if not bare:
        return False
    bodies = [body.removesuffix("\n").removesuffix("\n</tool_call>") for body in tail.split("<tool_call>\n")]
    return _are_calls(bodies, calls, named)


def _are_calls(bodies: list[str], calls: tuple[tuple[str, str], ...], named: set[str]) -> bool:
    said = [json.loads(body) for body in bodies]
    flat = [one for body in said for one in (body if isinstance(body, list) else [body])]
    broken = any(name.startswith("broken arguments") for name in named)
    found = tuple((one["name"], _sorted_json(one["arguments"])) for one in flat)
    return found == calls or (broken and [name for name, _ in found] == [name for name, _ in calls])


def _prompts_fit(preset: str, named: set[str], was: list[Turn], is_: list[Turn], at: int) -> Iterator[str]:
    if any(turn.trained for turn in is_):
        yield f"turn {at} or one beside it is trained, and no model said it"
    if preset.startswith("llamafactory"):
        unnamed = len(was) > 1 and any(turn.speaker != "tool" for turn in was) and _MERGED not in named
        if unnamed or is_[0].text != _merged(was):
            yield f"turn {at} does not say what was recorded"
        return
    rest = iter(is_)
    for speaker, group in groupby(was, lambda turn: turn.speaker):
        turns = list(group)
        if speaker == "tool" and preset != "sharegpt":
            written = next(rest).text
            if written != turns[0].raw and not _results_fit([turn.text for turn in turns], written):
                yield f"the results at turn {at} are not those recorded"
            continue
        for turn in turns:
            text = f"<tool_response>\n{turn.text}\n</tool_response>" if speaker == "tool" else turn.text
            if next(rest).text not in (text, turn.raw):
                yield f"a turn at {at} does not say what was recorded"


def _merged(turns: list[Turn]) -> str:
    """What stands between two replies, as LLaMA-Factory's one turn says it."""
    speakers = {turn.speaker for turn in turns}
    if speakers == {"tool"}:
        return "\n</tool_response>\n<tool_response>\n".join(turn.text for turn in turns)
    if speakers == {"user"}:
        return "\n\n".join(turn.text for turn in turns)
    tagged = (f"<tool_response>\n{t.text}\n</tool_response>" if t.speaker == "tool" else t.text for t in turns)
    return "\n".join(tagged)


def _results_fit(results: list[str], text: str) -> bool:
    """Whether a turn of `<tool_response>` blocks holds these results."""
    bodies = text.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
    said = [json.loads(body)["content"] for body in bodies.split("\n</tool_response>\n<tool_response>\n")]
    return len(said) == len(results) and all(map(_same_result, results, said))


def _same_result(result: str, said: Any) -> bool:
    if isinstance(said, str) or said is None:  # null, where the tool said nothing
        return (said or "") == result
    try:
        return _sorted_json(json.loads(result)) == _sorted_json(said)
    except ValueError:
        return False
