"""Token rows of one rollout: a graph and its subagents, as the fewest sequences a trainer can take.

    plan = plan_rows("chat-1", captured(graph), Rules(), Standing(group="p1", reward=1.0))
    plan.rows · plan.exclusions · plan.breaks · plan.receipts

A row holds the ids of the longest of its calls, and spans: which of them which call sampled. Logprobs are kept for the
spans only. Weights add up to 1 over the rows of a rollout, in proportion to the tokens they train, so that splitting a
rollout does not change what it weighs. `tests/core/test_token_rows.py` proves it; `core/proof.py` checks the result.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from struct import pack

import msgspec

from stemma.core.breaks import Break, breaks
from stemma.core.call import Call, told
from stemma.core.cover import TokenCall, cover
from stemma.core.exclusions import Rules, is_ephemeral, why_not
from stemma.core.receipts import Exclusion, Receipt, RowLine, Span, hashed
from stemma.core.token_calls import Captured
from stemma.core.token_trie import WIDTH

IGNORED = -100
"""The label of a token that is not trained, as PyTorch's losses have it."""
NO_LOGPROB = pack("<f", float("nan"))
"""The logprob of a sampled token for which the engine gave none."""

Render = Callable[[Captured], bytes]
"""The ids of a call's context without what only the call saw."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a rollout stands among others."""

    group: str
    """Rollouts of one group answer the same prompt."""
    reward: float | None = None
    advantage: float | None = None
    """Relative to its group, counting rollouts, not rows."""


class PolicySpan(msgspec.Struct, frozen=True, array_like=True):
    """From token `start` of a row on, until the next such span, this version of the policy sampled."""

    start: int
    version: str


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to train on."""

    rollout: str
    standing: Standing
    model: str
    weight: float
    ids: bytes
    """Packed int32; the last one is trained."""
    spans: tuple[Span, ...]
    """What is trained; everything else is context."""
    sampled_logprobs: tuple[bytes, ...]
    """Packed float32 for each span; `NO_LOGPROB` for each token if none were given."""
    policy: tuple[PolicySpan, ...]
    """Versions of the policy, as far as they are known."""
    on_policy: bool
    """Whether each trained token stands in the very context it was sampled in."""

    def labels(self) -> bytes:
        """The ids where trained, -100 elsewhere; packed int32."""
        ids = [self.ids[span.start * WIDTH : span.end * WIDTH] for span in self.spans]
        return self._over_gaps(ids, pack("<i", IGNORED))

    def logprobs(self) -> bytes:
        """One for each id, zero where untrained; packed float32."""
        return self._over_gaps(self.sampled_logprobs, pack("<f", 0.0))

    def mask(self) -> bytes:
        """A byte for each id: 1 where trained."""
        return self._over_gaps([b"\1" * (span.end - span.start) for span in self.spans], b"\0")

    def _over_gaps(self, pieces: Sequence[bytes], filler: bytes) -> bytes:
        found, at = [], 0
        for span, piece in zip(self.spans, pieces, strict=True):
            found += [filler * (span.start - at), piece]
            at = span.end
        return b"".join(found)

    def line(self) -> RowLine:
        """What the receipts say of it."""
        standing = self.standing
        return RowLine(
            rollout=self.rollout,
            group=standing.group,
            weight=self.weight,
            reward=standing.reward,
            advantage=standing.advantage,
            spans=list(self.spans),
        )


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that becomes of a rollout's calls."""

    rows: list[TokenRow]
    exclusions: list[Exclusion]
    breaks: list[Break]
    receipts: list[Receipt]
    tree_tokens: int
    policies: dict[str, int]
    """Trained calls by the version of the policy."""


def plan_rows(
    rollout: str,
    calls: Sequence[Captured],
    rules: Rules,
    standing: Standing,
    render: Render | None = None,
    elsewhere: Container[str] = (),
) -> RowPlan:
    """The rows of a rollout.

    `render` is needed where the rules say to distill; `elsewhere` has the calls that another rollout accounts for, as
    it is with forks of one conversation: here they are context.
    """
    names = [one.id for one in calls]
    mine = [number for number, name in enumerate(names) if name not in elsewhere]
    refused = {number: why_not(calls[number].call, rules, standing.reward) for number in mine}
    kept = [number for number, why in refused.items() if why is None]
    exclusions = [_excluded(names[n], rollout, calls[n].call, why) for n, why in refused.items() if why]
    shown = {
        n: render(calls[n]) for n in kept if render and rules.ephemeral == "distill" and is_ephemeral(calls[n].call)
    }
    chains, tree_tokens = _chains(calls, kept, shown)
    trained = sum(len(calls[n].call.sampled_ids or b"") for n in kept)
    return RowPlan(
        rows=[_row(rollout, standing, calls, names, chain, shown, trained) for chain in chains],
        exclusions=exclusions,
        breaks=breaks(calls),
        receipts=[_receipt(names[n], rollout, calls[n], shown.get(n)) for n in kept],
        tree_tokens=tree_tokens,
        policies=dict(Counter(version for n in kept for _, version in policy_of(calls[n].call))),
    )


