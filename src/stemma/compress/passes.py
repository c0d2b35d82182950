"""The passes over one row: plan, summarise, count; again while that was not enough and may still help.

A pass that leaves the row too long by n tokens is followed by one that plans to save n more; when there is nothing more
to cut, by one that asks for summaries of half the length. A summary no shorter than what it replaces is not used.

    target 100   pass 1 cuts turns 4…6, the summary is long: 112 tokens     → pass 2 plans to save 12 more
                 pass 2 cuts turns 4…8: 97 tokens                           → done
"""

import msgspec

from stemma.compress.counting import Counter
from stemma.compress.plan import Cut, Protection, Turn, plan, summary_room
from stemma.compress.summary import Summarizer, Summary
from stemma.compress.turns import Item, cut_out, noticed

_PASSES = 4


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation whose tokens are known."""

    items: list[Item]
    turns: list[Turn]
    tokens: list[int]
    """Of each turn, with what the template puts around it."""
    beside: int = 0
    """Tokens of the context that stand in no turn: the tools offered."""

    @property
    def total(self) -> int:
        return sum(self.tokens) + self.beside

    def size(self, cut: Cut) -> int:
        """The tokens of a cut."""
        return sum(self.tokens[cut.start : cut.stop])


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What to reach, and what to leave alone."""

    target: int
    summary_tokens: int
    protection: Protection
    notice: str
    """What is appended to the system turn of a compressed row; may be empty."""


class Attempt(msgspec.Struct, frozen=True):
    """What one pass would make of the row."""

    cuts: tuple[Cut, ...]
    summaries: tuple[str, ...]
    tokens: int


class Passes:
    """One row on its way to the target."""

    def __init__(self, row: Counted, goal: Goal, counter: Counter, summarizer: Summarizer) -> None:
        self._row, self._goal, self._counter, self._summarizer = row, goal, counter, summarizer
        self.spent: list[Summary] = []
        """Every summary that was made, those of passes that came to nothing included."""
        self.everything = self.plan(row.total, goal.summary_tokens)
        """All that may be cut."""

    @property
    def kept(self) -> int:
        """Tokens that no summary can take away."""
        return self._row.total - sum(map(self._row.size, self.everything))

    def plan(self, excess: int, summary_tokens: int) -> tuple[Cut, ...]:
        """What to cut to save `excess` tokens."""
        row = self._row
        return plan(row.turns, row.tokens, self._goal.protection, excess=excess, summary_tokens=summary_tokens)

    async def first_excess(self) -> int:
        """How many tokens to save at first; a row under the target gives all it can."""
        over = self._row.total - self._goal.target
        return over + await self._notice_tokens(self._row.items) if over > 0 else self._row.total

    async def best(self) -> Attempt | None:
        """The shortest that the passes made; None if nothing may be cut."""
        best: Attempt | None = None
        excess, ask = await self.first_excess(), self._goal.summary_tokens
        last: tuple[Cut, ...] = ()
        for _ in range(_PASSES):
            cuts = self.plan(excess, ask)
            if cuts and cuts == last:
                ask = min(summary_room(self._row.size(cut), ask) for cut in cuts) // 2
            if not cuts or not ask:
                break
            attempt = await self._attempt(cuts, ask)
            best = min(best or attempt, attempt, key=lambda made: made.tokens)
            if attempt.tokens <= self._goal.target or (cuts == self.everything and self.kept >= self._goal.target):
                break
            # What this plan thought to save, and what was missing in the end.
            planned = sum(self._row.size(cut) - summary_room(self._row.size(cut), ask) for cut in cuts)
            excess, last = max(excess, planned) + attempt.tokens - self._goal.target, cuts
        return best

    async def _attempt(self, cuts: tuple[Cut, ...], ask: int) -> Attempt:
        texts = [await self._summary(cut, ask) for cut in cuts]
        sizes = await self._counter.count(texts)
        used = [n for n, cut in enumerate(cuts) if sizes[n] < self._row.size(cut)]
        chosen, said = tuple(cuts[n] for n in used), tuple(texts[n] for n in used)
        return Attempt(chosen, said, await self._tokens(chosen, said, [sizes[n] for n in used]))

    async def _summary(self, cut: Cut, ask: int) -> str:
        room = summary_room(self._row.size(cut), ask)
        summary = await self._summarizer.summarise(self._row.turns[cut.start : cut.stop], max(1, room))
        self.spent.append(summary)
        return summary.text

    async def _tokens(self, cuts: tuple[Cut, ...], summaries: tuple[str, ...], sizes: list[int]) -> int:
        """The tokens of the result: kept turns as counted; summaries, and the template around them all, anew."""
        if not cuts:
            return self._row.total
        roles = [turn.role for turn in self._row.turns]
        frames = await self._counter.frames(roles)
        texts = [size - frame for size, frame in zip(self._row.tokens, frames, strict=True)]
        for cut, size in reversed(list(zip(cuts, sizes, strict=True))):
            texts[cut.start : cut.stop], roles[cut.start : cut.stop] = [size], ["human"]
        notice = await self._notice_tokens(cut_out(self._row.items, cuts, summaries, ""))
        return sum(texts) + sum(await self._counter.frames(roles)) + self._row.beside + notice

    async def _notice_tokens(self, items: list[Item]) -> int:
        """What the notice adds to the system turn."""
        found = noticed(items, self._goal.notice)
        if found is None:
            return 0
        before, after = await self._counter.count([found[1].removesuffix(self._goal.notice), found[1]])
        return after - before
