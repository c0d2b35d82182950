"""Hostile text, and messages made of it: what a model, a tool or a provider may well send one day.

`texts()` makes any `str` that Python can hold. Mind that `st.text()` makes no surrogates; `st.characters()` does.
"""

from typing import Any

from hypothesis import strategies as st

from stemma.core.canonical import MAX_INT, MIN_INT

NASTY = [
    "\ud83d\ude00",  # a pair that is split: two code points, not 😀
    "\ude00\ud83d",  # the same, the wrong way round
    "\ud800",  # lone, high
    "\udfff",  # lone, low
    "😀",
    "\ud83d",
    "\x00",
    "a\x00b",
    "\x01\x08\x0b\x0c\x1b[31m\x1f",
    "\x7f\x80\x85\x9b\x9f",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\u202e\u2066\u2069\u200f",  # bidi
    "\u200b\u200c\u200d\u2060\u00ad",  # nothing to see
    "\ufffe\uffff\U0001fffe\U0010ffff",  # no characters
    "\ufffd",
    "e" + "\u0301" * 40,
    "é",
    "e\u0301",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "\r\n",
    "\n\r",
    "\t",
    '"',
    "\\",
    "\\ud83d\\ude00",  # an escape, spelt out
    "\\u0000",
    "</script>",
    "<tool_call>{}</tool_call>",
    "İıſK",  # letters whose case is a trap
    "\U000e0041\U000e007f",  # tags
]

SAME_IN_PYTHON = [True, 1, 1.0, False, 0, 0.0, -0.0]
"""Equal to one another in threes, and never the same JSON value."""

ODD_NUMBERS = [2**53 + 1, 2**63, MAX_INT, MIN_INT, 5e-324, 1.7976931348623157e308, 1e16, 1e22, 0.1, -1.5, 1e-7]


def texts(max_pieces: int = 4) -> st.SearchStrategy[str]:
    """Any `str`, the nasty ones often."""
    pieces = st.one_of(
        st.sampled_from(NASTY), st.text(st.characters(), max_size=8), st.sampled_from(["a", " ", "role"])
    )
    return st.lists(pieces, max_size=max_pieces).map("".join)


def scalars() -> st.SearchStrategy[Any]:
    """JSON values that hold no others."""
    return st.one_of(
        st.none(),
        st.sampled_from(SAME_IN_PYTHON),
        st.sampled_from(ODD_NUMBERS),
        st.integers(MIN_INT, MAX_INT),
        st.floats(allow_nan=False, allow_infinity=False),
        texts(),
    )


def json_values(max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """Any JSON value that may stand in a message."""
    return st.recursive(
        scalars(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(2), inner, max_size=4),
        max_leaves=max_leaves,
    )


def raw_arguments() -> st.SearchStrategy[str]:
    """The arguments of a tool call as the model wrote them: a string, whether it is JSON or not."""
    return st.one_of(
        st.sampled_from(
            ["{}", "", '{"a": 1, "a": 2}', '{"a":1,"a":true,"a":1.0}', '{"a": NaN}', '{"path": "x', "{'a': 1}", " {} "]
        ),
        texts(),
    )


def tool_calls() -> st.SearchStrategy[list[dict[str, Any]]]:
    """What an assistant asks for."""
    function = st.fixed_dictionaries({"name": texts(2), "arguments": raw_arguments()})
    one = st.fixed_dictionaries({"id": texts(2), "type": st.just("function"), "function": function})
    return st.lists(one, max_size=3)


def content_parts() -> st.SearchStrategy[list[dict[str, Any]]]:
    """A content of several parts."""
    text = st.fixed_dictionaries({"type": st.just("text"), "text": texts()})
    image = st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": texts(2)})})
    return st.lists(text | image, max_size=3)


def contents() -> st.SearchStrategy[Any]:
    """The content of a message."""
    return st.one_of(texts(), st.none(), content_parts())


def extras() -> st.SearchStrategy[dict[str, Any]]:
    """Fields that a provider adds."""
    return st.dictionaries(texts(2).map("x_".__add__), json_values(4), max_size=2)


def messages() -> st.SearchStrategy[dict[str, Any]]:
    """API dicts of every role."""
    said = st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": contents()})
    sampled = st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": contents()},
        optional={"reasoning": texts() | st.none(), "tool_calls": tool_calls(), "name": texts(2)},
    )
    result = st.fixed_dictionaries(
        {"role": st.just("tool"), "tool_call_id": texts(2), "content": contents()}, optional={"name": texts(2)}
    )
    return st.builds(lambda message, extra: message | extra, said | sampled | result, extras())
