"""Other processes that help with a run, as its runner sees them: `crew.py` has them, who runs alone has none."""

from typing import Protocol


class Team(Protocol):
    """Other processes that help with the run."""

    def stop(self, why: str) -> None:
        """Let them start no more tasks."""
        ...

    def cancel(self) -> None:
        """Let them leave their tasks where they are."""
        ...

    def share_room(self) -> None:
        """Something has ended here: they may have the room that is free now."""
        ...

    async def ended(self) -> bool:
        """Wait for them; whether one of them has left tasks behind."""
        ...


class Alone:
    """Nobody helps."""

    def stop(self, why: str) -> None: ...
    def cancel(self) -> None: ...
    def share_room(self) -> None: ...
    async def ended(self) -> bool:
        return False
