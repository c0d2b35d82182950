"""Token ids and logprobs: where each engine puts them, and whether they can be believed.

    vLLM        asked with return_token_ids, logprobs:
                prompt_token_ids · choices[].token_ids (streamed: in pieces) · logprobs.content[].logprob
                with return_tokens_as_token_ids: logprobs.content[].token is "token_id:7"
    SGLang      with return_token_ids (since July 2026; refused when streaming):
                choices[].prompt_token_ids · choices[].token_ids
                with return_prompt_token_ids, return_meta_info, logprobs (refused when streaming):
                choices[].prompt_token_ids · choices[].meta_info.output_token_logprobs = [logprob, id, …]
                with return_input_ids_in_sglext, return_output_ids_in_sglext (also when streaming):
                sglext.input_ids · sglext.output_ids[choice]
    llama.cpp   with logprobs: logprobs.content[].id and .logprob; prompt ids are not to be had
                with return_tokens, from a server run with --verbose: __verbose.tokens

All that is said must agree: ids from several places, one logprob for each id, finite and no sentinel, as many as the
usage counts. If anything does not, none of it is kept and the call says why: a row with wrong tokens is worse than a
row without. Ids that stand only among logprobs need the usage to confirm their number, since llama.cpp leaves out
tokens that end inside a character. Nothing here proves that an engine tells the truth.
`tests/models/test_tokens.py` proves the rest.
"""

from math import isfinite
from typing import Any

import msgspec

ASK: dict[str, dict[str, Any]] = {
    "vllm": {"return_token_ids": True, "logprobs": True},
    "sglang": {
        "return_token_ids": True,
        "return_prompt_token_ids": True,
        "return_meta_info": True,
        "logprobs": True,
    },
    "llama.cpp": {"logprobs": True, "top_logprobs": 1},  # without a number it sends twenty for each token
}
"""What to put into a request, for each engine that gives token ids."""

SENTINEL = -9999.0
"""What vLLM and others write for minus infinity: a token that could not have been sampled."""
LARGEST_ID = 2**31 - 1
_IN_PAYLOAD = ("prompt_token_ids", "sglext", "__verbose")
_IN_CHOICE = ("prompt_token_ids", "token_ids", "response_token_ids", "meta_info", "logprobs")
"""Where anything of tokens may stand; an endpoint that was not asked for them says nothing in any of these."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call's tokens."""

    prompt_ids: list[int] | None = None
    sampled_ids: list[int] | None = None
    logprobs: list[float] | None = None
    why: str | None = None
    """Why nothing is kept although something was said."""


def read_tokens(
    payload: dict[str, Any], choice: dict[str, Any], usage: dict[str, Any], *, alone: bool = True
) -> Tokens:
    """The tokens of one choice; `alone` if it is the only one, so that the usage counts it and no other."""
    if not _says(payload, _IN_PAYLOAD) and not _says(choice, _IN_CHOICE):
        return Tokens()
    try:
        prompt_ids = _agreed(_prompt_ids(payload, choice), "the prompt ids")
        sampled_ids = _agreed(_sampled_ids(payload, choice), "the sampled ids")
        logprobs = _agreed_logprobs(choice)
        if sampled_ids is None:
            return Tokens(prompt_ids=_counted(prompt_ids, usage.get("prompt_tokens"), "prompt"))
        _same_length(sampled_ids, logprobs)
        _confirmed(payload, choice, usage if alone else {})
        _counted(prompt_ids, usage.get("prompt_tokens"), "prompt")
        _counted(sampled_ids, usage.get("completion_tokens") if alone else None, "sampled")
    except _Doubt as doubt:
        return Tokens(why=str(doubt))
    return Tokens(prompt_ids=prompt_ids, sampled_ids=sampled_ids, logprobs=logprobs)


