"""Diagrams hold the boxes of the spec's picture, nest to any depth, and no text can be more than text.

The forms below are what the real parser (mermaid 11) was shown to take; every line must be one of them.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
from cli.conversations import asks, by, demo, edited_from_the_end, head_edited_every_turn, say
from hostile import NASTY
from stemma import MessageGraph
from stemma.cli.mermaid import diagram

LABEL = r"""\["(?:[^"\#%`<>&\[\]{}|\\;:]|:\ |\#\w+;|<br/>)+"\]"""
FORMS = re.compile(
    rf"""graph\ TD
    | \s+ n\d+\w* {LABEL} (?::::(?:message|metadata)Node)?
    | \s+ subgraph\ n\d+m? {LABEL}
    | \s+ end
    | \s+ n\d+\ (?:-->|-\.->)\ n\d+
    | \s+ classDef\ \w+Node\ [\w:\#,]+
    | \s+ class\ n\d+m?(?:,n\d+m?)*\ \w+Node""",
    re.VERBOSE,
)

HOSTILE = [
    *NASTY,
    '"] --> evil["x',
    '"]\nend\nclick n1 "javascript:alert(1)"',
    "%%{init: {'securityLevel': 'loose'}}%%",
    "%% a comment",
    "end",
    "`**bold**`",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "#quot;]",
    "#35;",
    "ﬂ°quot¶ß",
    "$$x^2$$",
    "fa:fa-car",
    "style n1 fill:#f00;",
    "classDef x fill:#f00;",
    "subgraph x",
    "1. one\n2. two",
    "- item",
    "x" * 100_000,
    "a;b",
    "~~~",
    "|x|",
    "n1@{ shape: circle }",
    ":::evil",
]


def check(graph: MessageGraph) -> list[str]:
    lines = list(diagram(graph, "g"))
    open_boxes = 0
    for line in lines:
        assert FORMS.fullmatch(line), line
        open_boxes += line.strip().startswith("subgraph") - (line.strip() == "end")
        assert open_boxes >= 0
    assert open_boxes == 0
    return lines


def test_the_boxes_of_the_picture_are_there():
    text = "\n".join(check(demo()))
    assert '["📋 System Message<br/>Role: System<br/>Content: You are a careful assistant."]:::messageNode' in text
    assert '["👤 User Message<br/>Role: User<br/>Content: And below 10?"]' in text
    assert text.count('["💬 Chat Response"]') == 5
    assert '["📊 Metadata<br/>Model: qwen3-8b<br/>Temp: 0.7<br/>Finish: stop"]' in text
    assert '["📝 Response<br/>There are 25 primes below 100."]' in text
    assert text.count('["🔧 Tool Response"]') == text.count('m["📊 Tool Metadata"]') == 3
    assert '["Length: 5"]' in text
    assert '["💭 Subagent Chat demo/0"]' in text.replace("g/0", "demo/0")
    assert '["📋 System<br/>Content: You count things."]' in text
    assert text.count("Previous Messages") == text.count(" -.-> ") == 3


def test_dotted_arrows_lead_to_what_took_the_place():
    graph = MessageGraph([say("system", "old")])
    graph.record(say("assistant", "reply"), by())
    graph[0]["content"] = "new"
    lines = [line.strip() for line in check(graph)]
    new = next(line for line in lines if "Content: new" in line).partition("[")[0]
    box = next(line for line in lines if "Previous Messages" in line).split()[1].partition("[")[0]
    assert f"{box} -.-> {new}" in lines


def test_a_message_stands_before_both_lines_that_part_after_it():
    lines = [line.strip() for line in check(demo())]
    assert [line for line in lines if line.startswith("n1 --> ")] == ["n1 --> n2", "n1 --> n8", "n1 --> n24"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_only_text(text: str):
    graph = MessageGraph([say("system", text), {"role": text or "x", "content": [{"type": text, "text": text}]}])
    graph.record(asks(text, text, text) | {"content": text}, by(text, finish_reason=text))
    graph.append(say("tool", text, tool_call_id=text), contains=MessageGraph([say("user", text)]))
    graph[0]["content"] = text + "!"
    assert max(map(len, check(graph))) < 3_000


def test_a_hostile_reason_is_only_text():
    graph = MessageGraph([say("assistant", "a")])
    with graph.edit('"] --> evil["'):
        graph[0]["content"] = "b"
    check(graph)


def test_hard_graphs_are_drawn():
    check(head_edited_every_turn(40))
    check(edited_from_the_end(40))
    check(MessageGraph())


def test_subagents_nest_to_any_depth_without_recursion(with_short_stack: Callable[[Callable[[], None]], None]):
    graph = MessageGraph([say("user", "the innermost")])
    for _ in range(400):
        outer = MessageGraph([say("user", "a")])
        outer.append(say("tool", "done", tool_call_id="c"), contains=graph)
        graph = outer

    def promise() -> None:
        lines = list(diagram(graph, "g"))
        assert sum("Subagent Chat" in line for line in lines) == 400
        assert max(map(len, lines)) < 6_000

    with_short_stack(promise)


def test_the_command_writes_it(run: Run, demo_store: Path):
    code, out, _ = run("log", "demo", "--mermaid")
    assert code == 0
    assert out.startswith("graph TD\n")
    assert json.loads(run("log", "demo", "--mermaid", "--json").out)["mermaid"] + "\n" == out
