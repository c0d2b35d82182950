"""A graph as a Mermaid diagram, with the boxes of the picture in the user's description of the message graph.

Messages are boxes and arrows their sequence. A reply that a model call made is a `💬 Chat Response` with the call's
metadata; a tool result is a `🔧 Tool Response` with its metadata and, inside, each `💭 Subagent Chat` it answers for; a
line that was left is a box of `Previous Messages`, with a dotted arrow to where the line that replaced it goes on.
No text can end a label, start a comment or a directive, or be taken for HTML or Markdown: each sign that Mermaid
gives a meaning is written as an entity. Nothing recurses. `tests/cli/test_mermaid.py` checks every line against the
few forms that are written here.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from stemma.cli.address import linked
from stemma.cli.boxes import chat_response, label, message_box
from stemma.cli.brief import content_text
from stemma.cli.drawing import reason
from stemma.cli.tree import Branch, Stretch, grow
from stemma.core.graph import MessageGraph
from stemma.core.ids import Id
from stemma.core.message import Message

Steps = Iterator["str | Steps"]
"""Lines of the diagram, and parts to write before going on."""

_DEEPEST_INDENT = 12
"""Deeper boxes are written no further to the right, so that a line never grows with the depth of the nesting."""

_CLASSES = {
    "messageNode": "fill:#e3f2fd,stroke:#1976d2,color:#000",
    "responseNode": "fill:#e8f5e9,stroke:#388e3c,color:#000",
    "metadataNode": "fill:#fff8e1,stroke:#f9a825,color:#000",
    "previousNode": "fill:#f5f5f5,stroke:#9e9e9e,color:#000",
}


def diagram(graph: MessageGraph, address: str) -> Iterator[str]:
    """The lines of the diagram."""
    drawing = _Diagram()
    yield "graph TD"
    waiting, depth = [drawing.chat(graph, address, small=False)], 1
    while waiting:
        step = next(waiting[-1], None)
        if step is None:
            waiting.pop()
        elif isinstance(step, str):
            depth -= step == "end"
            yield "    " * min(depth, _DEEPEST_INDENT) + step
            depth += step.startswith("subgraph ")
        else:
            waiting.append(step)
    for name, style in _CLASSES.items():
        yield f"    classDef {name} {style}"
        if drawing.classes[name]:
            yield f"    class {','.join(drawing.classes[name])} {name}"


class _Diagram:
    def __init__(self) -> None:
        self.boxes = 0
        self.drawn: dict[int, MessageGraph] = {}
        """Subagents drawn so far, by identity; several tool results may carry one conversation."""
        self.classes: dict[str, list[str]] = {name: [] for name in _CLASSES}
        """The boxes around others, by how they are painted."""

    def name(self) -> str:
        self.boxes += 1
        return f"n{self.boxes}"

    def chat(self, graph: MessageGraph, address: str, *, small: bool) -> Steps:
        """All lines of a graph: boxes, then arrows; last, subagents whose tool result stands on none of them."""
        links, boxes = linked(graph, address), dict[Branch, _Boxes]()
        for branch in _branches(grow(graph)):
            boxes[branch] = _Boxes()
            yield self.line(branch, boxes[branch], links, small=small)
        yield from _arrows(boxes)
        for children in links.values():
            for child_address, child in children:
                if id(child) not in self.drawn:
                    yield self.subagent(child_address, child)
        if not graph and len(boxes) == 1:
            yield f'{self.name()}["no messages"]'

    def line(
        self, branch: Branch, boxes: "_Boxes", links: dict[Id, list[tuple[str, MessageGraph]]], *, small: bool
    ) -> Steps:
        """The boxes of a branch; those of a line that was left are put into one."""
        if branch.parent is not None:
            boxes.around = self.name()
            yield f"subgraph {boxes.around}[{label('Previous Messages', f'@{branch.version} {reason(branch)}')}]"
        for stretch in branch.stretches():
            name = boxes.add(stretch, self.name())
            if stretch.folded:
                yield f"{name}[{label(f'⋮ {stretch.stop - stretch.start} messages that stand in the next line')}]"
            else:
                message = branch.message(stretch.start)
                yield self.message(name, branch, stretch.start, links.get(message.id, []), small=small)
        if branch.parent is not None:
            yield "end"
            self.classes["previousNode"].append(boxes.around or "")

    def message(
        self, name: str, branch: Branch, index: int, children: list[tuple[str, MessageGraph]], *, small: bool
    ) -> Steps:
        message, calls = branch.message(index), branch.calls.get(index, [])
        if message.role == "tool" and (children or not small):
            yield from self.tool_response(name, message, children)
        elif calls and not small:
            yield from chat_response(name, message, calls)
            self.classes["responseNode"].append(name)
        else:
            yield f"{name}[{message_box(message, calls, small=small)}]:::messageNode"

    def tool_response(self, name: str, message: Message, children: list[tuple[str, MessageGraph]]) -> Steps:
        said = content_text(message.get("content"))
        yield f"subgraph {name}[{label('🔧 Tool Response')}]"
        yield f"subgraph {name}m[{label('📊 Tool Metadata')}]"
        length = f"{sum(len(child) for _, child in children)}" if children else f"{len(said)} characters"
        yield f"{name}l[{label(('Length', length))}]:::metadataNode"
        for address, child in children:
            yield self.subagent(address, child)
        yield "end"
        yield f"{name}c[{label(('Content', said))}]:::metadataNode"
        yield "end"
        self.classes["metadataNode"].append(f"{name}m")
        self.classes["responseNode"].append(name)

    def subagent(self, address: str, child: MessageGraph) -> Steps:
        title = f"💭 Subagent Chat {address}"
        if id(child) in self.drawn:
            yield f"{self.name()}[{label(title, 'drawn above')}]"
            return
        self.drawn[id(child)] = child
        yield f"subgraph {self.name()}[{label(title)}]"
        yield self.chat(child, address, small=True)
        yield "end"


class _Boxes:
    """The names of the boxes of one branch."""

    def __init__(self) -> None:
        self.around: str | None = None
        """The box around them, if the line was left."""
        self.starts: list[int] = []
        self.names: list[str] = []

    def add(self, stretch: Stretch, name: str) -> str:
        self.starts.append(stretch.start)
        self.names.append(name)
        return name

    def at(self, index: int) -> str:
        """The box of the message at `index`, or the last one before."""
        return self.names[max(bisect_right(self.starts, index) - 1, 0)]


def _branches(trunk: Branch) -> Iterator[Branch]:
    """All branches of a tree, the trunk first, each after the one it leaves."""
    waiting = [trunk]
    while waiting:
        branch = waiting.pop()
        yield branch
        waiting += [other for at in sorted(branch.forks, reverse=True) for other in reversed(branch.leaving(at))]


def _arrows(boxes: dict[Branch, _Boxes]) -> Iterator[str]:
    for branch, own in boxes.items():
        if branch.parent is not None and branch.start:
            yield f"{boxes[branch.parent].at(branch.start - 1)} --> {own.names[0]}"
        yield from (f"{one} --> {other}" for one, other in pairwise(own.names))
    for branch, own in boxes.items():
        if branch.heir is None or branch.kept is None:
            continue
        heir = boxes[branch.heir.at(min(branch.kept.index, branch.heir.stop - 1))]
        if heir.names:
            yield f"{own.around} -.-> {heir.at(branch.kept.index)}"
