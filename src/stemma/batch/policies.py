"""Which conversations are left out of the files, and why: named, counted, and never deleted.

    no reasoning    not one reply came with a thought: the format's users train on thoughts
    unknown tool    it called a tool that was not offered
    unscored        a reward was asked for and none could be given
    not exportable  it cannot be written as an entry; the record says why

The conversation stays in the store whatever is decided here. `tests/batch/test_policies.py` proves it.
"""

from collections.abc import Iterable

import msgspec

from stemma.batch.record import Record

NO_REASONING, UNKNOWN_TOOL, UNSCORED = "no reasoning", "unknown tool", "unscored"
NOT_EXPORTABLE = "not exportable"


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """What stays in although a policy would leave it out."""

    keep_no_reasoning: bool = False
    keep_unknown_tools: bool = False
    rewarded: bool = False
    """Whether rewards were asked for."""

    def reason(self, record: Record) -> str | None:
        """Why an ended conversation is left out; None if it is not."""
        if not self.keep_no_reasoning and not record.with_reasoning:
            return NO_REASONING
        if not self.keep_unknown_tools and any(name not in record.offered for name in record.tools):
            return UNKNOWN_TOOL
        if self.rewarded and record.reward is None:
            return UNSCORED
        return NOT_EXPORTABLE if record.export_failure is not None else None

    def wants(self, record: Record) -> bool:
        """Whether a conversation is to have an entry, if one can be made of it."""
        return record.ended and self.reason(record) in (None, NOT_EXPORTABLE)


def left_out(records: Iterable[Record], policies: Policies) -> dict[str, int]:
    """How many ended conversations each policy leaves out."""
    counts = dict.fromkeys((NO_REASONING, UNKNOWN_TOOL, UNSCORED, NOT_EXPORTABLE), 0)
    for record in records:
        if record.ended and (reason := policies.reason(record)) is not None:
            counts[reason] += 1
    return counts
