"""How the tokens of a call were chosen, as far as the call says.

`Call.params` has what was asked for, `extra["sampler"]` what the engine says it used; the latter counts where both are
known. A sampler is *free* if it draws from the model's own distribution, made sharper or cut off at its tail at most
(temperature, top_p, top_k, min_p). It is not free if a constraint left fewer choices (a grammar, a schema, a required
tool: `constrained`), or if penalties or biases moved the probabilities of single tokens (`adjusted`).

    extra["constraint"]   which constraint the caller applied, where no parameter says so
    extra["forced"]       [[start, end], …]: sampled tokens for which the constraint left one choice

What is not recorded is not known: `temperature` and `top_p` are None then, and the call counts as free.
`tests/core/test_sampler.py` proves it.
"""

from typing import Any

import msgspec

from stemma.core.call import Call

_CONSTRAINTS = frozenset(
    {
        *("grammar", "json_schema"),  # llama.cpp
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),  # vLLM
        *("regex", "ebnf", "structural_tag"),  # SGLang
        *("allowed_token_ids", "bad_words", "constraint"),
    }
)
_NEUTRAL = {
    "repeat_penalty": 1,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "dry_multiplier": 0,
    "xtc_probability": 0,
    "dynatemp_range": 0,
    "mirostat": 0,
    "min_tokens": 0,
}
"""Parameters that move the probabilities of single tokens, and the value at which they do not."""


class Sampler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What chose the tokens of a call."""

    temperature: float | None = None
    top_p: float | None = None
    constrained: bool = False
    """A grammar, a schema or a required tool excluded tokens that the model might have chosen."""
    adjusted: tuple[str, ...] = ()
    """The penalties and biases that were at work."""
    logprobs: str | None = None
    """`model`: the logprobs are those of the model itself, before temperature, penalties and constraints."""

    @property
    def free(self) -> bool:
        """Whether each token was drawn from the model's own distribution."""
        return not self.constrained and not self.adjusted


_UNKNOWN = Sampler()


def sampler_of(call: Call) -> Sampler:
    """The sampler of a call."""
    if not call.params and not call.tools and call.extra.keys().isdisjoint(("sampler", "constraint")):
        return _UNKNOWN
    said = call.extra.get("sampler")
    known = {**call.params, **(said if isinstance(said, dict) else {})}
    logprobs = known.get("logprobs")
    return Sampler(
        temperature=_number(known.get("temperature")),
        top_p=_number(known.get("top_p")),
        constrained=bool(call.extra.get("constraint")) or _constrained(known) or _strict(call.tools),
        adjusted=tuple(sorted(filter(None, (_adjusts(name, value) for name, value in known.items())))),
        logprobs=logprobs if isinstance(logprobs, str) else None,
    )


def forced_of(call: Call) -> list[tuple[int, int]]:
    """Runs of sampled tokens for which a constraint left one choice, from left to right."""
    said, size = call.extra.get("forced"), len(call.sampled_ids or b"") // 4
    runs = [(one[0], one[1]) for one in said if _is_run(one)] if isinstance(said, list) else []
    at = 0
    for start, end in runs:
        if not at <= start < end <= size:
            return []
        at = end
    return runs


def _is_run(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(type(place) is int for place in one)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _constrained(known: dict[str, Any]) -> bool:
    form, choice = known.get("response_format"), known.get("tool_choice")
    formed = isinstance(form, dict) and form.get("type") not in (None, "text")
    return formed or choice == "required" or isinstance(choice, dict) or any(known.get(name) for name in _CONSTRAINTS)


def _strict(tools: list[dict[str, Any]] | None) -> bool:
    functions = (tool.get("function") for tool in tools or ())
    return any(isinstance(function, dict) and function.get("strict") is True for function in functions)


def _adjusts(name: str, value: Any) -> str | None:
    if name == "logit_bias":
        return name if value else None
    neutral = _NEUTRAL.get(name)
    return None if neutral is None or value is None or value == neutral else name
