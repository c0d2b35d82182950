"""What an exception around a tool means: the model's mistake, or a failure of the harness.

    the model's    a `ToolError`, whatever a user's own function raises, an `OSError` of a file tool: an error result
    the harness's  no descriptors, processes, memory or disk, wherever that is raised; a sandbox or an MCP server that
                   cannot be used; any other exception of a shipped tool: `HarnessFailed`

An error that was raised from another counts as that other one, too: libraries wrap `Too many open files` in errors of
their own. EAGAIN is what fork(2) answers when there are no processes left; nothing else about it tells a fork from a
non-blocking read, so it always counts as the harness's. `tests/tools/test_failures.py` proves it.
"""

import errno
from collections.abc import Iterator

from stemma.errors import HarnessFailed, InternalError, OutOfResources
from stemma.tools.tool import Tool, ToolError

EXHAUSTED = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
    }
)
"""Errors of the system that mean that this machine has something no more."""
_NO_THREAD = "can't start new thread"
"""What Python's own RuntimeError says when the system has no thread left."""


def harness_failure(problem: BaseException, tool: Tool) -> HarnessFailed | None:
    """The failure of the harness that an exception of `tool` is; None if it is an error for the model."""
    if (cause := exhaustion(problem)) is not None:
        return cause
    if isinstance(problem, HarnessFailed):
        return problem
    if not is_shipped(tool) or isinstance(problem, ToolError):
        return None
    said = f"{tool.name}: {type(problem).__name__}: {problem}"
    if isinstance(problem, OSError):
        return None if tool.toolset == "file" else HarnessFailed(said)
    return InternalError(said)


def exhaustion(problem: BaseException) -> OutOfResources | None:
    """`OutOfResources`, if that is why an exception was raised, whatever wraps it."""
    for one in _causes(problem):
        if isinstance(one, OutOfResources):
            return one
        if isinstance(one, OSError) and one.errno in EXHAUSTED:
            return OutOfResources(f"{one.strerror or one} ({errno.errorcode[one.errno]})")
        if isinstance(one, MemoryError):
            return OutOfResources("out of memory")
        if isinstance(one, RuntimeError) and str(one) == _NO_THREAD:
            return OutOfResources("no thread could be started")
    return None


def is_shipped(tool: Tool) -> bool:
    """Whether a tool's function is ours; any exception it does not raise on purpose is our fault."""
    module = getattr(tool.run, "__module__", None) or ""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """An exception and all that it was raised from, also where `from None` hides it from a traceback."""
    waiting, seen = [problem], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
