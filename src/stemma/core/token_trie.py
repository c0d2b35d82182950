"""Token sequences that share their beginnings: each run of ids is kept once, and every place of interest is a node.

    [1 2 3 4] and [1 2 5]        1 2 ┬ 3 4
                                     └ 5

Ids are packed (`int32`, four bytes each), so that a comparison is one of bytes. Nothing recurses.
`tests/core/test_cover.py` proves that the trie holds what was put into it, each id once.
"""

WIDTH = 4
"""Bytes of one id."""


class Node:
    """The end of a run of ids; the path from the root to it is a sequence."""

    __slots__ = ("calls", "children", "depth", "near", "parent", "run")

    def __init__(self, parent: "Node | None", run: bytes, depth: int) -> None:
        self.parent, self.run = parent, run
        self.depth = depth
        """Bytes from the root to its end."""
        self.children: dict[bytes, Node] | None = None
        """By their first id; made when there is one, because most nodes have at most one, and many have none."""
        self.calls: list[int] | None = None
        """The calls whose prompt and output together end here, if any."""
        self.near: Node | None = None
        """Where the search for the nearest node with calls goes on; shortened as it is asked for."""


class TokenTrie:
    """A tree of runs."""

    def __init__(self) -> None:
        self.root = Node(None, b"", 0)
        self.size = 0
        """Bytes of all runs together."""

    def insert(self, node: Node, ids: bytes) -> Node:
        """The node at the end of `ids` that follow on `node`."""
        above, at, end = node.depth, 0, len(ids)
        while at < end:
            child = node.children.get(ids[at : at + WIDTH]) if node.children else None
            if child is None:
                return self._grow(node, ids[at:] if at else ids)
            node = child if ids.startswith(child.run, at) else _split(child, shared(child.run, ids[at:]))
            at = node.depth - above
        return node

    def _grow(self, node: Node, run: bytes) -> Node:
        self.size += len(run)
        made = Node(node, run, node.depth + len(run))
        if node.children is None:
            node.children = {}
        node.children[run[:WIDTH]] = made
        return made


def _split(node: Node, length: int) -> Node:
    """A new node `length` bytes into the run of `node`, which keeps the rest."""
    parent = node.parent
    assert parent is not None
    assert parent.children is not None
    upper = Node(parent, node.run[:length], parent.depth + length)
    parent.children[upper.run[:WIDTH]] = upper
    node.parent, node.run = upper, node.run[length:]
    upper.children = {node.run[:WIDTH]: node}
    return upper


def shared(one: bytes, other: bytes) -> int:
    """How many bytes, in whole ids, two sequences have in common at their beginning."""
    low, high = 0, min(len(one), len(other)) // WIDTH
    if one[: high * WIDTH] == other[: high * WIDTH]:
        return high * WIDTH
    while low < high:  # the first `low` ids are equal; more than `high` are not
        middle = (low + high + 1) // 2
        if one[low * WIDTH : middle * WIDTH] == other[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low * WIDTH
