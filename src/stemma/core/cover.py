"""The cover: the fewest token rows, then the fewest tokens, that train every sampled token exactly once.

Call i had the prompt P and sampled R; F is both together. A row can train i and j if F of one is a beginning of the
other's P: then each token stands in exactly the context it was sampled in. So rows are chains of calls, and the fewest
rows are the fewest chains. The calls that may follow i are those whose prompt begins with F of i; of two such sets one
holds the other, or they share nothing. Hence the longest F first, each taking any chain that may follow it, is best;
and because a row costs the F it ends with, and the longest are let go on first, the tokens are the fewest too.

    call  prompt      sampled
    0     1 2         3          rows: 0-1-3   1 2 [3] 4 [5] 6 [7]
    1     1 2 3 4     5                2       1 2 3 4 [8]         its 3 is context: call 0 is trained above
    2     1 2 3 4     8
    3     1 2 3 4 5 6 7

A known predecessor (identity) says where to look first, and that its first follower is preferred; tokens alone decide
what fits.
`tests/core/test_cover.py` compares rows and tokens with brute force.
"""

from collections.abc import Sequence

import msgspec

from stemma.core.token_trie import WIDTH, Node, TokenTrie


class TokenCall(msgspec.Struct, frozen=True, gc=False):
    """A call as the cover sees it; it sampled something."""

    prompt: bytes
    """Packed int32."""
    sampled: bytes
    before: int | None = None
    """Which earlier call's reply stands last in its context, if that is known."""


class Cover(msgspec.Struct, frozen=True):
    """Which calls are trained together."""

    rows: list[list[int]]
    """The calls of each row, the first to be sampled first."""
    tree_tokens: int
    """How many tokens there are if what rows share is counted once."""


def cover(calls: Sequence[TokenCall]) -> Cover:
    """The rows that train all of `calls`, ordered by their first."""
    trie = TokenTrie()
    following = _matched(calls, _planted(trie, calls))
    later = set(following.values())
    rows = [_chain(first, following) for first in range(len(calls)) if first not in later]
    return Cover(rows, trie.size // WIDTH)


def extends(call: TokenCall, earlier: TokenCall) -> bool:
    """Whether a prompt begins with all that an earlier call saw and sampled."""
    return call.prompt.startswith(earlier.sampled, len(earlier.prompt)) and call.prompt.startswith(earlier.prompt)


def _planted(trie: TokenTrie, calls: Sequence[TokenCall]) -> list[Node]:
    """The node at which each call's prompt and output together end."""
    ended: list[Node] = []
    for number, call in enumerate(calls):
        start, before = trie.root, call.before
        if before is not None and before < number and extends(call, calls[before]):
            start = ended[before]
        end = trie.insert(start, call.prompt[start.depth :] + call.sampled)
        if end.calls is None:
            end.calls = []
        end.calls.append(number)
        ended.append(end)
    return ended


def _matched(calls: Sequence[TokenCall], ended: list[Node]) -> dict[int, int]:
    """The call that follows another in its row, for each that is followed."""
    following: dict[int, int] = {}
    favoured: dict[int, int] = {}
    waiting: dict[Node, list[int]] = {}
    for node in sorted(dict.fromkeys(ended), key=_depth, reverse=True):
        heads, here = waiting.pop(node, None), node.calls or ()
        for number in here:
            if number in favoured:
                following[number] = favoured.pop(number)
            elif heads:
                following[number] = heads.pop()
        if heads and (above := _nearest(node.parent)):
            _pour(heads, waiting, above)
        for number in here:
            if place := _place(node, len(calls[number].prompt)):
                before = calls[number].before
                if before is not None and ended[before] is place:
                    rival = favoured.setdefault(before, number)
                    if rival == number:
                        continue
                    favoured[before], number = min(rival, number), max(rival, number)
                waiting.setdefault(place, []).append(number)
    return following


def _depth(node: Node) -> int:
    return node.depth


def _place(node: Node, length: int) -> Node | None:
    """The longest beginning of a prompt of `length` bytes, above `node`, at which a call ends."""
    above = _nearest(node.parent)
    while above is not None and above.depth > length:
        above = _nearest(above.parent)
    return above


def _nearest(node: Node | None) -> Node | None:
    """The nearest node, this one or above it, at which a call ends."""
    passed = []
    while node is not None and node.calls is None:
        passed.append(node)
        node = node.near or node.parent
    for other in passed:
        other.near = node
    return node


def _pour(heads: list[int], waiting: dict[Node, list[int]], node: Node) -> None:
    """Let chains wait at `node`, always moving the smaller heap."""
    there = waiting.setdefault(node, heads)
    if there is not heads:
        large, small = (there, heads) if len(there) >= len(heads) else (heads, there)
        large += small
        waiting[node] = large


def _chain(first: int, following: dict[int, int]) -> list[int]:
    found = [first]
    while (number := following.get(found[-1])) is not None:
        found.append(number)
    return found
