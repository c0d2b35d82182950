"""The rows of `lanes` as lines of text, and as JSON. `tests/cli/test_lanes.py` pins how they look."""

from typing import Any

from stemma.cli.entry import entry
from stemma.cli.lanes import Row
from stemma.cli.screen import Piece
from stemma.cli.tree import Branch

_MOST_LANES = 24
"""More than these are not drawn but counted, so that a row never grows with the depth of the nesting."""


def as_line(row: Row, width: int) -> list[Piece]:
    """What is printed for a row."""
    lanes = _lanes(row)
    if row.kind == "node":
        node, message = row.branch.nodes[row.index], row.branch.message(row.index)
        calls = row.branch.calls.get(row.index, [])
        return entry(node, message, calls, _remarks(row), lead=(lanes, "dim"), width=width)
    corner = "├─" if row.goes_on else "╰─"
    if row.kind in ("subagent", "again"):
        said = f"{row.count} messages" if row.kind == "subagent" else "drawn above"
        return [(f"{lanes}{corner}⊃ ", "dim"), (row.address, "blue"), (f" subagent, {said}", "dim")]
    if row.kind == "fold":
        said = f"{lanes}⋮ {row.count:,} messages that stand in the line that replaced this one"
        return [(said, "dim"), *(piece for remark in _remarks(row) for piece in ("  ", remark))]
    lead = "├─ " if row.kind == "onward" else f"{corner}╮ "
    return [(lanes + lead, "dim"), (f"@{row.branch.version}", "bold blue"), (_why(row), "blue")]


def _lanes(row: Row) -> str:
    if len(row.lanes) > _MOST_LANES:
        return f"┄ {len(row.lanes)} lanes ┄ "
    return "".join("│ " if goes_on else "  " for goes_on in row.lanes)


def _remarks(row: Row) -> list[Piece]:
    remarks: list[Piece] = [(f"@{version}", "bold blue") for version in _ends(row)]
    if _is_tip(row):
        remarks.append(("← tip", "bold"))
    return remarks


def _ends(row: Row) -> list[int]:
    """The versions whose line ends with a message of this row."""
    if row.kind == "node":
        return row.branch.ends.get(row.index, [])
    folded = range(row.index, row.index + row.count)
    return sorted(version for index, ends in row.branch.ends.items() if index in folded for version in ends)


def _is_tip(row: Row) -> bool:
    return row.branch.parent is None and row.kind == "node" and row.index == row.branch.stop - 1 and not row.lanes


def _why(row: Row) -> str:
    return " goes on" if row.kind == "rest" else f" {reason(row.branch)}"


def reason(branch: Branch) -> str:
    """Why a line was left, and how much of it was replaced."""
    kept = branch.kept
    assert kept is not None
    return f"{kept.reason}: {kept.replaced} message{'' if kept.replaced == 1 else 's'} → {len(kept.replacement)}"


def as_dict(row: Row) -> dict[str, Any]:
    """What is written for a row with --json."""
    found: dict[str, Any] = {"kind": row.kind, "lane": len(row.lanes), "graph": row.member.address, "index": row.index}
    if row.kind == "node":
        return found | _node(row)
    if row.kind in ("subagent", "again"):
        return found | {"subagent": row.address, "messages": row.count}
    found["version"] = row.branch.version
    if row.kind == "fold":
        return found | {"messages": row.count, "ends": _ends(row)}
    kept = row.branch.kept
    if kept is None or row.kind == "rest":
        return found
    return found | {"reason": kept.reason, "replaced": kept.replaced, "replacement": len(kept.replacement)}


def _node(row: Row) -> dict[str, Any]:
    message, branch = row.branch.message(row.index), row.branch
    return {
        "node": branch.nodes[row.index].hex(),
        "message": message.id.hex(),
        "role": message.role,
        "content": message.get("content"),
        "tool_calls": message.get("tool_calls") or [],
        "sampled_by": [call.model for call in branch.calls.get(row.index, [])],
        "version": branch.version,
        "ends": _ends(row),
        "tip": _is_tip(row),
    }