def policy_of(call: Call) -> list[tuple[int, str]]:
    """Which version of the policy sampled from which of its tokens on.

    `extra["policy_version"]`, or where weights changed on the way `extra["policy_spans"]`: pairs of token and version.
    """
    spans = call.extra.get("policy_spans")
    if isinstance(spans, list) and all(isinstance(one, list) and len(one) == 2 for one in spans):
        return [(int(start), str(version)) for start, version in spans]
    version = call.extra.get("policy_version")
    return [] if version is None else [(0, str(version))]


def _excluded(name: str, rollout: str, call: Call, why: tuple[str, str]) -> Exclusion:
    sampled = len(call.sampled_ids or b"") // WIDTH or call.usage.get("completion_tokens")
    count = sampled if isinstance(sampled, int) else 0
    return Exclusion(call=name, rollout=rollout, reason=why[0], detail=why[1], sampled=count)


def _chains(calls: Sequence[Captured], kept: list[int], shown: dict[int, bytes]) -> tuple[list[list[int]], int]:
    """The cover of the kept calls, each model's apart."""
    by_model: dict[str, list[int]] = {}
    for number in kept:
        by_model.setdefault(calls[number].call.model, []).append(number)
    chains, tree_tokens = [], 0
    for numbers in by_model.values():
        place = {number: i for i, number in enumerate(numbers)}
        found = cover([_token_call(calls[n], place, shown.get(n)) for n in numbers])
        chains += [[numbers[i] for i in row] for row in found.rows]
        tree_tokens += found.tree_tokens
    return sorted(chains), tree_tokens


def _token_call(one: Captured, place: dict[int, int], shown: bytes | None) -> TokenCall:
    prompt = one.call.prompt_ids if shown is None else shown
    before = None if one.before is None else place.get(one.before)
    return TokenCall(prompt or b"", one.call.sampled_ids or b"", before)


def _row(
    rollout: str,
    standing: Standing,
    calls: Sequence[Captured],
    names: list[str],
    chain: list[int],
    shown: dict[int, bytes],
    trained: int,
) -> TokenRow:
    spans = tuple(_span(names[n], calls[n].call, shown.get(n)) for n in chain)
    last = calls[chain[-1]].call
    prompt = shown.get(chain[-1], last.prompt_ids or b"")
    return TokenRow(
        rollout=rollout,
        standing=standing,
        model=last.model,
        weight=sum(span.end - span.start for span in spans) * WIDTH / trained,
        ids=prompt + (last.sampled_ids or b""),
        spans=spans,
        sampled_logprobs=tuple(_logprobs(calls[n].call, n in shown) for n in chain),
        policy=tuple(
            PolicySpan(span.start + start, version)
            for span, n in zip(spans, chain, strict=True)
            for start, version in policy_of(calls[n].call)
        ),
        on_policy=not any(n in shown for n in chain),
    )


def _span(name: str, call: Call, shown: bytes | None) -> Span:
    start = len((call.prompt_ids if shown is None else shown) or b"") // WIDTH
    return Span(name, start, start + len(call.sampled_ids or b"") // WIDTH)


def _logprobs(call: Call, distilled: bool) -> bytes:
    if call.logprobs is None or distilled:  # those of another context say nothing about this one
        return NO_LOGPROB * (len(call.sampled_ids or b"") // WIDTH)
    return call.logprobs


def _receipt(name: str, rollout: str, one: Captured, shown: bytes | None) -> Receipt:
    body, tools, prompt, sampled, logprobs = map(hashed, one.call.parts())
    return Receipt(
        call=name,
        rollout=rollout,
        model=one.call.model,
        context="sampled" if shown is None else "distilled",
        saw=one.saw.hex(),
        made=one.made.hex(),
        event=one.event.hex(),
        body=body,
        tools=tools,
        prompt=prompt,
        sampled=sampled,
        logprobs=logprobs,
        shown=None if shown is None else hashed(told(shown)),
    )