def _says(answer: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(answer.get(name) is not None for name in names)


class _Doubt(Exception):
    """Something that does not agree."""


def _prompt_ids(payload: dict[str, Any], choice: dict[str, Any]) -> list[Any]:
    extension = _dict(payload.get("sglext"))
    return [payload.get("prompt_token_ids"), choice.get("prompt_token_ids"), extension.get("input_ids")]


def _sampled_ids(payload: dict[str, Any], choice: dict[str, Any]) -> list[Any]:
    extension, verbose = _dict(payload.get("sglext")), _dict(payload.get("__verbose"))
    return [
        choice.get("token_ids"),
        choice.get("response_token_ids"),
        _at(extension.get("output_ids"), choice.get("index", 0)),
        _column(_meta(choice), 1),
        verbose.get("tokens") or None,  # empty unless asked for
        _ids_of_entries(_entries(choice)),
    ]


def _agreed(said: list[Any], what: str) -> list[int] | None:
    """The one list of ids that all places which have one give."""
    lists = [value for value in said if value is not None]
    for value in lists:
        if not isinstance(value, list) or not all(type(one) is int and 0 <= one <= LARGEST_ID for one in value):
            raise _Doubt(f"{what} hold something that is no token id")
        if value != lists[0]:
            raise _Doubt(f"{what} differ between the places that give them")
    return lists[0] if lists else None


def _agreed_logprobs(choice: dict[str, Any]) -> list[float] | None:
    entries = _entries(choice)
    beside = None if entries is None else [_dict(entry).get("logprob") for entry in entries]
    lists: list[list[Any]] = [value for value in (_column(_meta(choice), 0), beside) if value is not None]
    for value in lists:
        for one in value:
            if type(one) not in (float, int) or not isfinite(one) or one <= SENTINEL or one > 1e-3:
                shown = f"a {type(one).__name__}" if isinstance(one, str | list | dict) else f"{one!r:.40}"
                raise _Doubt(f"a logprob is {shown}, which no sampled token can have")
        if len(value) != len(lists[0]):
            raise _Doubt("the logprobs differ between the places that give them")
    return [float(one) for one in lists[0]] if lists else None


def _same_length(sampled_ids: list[int], logprobs: list[float] | None) -> None:
    if logprobs is not None and len(logprobs) != len(sampled_ids):
        raise _Doubt(f"{len(sampled_ids)} sampled ids came with {len(logprobs)} logprobs")


def _confirmed(payload: dict[str, Any], choice: dict[str, Any], usage: dict[str, Any]) -> None:
    only_entries = all(value is None for value in _sampled_ids(payload, choice)[:-1])
    if only_entries and type(usage.get("completion_tokens")) is not int:
        raise _Doubt("the sampled ids stand only among the logprobs, and no usage confirms that they are all there")


def _counted(ids: list[int] | None, count: Any, what: str) -> list[int] | None:
    if ids is not None and type(count) is int and count != len(ids):
        raise _Doubt(f"the usage counts {count} {what} tokens, but {len(ids)} ids came")
    return ids


def _entries(choice: dict[str, Any]) -> list[Any] | None:
    content = _dict(choice.get("logprobs")).get("content")
    return content if isinstance(content, list) and content else None


def _ids_of_entries(entries: list[Any] | None) -> list[Any] | None:
    """Ids that stand beside the logprobs; None unless each entry has one."""
    ids = [_id_of(_dict(entry)) for entry in entries or ()]
    return ids if ids and None not in ids else None


def _id_of(entry: dict[str, Any]) -> Any:
    if "id" in entry:
        return entry["id"]
    token = entry.get("token")
    if isinstance(token, str) and token.startswith("token_id:") and token[9:].isdecimal():
        return int(token[9:])
    return None


def _meta(choice: dict[str, Any]) -> list[Any] | None:
    found = _dict(choice.get("meta_info")).get("output_token_logprobs")
    return found if isinstance(found, list) and found else None


def _column(rows: list[Any] | None, column: int) -> list[Any] | None:
    return None if rows is None else [_at(row, column) for row in rows]


def _at(value: Any, index: Any) -> Any:
    inside = isinstance(value, list | tuple) and type(index) is int and 0 <= index < len(value)
    return value[index] if inside else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
