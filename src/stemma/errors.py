"""Every error stemma raises on purpose.

Each says what is wrong, which one, and what to do; each is also the standard type it resembles, so
`except ValueError` works where one expects it to; each survives pickling.

    StemmaError
    ├── BadMessage (ValueError)      a value that cannot be a message, with the place inside it
    ├── BadCall (ValueError)         a model call record that cannot be kept
    ├── NotAList (TypeError)         a list operation that has no meaning for a context window
    ├── StaleView (RuntimeError)     a write through a view whose message has moved or gone
    ├── OtherThread (RuntimeError)   a graph that another thread changes
    ├── BadLink (ValueError)         a subagent link that would be wrong: no tool result, or a cycle
    ├── BadName (ValueError)         a name or reason that cannot be kept as text
    ├── BadRecord (ValueError)       a line of a file that is no record, or a value that cannot become one
    ├── BadTrajectory (ValueError)   a conversations list that cannot be read or written, with the turn
    ├── MissingExtra (ImportError)   an optional package that is not installed, with the command that installs it
    ├── NotFound (LookupError)       no such graph, node or message
    ├── Ambiguous (LookupError)      an id prefix that fits several
    ├── HarnessFailed (RuntimeError) what this machine or program could not do for a tool call
    │   ├── OutOfResources           no descriptors, processes, memory or disk space left
    │   └── InternalError            a fault in stemma itself
    └── StoreError (RuntimeError)
        ├── StoreMissing             there is no store at that path
        ├── StoreTooNew              written by a newer stemma
        ├── StoreDamaged             a record that cannot be read; `stemma verify` names it
        ├── StoreBusy                another process is writing and did not finish in time
        ├── NameTaken                the name holds another conversation, or a newer state of this one
        ├── StoreClosed              used after close()
        ├── StoreVanished            its file was removed or replaced while it was open
        └── NotWritten               the disk refused; nothing was recorded
"""


class StemmaError(Exception):
    """The root of all of them."""


class BadMessage(StemmaError, ValueError):
    """A value that cannot be a message."""


class BadCall(StemmaError, ValueError):
    """A model call record that cannot be kept."""


class NotAList(StemmaError, TypeError):
    """A list operation that has no meaning for a context window."""


class StaleView(StemmaError, RuntimeError):
    """A write through a view whose message has moved or gone."""


class OtherThread(StemmaError, RuntimeError):
    """A graph that another thread changes."""


class BadLink(StemmaError, ValueError):
    """A subagent link to something that is no tool result, or that would close a cycle."""


class BadName(StemmaError, ValueError):
    """A name or reason that cannot be kept as text."""


class BadRecord(StemmaError, ValueError):
    """A line of a file that is no record, or a value that cannot become one."""

    def __init__(self, problem: str, file: str | None = None, line: int | None = None) -> None:
        super().__init__(problem, file, line)
        self.problem, self.file, self.line = problem, file, line

    def __str__(self) -> str:
        place = [str(part) for part in (self.file, self.line) if part is not None]
        return f"{':'.join(place)}: {self.problem}" if place else self.problem


class MissingExtra(StemmaError, ImportError):
    """An optional package that is not installed."""


class BadTrajectory(StemmaError, ValueError):
    """A conversations list that cannot be read, or a trajectory that cannot be written."""


class NotFound(StemmaError, LookupError):
    """No such graph, node or message."""


class Ambiguous(StemmaError, LookupError):
    """An id prefix that fits several."""


class HarnessFailed(StemmaError, RuntimeError):
    """What this machine or this program could not do for a tool call, although the model asked for nothing wrong.

    It is never a tool result. The call is tried again if `retryable`, then the task fails as it does when the model's
    endpoint fails. A tool of your own may raise it, too.
    """

    retryable = True
    """Whether the same call may succeed a moment later."""
    retry_after: float | None = None


class OutOfResources(HarnessFailed):
    """No descriptors, processes, memory or disk space are left."""


class InternalError(HarnessFailed):
    """A fault in stemma itself."""

    retryable = False


class StoreError(StemmaError, RuntimeError):
    """Something about a store file."""


class StoreMissing(StoreError):
    """There is no store at that path."""


class StoreTooNew(StoreError):
    """The file was written by a newer stemma."""


class StoreDamaged(StoreError):
    """A record that cannot be read."""


class StoreBusy(StoreError):
    """Another process is writing and did not finish in time."""


class NameTaken(StoreError):
    """The name holds another conversation, or a newer state of this one."""


class StoreClosed(StoreError):
    """The store was used after close()."""


class StoreVanished(StoreError):
    """The store's file was removed or replaced while it was open."""


class NotWritten(StoreError):
    """The disk refused; nothing was recorded."""
