"""The terminal: a shell of the conversation's own, behind its fence."""

from stemma.tools import processes
from stemma.tools.keeper import FenceBroken
from stemma.tools.tool import Tool, ToolResult, as_tool
from stemma.tools.workspace import Workspace

_RESTARTED = (
    "[the sandbox did not answer and was started anew before this command: the shell's folder and variables and all "
    "processes in the background are gone]"
)


async def terminal(command: str, here: Workspace, timeout: float = 60.0, background: bool = False) -> ToolResult:
    """Run a shell command. The shell keeps its folder and variables between commands; there is no keyboard.

    command: what to run, in bash
    timeout: after how many seconds to end it
    background: start it and go on at once, as for a server; it has no timeout, and the tool process looks after it
    """
    if background:
        return await processes.start(command, here)
    ran = await (await here.shell()).run(command, timeout)
    restarted = not ran.started
    if restarted:
        ran = await (await here.shell()).run(command, timeout)
        if not ran.started:
            raise FenceBroken("the sandbox does not answer, not even one that was started anew")
    if ran.code is None:
        why = "it took too long and was ended" if ran.too_long else "it ended the shell"
        text = f"{ran.output}\n[{why}; the shell starts anew with the next command]"
    else:
        text = ran.output if ran.code == 0 else f"{ran.output}\n[exit code {ran.code}]"
    text = text.strip("\n") or "[no output]"
    return ToolResult(text=f"{_RESTARTED}\n{text}" if restarted else text, ok=ran.code == 0, cut=ran.cut)


TOOLS: tuple[Tool, ...] = (as_tool(terminal, toolset="terminal"), *processes.TOOLS)
