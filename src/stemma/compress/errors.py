"""What can go wrong with a compression as a whole; what befalls one row is told in its metrics.

BadSettings (StemmaError, ValueError)         a key or value of the settings that cannot be used
BadTokenizer (StemmaError, ValueError)        a tokenizer that cannot be used, or an endpoint that does not count
OutputThere (StemmaError, FileExistsError)    what would be written is there already, finished or begun otherwise
NoSummary (StemmaError)                       a summary that did not come: the row stays as it was
"""

from stemma.errors import StemmaError


class BadSettings(StemmaError, ValueError):
    """A key or value of the settings that cannot be used."""


class BadTokenizer(StemmaError, ValueError):
    """A tokenizer that cannot be used, or an endpoint that does not count."""


class OutputThere(StemmaError, FileExistsError):
    """What would be written is there already, finished or begun otherwise."""


class NoSummary(StemmaError):
    """A summary that did not come."""

    def __init__(self, message: str, calls: int = 1) -> None:
        super().__init__(message, calls)
        self.calls = calls
        """How often it was asked for."""

    def __str__(self) -> str:
        return str(self.args[0])
