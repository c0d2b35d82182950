"""Which calls are not trained, and why: the first reason that holds is the one that counts.

    undelivered      its reply never reached the conversation (a retry, a dropped stream)
    untrainable      whoever made it said so (a judge, a title, a summary)
    no tokens        the engine gave no ids: there is only text
    failed gate      it gave ids that do not agree with one another; `detail` says how
    nothing sampled  it sampled no token
    no prompt        its prompt is empty: nothing predicts its first token
    forced           a constraint left one choice for each of its tokens: the model chose none of them
    other model      another model than the one that is trained
    no logprobs      the format needs them and the engine gave none
    ephemeral        it saw a prompt or prefill that is no part of the conversation
    no reward        the format needs one and the rollout has none
    over-long        prompt and output together are longer than `max_length`; nothing is ever cut inside a call
    split            the format takes one row a rollout, and another row of this rollout trains more

`tests/core/test_token_rows.py` proves each.
"""

from typing import Literal

import msgspec

from stemma.core.call import Call
from stemma.core.sampler import forced_of

Ephemeral = Literal["exclude", "include", "distill"]
"""What becomes of calls made under an ephemeral prompt: left out; trained as they were sampled; or trained in the
context without it, which is off-policy."""

EPHEMERAL_FIELDS = ("ephemeral", "prefill")
"""Where `Call.extra` says what only the call saw."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an export may train."""

    model: str | None = None
    """Only calls of this model; None takes all."""
    max_length: int | None = None
    ephemeral: Ephemeral = "exclude"
    needs_logprobs: bool = False
    needs_reward: bool = False
    one_row: bool = False
    """A rollout is one row: of several the one that trains most, the later one if they train the same."""


def why_not(call: Call, rules: Rules, reward: float | None) -> tuple[str, str] | None:
    """The reason why a call is not trained and a detail, or None if it is; `reward` is its rollout's."""
    return _never(call) or _not_under(rules, call, reward)


def refused(call: Call) -> tuple[str, str] | None:
    """The reason why a call may be trained in no form, text or tokens, by what its `extra` says; None if it may."""
    for field, reason in (("delivered", "undelivered"), ("trainable", "untrainable")):
        said = call.extra.get(field)
        if said is not None and not said:
            return reason, f"its call says {field}: {said}"
    return None


def _never(call: Call) -> tuple[str, str] | None:
    if why := refused(call):
        return why
    if call.prompt_ids is None or call.sampled_ids is None:
        why = call.extra.get("tokens")
        return ("failed gate", str(why)) if why else ("no tokens", "")
    if not call.sampled_ids:
        return "nothing sampled", ""
    if not call.prompt_ids:
        return "no prompt", ""
    free = len(call.sampled_ids) // 4 - sum(end - start for start, end in forced_of(call))
    return None if free else ("forced", "")


def _not_under(rules: Rules, call: Call, reward: float | None) -> tuple[str, str] | None:
    length = (len(call.prompt_ids or b"") + len(call.sampled_ids or b"")) // 4
    if rules.model is not None and call.model != rules.model:
        return "other model", call.model
    if rules.needs_logprobs and call.logprobs is None:
        return "no logprobs", ""
    if rules.ephemeral == "exclude" and is_ephemeral(call):
        return "ephemeral", ""
    if rules.needs_reward and reward is None:
        return "no reward", ""
    if rules.max_length is not None and length > rules.max_length:
        return "over-long", f"{length} tokens"
    return None


def is_ephemeral(call: Call) -> bool:
    """Whether a call saw something that is no part of its conversation."""
    return any(call.extra.get(field) for field in EPHEMERAL_FIELDS)
