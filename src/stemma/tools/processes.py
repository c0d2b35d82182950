"""Processes in the background: what `terminal(background=true)` starts, and the tool that looks after them.

They run behind the conversation's fence beside its shell, share its limits, and end with it. Each has an id that the
model uses: p1, p2, … `tests/tools/test_processes.py` proves it.
"""

from typing import Literal

from stemma.tools.shell import Process
from stemma.tools.tool import Tool, ToolError, ToolResult, as_tool
from stemma.tools.workspace import Workspace

MOST_RUNNING = 16
"""How many may run at once; each holds a pipe open on our side."""
_SHOWN = 1000
"""How many characters of a command a list shows."""


async def start(command: str, here: Workspace) -> ToolResult:
    """Start a command in the background."""
    known = _known(here)
    if sum(process.running for _, process in known.values()) >= MOST_RUNNING:
        raise ToolError(f"{MOST_RUNNING} processes run already; stop one of them first")
    shell = await here.shell()
    process = await shell.launch(command)
    number = f"p{len(known) + 1}"
    known[number] = (command, process)
    return ToolResult(text=f"[{number} runs in the background; see its output with the tool process]")


async def process(
    action: Literal["list", "output", "wait", "stop"], here: Workspace, id: str = "", timeout: float = 60.0
) -> ToolResult:
    """Look after the processes that the terminal started in the background.

    action: list all; show the new output of one; wait for its end and show its output; or stop it
    id: which one, such as p1; all actions but list need it
    timeout: for wait, after how many seconds to give up; the process runs on
    """
    if action == "list":
        lines = [
            f"{number}  {_state(one)}  {here.redactor.start(command, _SHOWN)}"
            for number, (command, one) in _known(here).items()
        ]
        return ToolResult(text="\n".join(lines) or "no process was started in the background")
    one = _find(here, id)
    if action == "stop":
        await one.stop()
    elif action == "wait":
        await one.wait(min(timeout, here.limits.seconds))
    text, cut = one.news()
    return ToolResult(text=f"{text}\n[{id} {_state(one)}]".lstrip("\n"), cut=cut)


def _known(here: Workspace) -> dict[str, tuple[str, Process]]:
    found: dict[str, tuple[str, Process]] = here.state.setdefault("processes", {})
    return found


def _find(here: Workspace, number: str) -> Process:
    known = _known(here)
    if number not in known:
        raise ToolError(f"there is no process {number!r}; there are: {', '.join(known) or 'none'}")
    return known[number][1]


def _state(one: Process) -> str:
    if one.running:
        return "runs"
    if one.code is not None:
        return f"has ended with exit code {one.code}"
    return "was stopped" if one.stopped else "has ended with its sandbox"


TOOLS: tuple[Tool, ...] = (as_tool(process, toolset="terminal"),)
