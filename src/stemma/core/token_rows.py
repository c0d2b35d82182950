"""Token rows of one rollout: a graph and its subagents, as the fewest sequences a trainer can take.

    plan = plan_rows("chat-1", captured(graph), Rules(), Standing(group="p1", reward=1.0))
    plan.rows · plan.exclusions · plan.breaks · plan.receipts

A row holds the ids of the longest of its calls, and spans: which of them which call sampled. Logprobs are kept for the
spans only. Tokens for which a constraint left one choice (`core/sampler.py`) are not trained; the receipts list them.
Weights add up to 1 over the rows of a rollout, in proportion to the tokens they train, so that splitting a rollout does
not change what it weighs. `tests/core/test_token_rows.py` proves it; `core/proof.py` checks the result.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from struct import pack

import msgspec

from stemma.core.breaks import Break, breaks
from stemma.core.call import Call, told
from stemma.core.cover import TokenCall, cover
from stemma.core.exclusions import Rules, is_ephemeral, why_not
from stemma.core.receipts import Exclusion, Forced, Receipt, RowLine, Span, hashed
from stemma.core.sampler import Sampler, forced_of, sampler_of
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
    """One sequence to train on; one without spans is a filler, which trains nothing."""

    rollout: str
    standing: Standing
    model: str
    weight: float
    ids: bytes
    """Packed int32; the last one was sampled."""
    spans: tuple[Span, ...]
    """What was sampled and is trained, but for `forced`; everything else is context."""
    sampled_logprobs: tuple[bytes, ...]
    """Packed float32 for each span; `NO_LOGPROB` for each token if none were given."""
    forced: tuple[tuple[int, int], ...] = ()
    """Runs within the spans that are not trained, because a constraint left one choice for each token."""
    policy: tuple[PolicySpan, ...] = ()
    """Versions of the policy, as far as they are known."""
    on_policy: bool = True
    """Whether each trained token stands in the very context it was sampled in, and was sampled freely: by no grammar,
    schema, penalty or bias."""
    temperature: float | None = None
    """That of all its calls; None if they differ or it is not known."""
    top_p: float | None = None
    constrained: bool = False
    """Whether one of its calls was sampled under a grammar, a schema or a required tool."""
    finish_reason: str | None = None
    """Why its last call ended."""

    def labels(self) -> bytes:
        """The ids where trained, -100 elsewhere; packed int32."""
        return self._where_trained(self.ids, pack("<i", IGNORED))

    def logprobs(self) -> bytes:
        """One for each id, zero where untrained; packed float32."""
        zero, found, at = pack("<f", 0.0), [], 0
        for span, piece in zip(self.spans, self.sampled_logprobs, strict=True):
            found += [zero * (span.start - at), piece]
            at = span.end
        return self._where_trained(b"".join(found), zero) if self.forced else b"".join(found) or zero * self.length

    def mask(self) -> bytes:
        """A byte for each id: 1 where trained."""
        return self._where_trained(b"\1" * self.length, b"\0")

    @property
    def length(self) -> int:
        """How many ids it has."""
        return len(self.ids) // WIDTH

    @property
    def trained(self) -> int:
        """How many of its tokens are trained."""
        return sum(end - start for start, end in self._runs())

    def line(self, record: str | None = None) -> RowLine:
        """What the receipts say of it; `record` is the hash of the line that holds it."""
        standing = self.standing
        return RowLine(
            rollout=self.rollout,
            group=standing.group,
            weight=self.weight,
            reward=standing.reward,
            advantage=standing.advantage,
            spans=list(self.spans),
            model=self.model,
            record=record,
        )

    def _where_trained(self, values: bytes, filler: bytes) -> bytes:
        """The values where trained, and `filler` in place of each other."""
        width, found, at = len(filler), [], 0
        for start, end in self._runs():
            found += [filler * (start - at), values[start * width : end * width]]
            at = end
        return b"".join([*found, filler * (self.length - at)])

    def _runs(self) -> Iterator[tuple[int, int]]:
        """What is trained: the spans without the forced runs in them."""
        forced = iter(self.forced)
        without = next(forced, None)
        for span in self.spans:
            start = span.start
            while without is not None and without[1] <= span.end:
                if start < without[0]:
                    yield start, without[0]
                start, without = without[1], next(forced, None)
            if start < span.end:
                yield start, span.end


def filler_row(like: TokenRow, reward: float | None) -> TokenRow:
    """A row for the group of `like` that trains nothing: its first two tokens, and no weight."""
    return TokenRow(
        rollout="",
        standing=Standing(group=like.standing.group, reward=reward),
        model=like.model,
        weight=0.0,
        ids=like.ids[: 2 * WIDTH],
        spans=(),
        sampled_logprobs=(),
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
    models: list[str]
    """The models of the calls that may be trained, each once."""
    sources: dict[str, int]
    """Trained calls by what their logprobs are of."""


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
    shown = {
        n: render(calls[n]) for n in kept if render and rules.ephemeral == "distill" and is_ephemeral(calls[n].call)
    }
    chains, tree_tokens = _chains(calls, kept, shown)
    if rules.one_row and len(chains) > 1:
        chains = [max(chains, key=lambda chain: (sum(_trained(calls[n].call) for n in chain), chain))]
        dropped = set(kept) - set(chains[0])
        refused |= dict.fromkeys(dropped, ("split", "its rollout is more than one row"))
        kept = chains[0]
    trained = sum(_trained(calls[n].call) for n in kept)
    rows = [_row(rollout, standing, calls, names, chain, shown, trained) for chain in chains]
    return RowPlan(
        rows=rows,
        exclusions=[_excluded(names[n], rollout, calls[n], why) for n, why in refused.items() if why],
        breaks=breaks(calls),
        receipts=[_receipt(names[n], rollout, calls[n], shown.get(n)) for n in kept],
        tree_tokens=rows[0].length if len(rows) == 1 else tree_tokens,
        policies=dict(Counter(version for n in kept for _, version in policy_of(calls[n].call))),
        models=list(dict.fromkeys(calls[n].call.model for n, why in refused.items() if not why or why[0] == "split")),
        sources=dict(Counter(_source(calls[n].call) for n in kept)),
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


def _excluded(name: str, rollout: str, one: Captured, why: tuple[str, str]) -> Exclusion:
    sampled = len(one.call.sampled_ids or b"") // WIDTH or one.call.usage.get("completion_tokens")
    return Exclusion(
        call=name,
        rollout=rollout,
        reason=why[0],
        detail=why[1],
        sampled=sampled if isinstance(sampled, int) else 0,
        made=one.made.hex(),
        index=len(one.line),
    )


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
    samplers = [sampler_of(calls[n].call) for n in chain]
    forced = tuple(
        (span.start + start, span.start + end)
        for span, n in zip(spans, chain, strict=True)
        for start, end in forced_of(calls[n].call)
    )
    last = calls[chain[-1]].call
    prompt = shown.get(chain[-1], last.prompt_ids or b"")
    return TokenRow(
        rollout=rollout,
        standing=standing,
        model=last.model,
        weight=sum(_trained(calls[n].call) for n in chain) / trained,
        ids=prompt + (last.sampled_ids or b""),
        spans=spans,
        sampled_logprobs=tuple(_logprobs(calls[n].call, n in shown) for n in chain),
        forced=forced,
        policy=tuple(
            PolicySpan(span.start + start, version)
            for span, n in zip(spans, chain, strict=True)
            for start, version in policy_of(calls[n].call)
        ),
        on_policy=not any(n in shown for n in chain) and all(sampler.free for sampler in samplers),
        temperature=_shared([sampler.temperature for sampler in samplers]),
        top_p=_shared([sampler.top_p for sampler in samplers]),
        constrained=any(sampler.constrained for sampler in samplers),
        finish_reason=last.finish_reason,
    )


def _shared(values: list[float | None]) -> float | None:
    return values[0] if len(set(values)) == 1 else None


def _trained(call: Call) -> int:
    """How many tokens of a call are trained."""
    return len(call.sampled_ids or b"") // WIDTH - sum(end - start for start, end in forced_of(call))


def _source(call: Call) -> str:
    return "none" if call.logprobs is None else sampler_of(call).logprobs or "unknown"


def _span(name: str, call: Call, shown: bytes | None) -> Span:
    start = len((call.prompt_ids if shown is None else shown) or b"") // WIDTH
    return Span(name, start, start + len(call.sampled_ids or b"") // WIDTH)


def _logprobs(call: Call, distilled: bool) -> bytes:
    if call.logprobs is None or distilled:  # those of another context say nothing about this one
        return NO_LOGPROB * (len(call.sampled_ids or b"") // WIDTH)
    return call.logprobs


def _receipt(name: str, rollout: str, one: Captured, shown: bytes | None) -> Receipt:
    call = one.call
    body, tools, prompt, sampled, logprobs = map(hashed, call.parts())
    sampler: Sampler = sampler_of(call)
    return Receipt(
        call=name,
        rollout=rollout,
        model=call.model,
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
        finish_reason=call.finish_reason,
        temperature=sampler.temperature,
        top_p=sampler.top_p,
        constrained=sampler.constrained,
        adjusted=sampler.adjusted,
        logprobs_of=sampler.logprobs,
        policy=tuple(policy_of(call)),
        forced=tuple(
            Forced(start, end, (call.logprobs or b"")[start * WIDTH : end * WIDTH].hex())
            for start, end in forced_of(call)
        ),
    )
