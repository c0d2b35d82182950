"""Every shape a message can have, each with what it says.

A shape is a function of a `Marks` and a kind of mark. It returns a `Spoken`: the message as a provider or a program
would give it, the texts in it in the order in which they are read, and its traits: what makes it more than plain text.
Every text begins with a mark that occurs nowhere else. What is expected of an export is derived from the texts and
the traits, never from the message, so that no code of the exporters decides what is right.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MARK = re.compile(r"[SHEXCD]\d+q")
"""S sampled, H written by hand, E edited, X ephemeral or prefill, C context (system, user, tool), D described tool."""

TAILS = (
    "",
    " says so",
    " two  spaces",
    " line one\nline two",
    " ümläut ✓ 你好 🦜",
    ' "quoted" and \\ backslash',
    " a < b && c > d",
    ' looks like {"json": [1, 2]}',
    " tab\tand\n\n\nblank lines",
    " ends with a colon:",
)


class Marks:
    """Gives each text a mark of its own; `tail` varies with the number, so that the same script gives the same text."""

    def __init__(self, start: int = 0) -> None:
        self.number = start

    def text(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}q{TAILS[self.number * 7 % len(TAILS)]}"

    def id(self) -> str:
        self.number += 1
        return f"call_{self.number}"


@dataclass(frozen=True)
class ToolCall:
    """A call as sampled: its name and its arguments, the string that was received or an object."""

    name: str
    arguments: Any
    id: str | None = None

    def parsed(self) -> Any:
        """The arguments as JSON, with keys in order; the string itself where it is not JSON."""
        return parsed(self.arguments)


def parsed(arguments: Any) -> Any:
    """Arguments for a comparison: objects as lists of pairs, so that the order of keys counts."""
    if isinstance(arguments, str):
        try:
            return json.loads(arguments, object_pairs_hook=lambda pairs: ("object", pairs))
        except ValueError:
            return arguments
    return json.loads(json.dumps(arguments), object_pairs_hook=lambda pairs: ("object", pairs))


@dataclass(frozen=True)
class Spoken:
    """A message and what it says."""

    message: dict[str, Any]
    reasoning: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    traits: frozenset[str] = field(default_factory=frozenset)
    answers: bool = False
    """Whether it is the result of a call."""
    results: str = "tool"
    """The form in which results of its calls come: tool, anthropic, responses."""

    @property
    def speaker(self) -> str:
        role = self.message["role"]
        return {"developer": "system", "function": "tool"}.get(role, role)

    def marks(self) -> tuple[str, ...]:
        said = [*self.reasoning, *self.texts, *(json.dumps(call.arguments) for call in self.calls)]
        return tuple(mark for text in said for mark in MARK.findall(text))

    def content(self) -> str | None:
        """The content, where it is text and must stay what it is, byte for byte."""
        content = self.message.get("content")
        return content if isinstance(content, str) and "<think" not in content else None

    def with_traits(self, *traits: str) -> "Spoken":
        return Spoken(
            self.message, self.reasoning, self.texts, self.calls, self.traits | set(traits), self.answers, self.results
        )


Shape = Callable[[Marks, str], Spoken]
REPLIES: dict[str, Shape] = {}
CONTEXTS: dict[str, Shape] = {}


def reply(shape: Shape) -> Shape:
    REPLIES[shape.__name__] = shape
    return shape


def context(shape: Shape) -> Shape:
    CONTEXTS[shape.__name__] = shape
    return shape


def said(content: Any, *, thoughts=(), texts=(), calls=(), traits=(), results="tool", **fields: Any) -> Spoken:
    message = {"role": "assistant", "content": content, **fields}
    return Spoken(message, tuple(thoughts), tuple(texts), tuple(calls), frozenset(traits), results=results)


def heard(role: str, content: Any, texts: tuple[str, ...], traits=(), **fields: Any) -> Spoken:
    return Spoken({"role": role, "content": content, **fields}, texts=texts, traits=frozenset(traits))


# ── replies: text ────────────────────────────────────────────────────────────────────────────────────────────


@reply
def text(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words])


@reply
def text_parts(marks: Marks, kind: str) -> Spoken:
    one, two = marks.text(kind), marks.text(kind)
    return said([{"type": "text", "text": one}, {"type": "text", "text": two}], texts=[one, two])


@reply
def padded(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(f"\n  {words}\n\n", texts=[words], traits=["padded"])


@reply
def nothing(marks: Marks, kind: str) -> Spoken:
    return said(None, traits=["empty"])


@reply
def empty_text(marks: Marks, kind: str) -> Spoken:
    return said("", traits=["empty"])


@reply
def no_parts(marks: Marks, kind: str) -> Spoken:
    return said([], traits=["empty"])


@reply
def named(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words], name="planner")


@reply
def named_with_marker(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words], traits=["marker"], name="a<|im_end|>b")


@reply
def text_with_marker(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind) + " <|im_end|>\n<|im_start|>user"
    return said(words, texts=[words], traits=["marker"])


@reply
def lone_surrogate(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind) + " \ud83d end"
    return said(words, texts=[words], traits=["surrogate"])


@reply
def extra_fields(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words], annotations=[], logprobs=None, refusal=None, audio=None, function_call=None)


# ── replies: what is no text ─────────────────────────────────────────────────────────────────────────────────


@reply
def refusal_field(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(None, texts=[words], traits=["refusal"], refusal=words)


@reply
def refusal_part(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said([{"type": "refusal", "refusal": words}], texts=[words], traits=["refusal"])


@reply
def image_in_reply(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    return said([{"type": "text", "text": words}, image], texts=[words], traits=["media"])


@reply
def audio_field(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(None, texts=[words], traits=["media"], audio={"id": "audio_1", "data": "AAAA", "transcript": words})


@reply
def audio_part(marks: Marks, kind: str) -> Spoken:
    part = {"type": "audio", "audio": {"id": "audio_1"}}
    words = marks.text(kind)
    return said([{"type": "text", "text": words}, part], texts=[words], traits=["media"])


@reply
def unknown_part(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said([{"type": "hologram", "beam": words}], texts=[words], traits=["unknown part"])


@reply
def legacy_function_call(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", json.dumps({"q": marks.text(kind)}))
    legacy = {"name": call.name, "arguments": call.arguments}
    return said(None, calls=[call], traits=["function_call"], function_call=legacy)


@reply
def custom_call(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    call = {"id": marks.id(), "type": "custom", "custom": {"name": "shell", "input": words}}
    return said(None, texts=[words], traits=["custom"], tool_calls=[call])


@reply
def custom_call_with_text(marks: Marks, kind: str) -> Spoken:
    words, given = marks.text(kind), marks.text(kind)
    call = {"id": marks.id(), "type": "custom", "custom": {"name": "shell", "input": given}}
    return said(words, texts=[words, given], traits=["custom"], tool_calls=[call])


# ── replies: tool calls ──────────────────────────────────────────────────────────────────────────────────────


def written(call: ToolCall) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {"id": call.id, **one} if call.id is not None else one


def calling(marks: Marks, kind: str, *calls: ToolCall, words: str | None = None, traits=(), **fields: Any) -> Spoken:
    texts = [words] if words else []
    return said(words, texts=texts, calls=calls, traits=traits, tool_calls=[written(call) for call in calls], **fields)


def query(marks: Marks, kind: str, **more: Any) -> str:
    return json.dumps({"q": marks.text(kind), **more}, ensure_ascii=False)


@reply
def one_call(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, ToolCall("search", query(marks, kind), marks.id()))


@reply
def call_with_words(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return calling(marks, kind, ToolCall("search", query(marks, kind, limit=3), marks.id()), words=words)


@reply
def call_with_empty_text(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, ToolCall("search", query(marks, kind), marks.id()), words="")


@reply
def two_calls(marks: Marks, kind: str) -> Spoken:
    one = ToolCall("search", query(marks, kind), marks.id())
    return calling(marks, kind, one, ToolCall("measure", query(marks, kind, at=[0.41, -1e-12, True, None]), marks.id()))


@reply
def three_calls_of_one_tool(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, *(ToolCall("search", query(marks, kind), marks.id()) for _ in range(3)))


@reply
def call_spelt_oddly(marks: Marks, kind: str) -> Spoken:
    words = json.dumps(marks.text(kind))
    return calling(marks, kind, ToolCall("search", f'{{ "z":1,\n "q" :{words} , "a":[ ]}}', marks.id()))


@reply
def call_with_deep_arguments(marks: Marks, kind: str) -> Spoken:
    deep = {"deep": [{"q": marks.text(kind)}, [], {}], "": "", "n": 12345678901234567}
    return calling(marks, kind, ToolCall("measure", json.dumps(deep), marks.id()))


@reply
def call_without_id(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, ToolCall("search", query(marks, kind)), traits=["no id"])


@reply
def call_with_null_id(marks: Marks, kind: str) -> Spoken:
    made = calling(marks, kind, ToolCall("search", query(marks, kind)), traits=["no id"])
    made.message["tool_calls"][0]["id"] = None
    return made


@reply
def call_with_repeated_id(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, ToolCall("search", query(marks, kind), "call_0"))


@reply
def two_calls_with_one_id(marks: Marks, kind: str) -> Spoken:
    one, two = ToolCall("search", query(marks, kind), "call_0"), ToolCall("measure", query(marks, kind), "call_0")
    return calling(marks, kind, one, two, traits=["no id"])


@reply
def call_with_marker_in_id(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", query(marks, kind), f"<|im_end|>{marks.id()}")
    return calling(marks, kind, call, traits=["marker"])


@reply
def call_with_marker_in_name(marks: Marks, kind: str) -> Spoken:
    return calling(marks, kind, ToolCall("</tool_call>", query(marks, kind), marks.id()), traits=["marker"])


@reply
def call_with_marker_in_arguments(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", query(marks, kind, x="</tool_call><|im_end|>"), marks.id())
    return calling(marks, kind, call, traits=["marker"])


@reply
def call_with_empty_arguments(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return calling(marks, kind, ToolCall("search", "", marks.id()), words=words, traits=["bad arguments"])


@reply
def call_with_empty_object(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return calling(marks, kind, ToolCall("search", "{}", marks.id()), words=words)


@reply
def call_with_broken_arguments(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", f'{{"q": "{marks.text(kind)[:6]}', marks.id())
    return calling(marks, kind, call, traits=["bad arguments"])


@reply
def call_with_broken_arguments_and_words(marks: Marks, kind: str) -> Spoken:
    call, words = ToolCall("search", "{q: 1}", marks.id()), marks.text(kind)
    return calling(marks, kind, call, words=words, traits=["bad arguments"])


@reply
def call_with_a_list(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", json.dumps([marks.text(kind)]), marks.id())
    return calling(marks, kind, call, traits=["bad arguments"])


@reply
def call_with_a_string(marks: Marks, kind: str) -> Spoken:
    call = ToolCall("search", json.dumps(marks.text(kind)), marks.id())
    return calling(marks, kind, call, traits=["bad arguments"])


@reply
def call_with_null_arguments(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return calling(marks, kind, ToolCall("search", None, marks.id()), words=words, traits=["bad arguments"])


@reply
def call_with_an_object(marks: Marks, kind: str) -> Spoken:
    """Arguments as some servers give them: not as a string."""
    call = ToolCall("search", {"q": marks.text(kind)}, marks.id())
    return calling(marks, kind, call, traits=["object arguments"])


@reply
def call_without_function(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words], traits=["odd call"], tool_calls=[{"id": marks.id(), "type": "function"}])


@reply
def null_beside_a_call(marks: Marks, kind: str) -> Spoken:
    made = calling(marks, kind, ToolCall("search", query(marks, kind), marks.id()), traits=["odd call"])
    made.message["tool_calls"].insert(0, None)
    return made


@reply
def no_calls(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(words, texts=[words], tool_calls=[])


# ── replies: reasoning ───────────────────────────────────────────────────────────────────────────────────────


def thinking_in(name: str) -> Shape:
    def shape(marks: Marks, kind: str) -> Spoken:
        thought, words = marks.text(kind), marks.text(kind)
        return said(words, thoughts=[thought], texts=[words], **{name: thought})

    shape.__name__ = f"thought_in_{name}"
    return shape


reply(thinking_in("reasoning"))
reply(thinking_in("reasoning_content"))


@reply
def thought_in_details(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind), marks.text(kind)
    details = [{"type": "reasoning.text", "text": thought, "signature": "c2ln", "index": 0}]
    return said(words, thoughts=[thought], texts=[words], reasoning_details=details)


@reply
def thought_in_summaries(marks: Marks, kind: str) -> Spoken:
    one, two, words = marks.text(kind), marks.text(kind), marks.text(kind)
    details = [{"type": "reasoning.summary", "summary": one}, {"type": "reasoning.summary", "summary": two}]
    return said(words, thoughts=[one, two], texts=[words], reasoning_details=details)


@reply
def encrypted_thought(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    details = [{"type": "reasoning.encrypted", "data": "AAAA"}]
    return said(words, texts=[words], reasoning_details=details, traits=["redacted"])


@reply
def thought_in_two_fields(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind), marks.text(kind)
    details = [{"type": "reasoning.text", "text": thought}]
    return said(words, thoughts=[thought], texts=[words], reasoning=thought, reasoning_details=details)


@reply
def thought_in_part(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind), marks.text(kind)
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}, {"type": "text", "text": words}]
    return said(parts, thoughts=[thought], texts=[words])


@reply
def thought_in_tags(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind), marks.text(kind)
    return said(f"<think>\n{thought}\n</think>\n\n{words}", thoughts=[thought], texts=[words])


@reply
def thought_closed_only(marks: Marks, kind: str) -> Spoken:
    """As templates leave it that open the block in the prompt."""
    thought, words = marks.text(kind), marks.text(kind)
    return said(f"{thought}\n</think>\n\n{words}", thoughts=[thought], texts=[words], traits=["odd tags"])


@reply
def thought_before_call(marks: Marks, kind: str) -> Spoken:
    thought = marks.text(kind)
    made = calling(marks, kind, ToolCall("search", query(marks, kind), marks.id()), reasoning=thought)
    return Spoken(made.message, (thought,), made.texts, made.calls)


@reply
def only_a_thought(marks: Marks, kind: str) -> Spoken:
    thought = marks.text(kind)
    return said("", thoughts=[thought], reasoning_content=thought, traits=["only thought"])


@reply
def thought_with_marker(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind) + "\n</think>\n<|im_end|>", marks.text(kind)
    return said(words, thoughts=[thought], texts=[words], traits=["marker"], reasoning_content=thought)


# ── replies: Anthropic blocks and Responses items ────────────────────────────────────────────────────────────


def block(kind_of: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind_of, **fields}


@reply
def anthropic_text(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said([block("text", text=words, citations=None)], texts=[words])


@reply
def anthropic_thinking(marks: Marks, kind: str) -> Spoken:
    thought, words = marks.text(kind), marks.text(kind)
    blocks = [block("thinking", thinking=thought, signature="c2ln"), block("text", text=words)]
    return said(blocks, thoughts=[thought], texts=[words])


@reply
def anthropic_redacted(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said(
        [block("redacted_thinking", data="AAAA"), block("text", text=words)], texts=[words], traits=["redacted"]
    )


@reply
def anthropic_call(marks: Marks, kind: str) -> Spoken:
    thought, words, asked = marks.text(kind), marks.text(kind), {"q": marks.text(kind)}
    call = ToolCall("search", asked, f"toolu_{marks.id()}")
    blocks = [
        block("thinking", thinking=thought, signature="c2ln"),
        block("text", text=words),
        block("tool_use", id=call.id, name=call.name, input=asked),
    ]
    return said(blocks, thoughts=[thought], texts=[words], calls=[call], results="anthropic")


@reply
def anthropic_calls_alone(marks: Marks, kind: str) -> Spoken:
    calls = [ToolCall(name, {"q": marks.text(kind)}, f"toolu_{marks.id()}") for name in ("search", "measure")]
    blocks = [block("tool_use", id=call.id, name=call.name, input=call.arguments) for call in calls]
    return said(blocks, calls=calls, results="anthropic")


@reply
def anthropic_interleaved(marks: Marks, kind: str) -> Spoken:
    one, two, call = marks.text(kind), marks.text(kind), ToolCall("search", {"q": marks.text(kind)}, marks.id())
    blocks = [
        block("text", text=one),
        block("tool_use", id=call.id, name=call.name, input=call.arguments),
        block("text", text=two),
    ]
    return said(blocks, texts=[one, two], calls=[call], traits=["interleaved"], results="anthropic")


@reply
def anthropic_server_tool(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    blocks = [
        block("server_tool_use", id=marks.id(), name="web_search", input={"query": "x"}),
        block("text", text=words),
    ]
    return said(blocks, texts=[words], traits=["unknown part"])


@reply
def responses_text(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said([block("output_text", text=words, annotations=[])], texts=[words], type="message", status="completed")


@reply
def responses_refusal(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return said([block("refusal", refusal=words)], texts=[words], traits=["refusal"], type="message")


@reply
def responses_items(marks: Marks, kind: str) -> Spoken:
    thought, words, call = marks.text(kind), marks.text(kind), ToolCall("search", query(marks, kind), marks.id())
    items = [
        block("reasoning", id="rs_1", summary=[block("summary_text", text=thought)]),
        block("message", id="msg_1", role="assistant", content=[block("output_text", text=words)]),
        block("function_call", call_id=call.id, name=call.name, arguments=call.arguments),
    ]
    return said(items, thoughts=[thought], texts=[words], calls=[call], results="responses")


@reply
def responses_call_item(marks: Marks, kind: str) -> Spoken:
    """One item, with the role that a graph asks for."""
    call = ToolCall("search", query(marks, kind), marks.id())
    item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    return Spoken({"role": "assistant", **item}, calls=(call,), traits=frozenset(["bare item"]), results="responses")


@reply
def responses_reasoning_item(marks: Marks, kind: str) -> Spoken:
    thought = marks.text(kind)
    item = {"type": "reasoning", "summary": [block("summary_text", text=thought)], "encrypted_content": None}
    return Spoken({"role": "assistant", **item}, reasoning=(thought,), traits=frozenset(["bare item", "only thought"]))


# ── context ──────────────────────────────────────────────────────────────────────────────────────────────────


@context
def question(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", words, (words,))


@context
def question_parts(marks: Marks, kind: str) -> Spoken:
    one, two = marks.text(kind), marks.text(kind)
    return heard("user", [block("text", text=one), block("text", text=two)], (one, two))


@context
def question_input_text(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", [block("input_text", text=words)], (words,))


@context
def question_with_image(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    image = block("image_url", image_url={"url": "data:image/png;base64,AAAA"})
    return heard("user", [block("text", text=words), image], (words,), ["media"])


@context
def question_with_anthropic_image(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    image = block("image", source={"type": "base64", "media_type": "image/png", "data": "AAAA"})
    return heard("user", [image, block("text", text=words)], (words,), ["media"])


@context
def question_with_audio(marks: Marks, kind: str) -> Spoken:
    audio = block("input_audio", input_audio={"data": "AAAA", "format": "wav"})
    return heard("user", [audio], (), ["media"])


@context
def question_with_file(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", [block("text", text=words), block("file", file={"file_id": "f"})], (words,), ["media"])


@context
def question_unknown_part(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", [block("hologram", beam=words)], (words,), ["unknown part"])


@context
def empty_question(marks: Marks, kind: str) -> Spoken:
    return heard("user", "", (), ["empty context"])


@context
def null_question(marks: Marks, kind: str) -> Spoken:
    return heard("user", None, (), ["empty context"])


@context
def question_with_name(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", words, (words,), name="alice")


@context
def question_with_marker(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind) + " <|im_end|>\n<|im_start|>assistant\n"
    return heard("user", words, (words,), ["marker"])


@context
def question_with_marker_in_name(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("user", words, (words,), ["marker"], name="<|im_start|>system")


@context
def system_inside(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("system", words, (words,), ["system inside"])


@context
def developer_inside(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("developer", words, (words,), ["system inside"])


@context
def unknown_role(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("ipython", words, (words,), ["unknown role"])


@context
def function_role(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("function", words, (words,), ["unknown role"], name="search")


@context
def result_without_call(marks: Marks, kind: str) -> Spoken:
    words = marks.text(kind)
    return heard("tool", words, (words,), ["orphan"], tool_call_id="call_nowhere")


# ── results of calls ─────────────────────────────────────────────────────────────────────────────────────────

RESULTS = ("plain", "json", "parts", "shuffled", "some", "none", "no id", "image", "marker", "named")


def results_of(spoken: Spoken, how: str, marks: Marks) -> list[Spoken]:
    """The messages that answer the calls of a reply."""
    calls = list(spoken.calls) if "function_call" not in spoken.traits else []
    if not calls or how == "none":
        return []
    if spoken.results == "anthropic":
        return [_tool_results(calls, marks)]
    if spoken.results == "responses":
        return [_call_outputs(calls, marks)]
    made = [_result(call, how, marks) for call in calls]
    if how == "shuffled" and len(made) > 1:
        return [one.with_traits("shuffled") for one in reversed(made)]
    return made[:1] if how == "some" else made


def _result(call: ToolCall, how: str, marks: Marks) -> Spoken:
    words = marks.text("C")
    content: Any = words
    traits = []
    if how == "json":
        content = json.dumps({"found": words, "n": 1.50})
    elif how == "parts":
        content = [block("text", text=words)]
    elif how == "image":
        content = [block("text", text=words), block("image_url", image_url={"url": "data:image/png;base64,AAAA"})]
        traits = ["media"]
    elif how == "marker":
        words = content = words + " </tool_response><|im_end|>"
        traits = ["marker"]
    fields = {} if how == "no id" or call.id is None else {"tool_call_id": call.id}
    fields |= {"name": call.name} if how == "named" else {}
    if how in ("no id", "some"):
        traits.append("no id")
    made = heard("tool", content, (words,), traits, **fields)
    return Spoken(made.message, texts=made.texts, traits=made.traits, answers=True)


def _tool_results(calls: list[ToolCall], marks: Marks) -> Spoken:
    words = [marks.text("C") for _ in calls]
    blocks = [
        block("tool_result", tool_use_id=call.id, content=[block("text", text=one)] if n else one)
        for n, (call, one) in enumerate(zip(calls, words, strict=True))
    ]
    return Spoken({"role": "user", "content": blocks}, texts=tuple(words), answers=True)


def _call_outputs(calls: list[ToolCall], marks: Marks) -> Spoken:
    words = [marks.text("C") for _ in calls]
    items = [block("function_call_output", call_id=call.id, output=one) for call, one in zip(calls, words, strict=True)]
    return Spoken({"role": "user", "content": items}, texts=tuple(words), answers=True)
