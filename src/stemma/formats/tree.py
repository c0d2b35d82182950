"""Preset `tree`: the rows of a rollout packed into one sequence in which what they share stands once.

    rows  1 2 [3] 4 [5]      tree   1 2 3 4 5 6 7        in depth-first order
          1 2  3  6 [7]      position_ids 0 1 2 3 4 3 4

    input_ids, position_ids   position_ids count from the root, not from the left
    pred_idx                  the token that each one is predicted from; -1 for the first: loss takes its logits there
    subtree_end               token t may look at token s if s <= t < subtree_end[s]: one rule for the attention mask
    trained_by                the number of the row that trains it, or -1: the loss mask, and which weight applies
    logprobs                  as received; 0 where untrained
    rows                      for each row its last token, its rollout_id, weight, reward, advantage …

Under the rule each token sees exactly what it sees in its row. Tokens of two rows become one only while both agree and
at most one of them trains them: two samples that say the same are two events. Layers that are no attention (state
space, convolution) need kernels of their own; for them the other presets are the right ones.
`tests/formats/test_token_presets.py` unfolds random trees.
"""

from array import array
from typing import Any

from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.proof import IGNORED, WrittenRow
from stemma.core.token_rows import TokenRow
from stemma.core.token_trie import WIDTH, shared
from stemma.formats.token_preset import Place, Records, TokenPreset, about, facts_in, written_row


class Branch:
    """A run of tokens, and the branches that go on from its end."""

    __slots__ = ("above", "branches", "depth", "ends", "ids", "owner", "start", "stop")

    def __init__(self, ids: bytes, owner: "array[int]") -> None:
        self.ids = ids
        """Packed int32."""
        self.owner = owner
        """For each token the row that trains it, or -1."""
        self.branches: list[Branch] = []
        self.ends: list[int] = []
        """The rows that end with it."""
        self.start = self.stop = 0
        """Where it begins in the sequence, and where all that grows from it ends."""
        self.depth, self.above = 0, -1
        """How many tokens stand before it on its path, and which is the last of them."""

    def split(self, length: int) -> None:
        """Make the tokens from `length` on a branch of their own."""
        lower = Branch(self.ids[length * WIDTH :], self.owner[length:])
        lower.branches, self.branches = self.branches, [lower]
        lower.ends, self.ends = self.ends, []
        self.ids, self.owner = self.ids[: length * WIDTH], self.owner[:length]


def pack(rows: list[TokenRow]) -> tuple[dict[str, list[Any]], list[int]]:
    """The tree of some rows as columns, and the last token of each row in it."""
    tree: dict[str, list[Any]] = {name: [] for name in _TREE}
    lasts = [0] * len(rows)
    logprobs = [unpack_logprobs(row.logprobs()) for row in rows]
    for branch in _placed(_grown(rows)):
        size = len(branch.owner)
        depths = range(branch.depth, branch.depth + size)
        tree["input_ids"] += unpack_ids(branch.ids)
        tree["position_ids"] += depths
        tree["pred_idx"] += [branch.above, *range(branch.start, branch.start + size - 1)]
        tree["subtree_end"] += [branch.stop] * size
        tree["trained_by"] += branch.owner
        tree["logprobs"] += [
            logprobs[row][at] if row >= 0 else 0.0 for row, at in zip(branch.owner, depths, strict=True)
        ]
        for row in branch.ends:
            lasts[row] = branch.start + size - 1
    return tree, lasts


_TREE = ("input_ids", "position_ids", "pred_idx", "subtree_end", "trained_by", "logprobs")


def _grown(rows: list[TokenRow]) -> Branch:
    """A root without tokens, and on it all rows."""
    root = Branch(b"", array("i"))
    for number, row in enumerate(rows):
        _graft(root, row.ids, array("i", [number if on else -1 for on in row.mask()])).ends.append(number)
    return root


def _graft(branch: Branch, ids: bytes, owner: "array[int]") -> Branch:
    """Put a row on the tree, along the branches it can share; the branch it ends with."""
    while ids:
        found = next(((one, n) for one in branch.branches if (n := _common(one, ids, owner))), None)
        if found is None:
            branch.branches.append(Branch(ids, owner))
            return branch.branches[-1]
        branch, length = found
        if length < len(branch.owner):
            branch.split(length)
        branch.owner = array("i", map(max, branch.owner, owner[:length]))
        ids, owner = ids[length * WIDTH :], owner[length:]
    return branch


def _common(branch: Branch, ids: bytes, owner: "array[int]") -> int:
    """How many first tokens of a branch a row can share: they agree, and at most one of the two trains each."""
    length = shared(branch.ids, ids) // WIDTH
    claims = zip(branch.owner[:length], owner[:length], strict=True)
    return next((n for n, (mine, theirs) in enumerate(claims) if mine >= 0 and theirs >= 0), length)


def _placed(root: Branch) -> list[Branch]:
    """All branches but the root, in depth-first order, each with its place."""
    found: list[Branch] = []
    at, waiting = 0, root.branches[::-1]
    while waiting:
        branch = waiting.pop()
        branch.start, at = at, at + len(branch.owner)
        for child in branch.branches:
            child.depth, child.above = branch.depth + len(branch.owner), at - 1
        found.append(branch)
        waiting += branch.branches[::-1]
    for branch in reversed(found):
        branch.stop = branch.branches[-1].stop if branch.branches else branch.start + len(branch.owner)
    return found


def _read(tree: dict[str, Any]) -> list[WrittenRow]:
    """The rows that a tree was packed from."""
    paths = [_path(tree["pred_idx"], row["last"]) for row in tree["rows"]]
    mine = [[tree["trained_by"][at] == number for at in path] for number, path in enumerate(paths)]
    faults = _faults(tree)
    if sum(map(sum, mine)) != sum(owner >= 0 for owner in tree["trained_by"]):
        faults.append("its tree trains a token by a row that does not hold it")
    return [_unfolded(tree, *one, faults) for one in zip(paths, mine, tree["rows"], strict=True)]


def _path(before: list[int], last: int) -> list[int]:
    """The tokens of a row, from the root to its last."""
    path: list[int] = []
    while last >= 0 and len(path) < len(before):
        path.append(last)
        last = before[last]
    return path[::-1]


def _unfolded(
    tree: dict[str, Any], path: list[int], mine: list[bool], row: dict[str, Any], faults: list[str]
) -> WrittenRow:
    ids = [tree["input_ids"][at] for at in path]
    labels = [token if on else IGNORED for token, on in zip(ids, mine, strict=True)]
    logprobs = [tree["logprobs"][at] if on else 0.0 for at, on in zip(path, mine, strict=True)]
    return written_row(ids, labels, logprobs, facts_in(row), faults)


def _faults(tree: dict[str, Any]) -> list[str]:
    """Where the columns of a tree contradict `pred_idx`, from which all of them can be derived."""
    before, size = tree["pred_idx"], len(tree["input_ids"])
    if any(len(tree[name]) != size for name in _TREE) or any(not -1 <= one < at for at, one in enumerate(before)):
        return ["its tree has columns of different lengths, or a token that is predicted from a later one"]
    positions, ends = [0] * size, list(range(1, size + 1))
    for at, one in enumerate(before):
        positions[at] = positions[one] + 1 if one >= 0 else 0
    for at in range(size - 1, -1, -1):
        if before[at] >= 0:
            ends[before[at]] = max(ends[before[at]], ends[at])
    owners = range(-1, len(tree["rows"]))
    untrained = (one for one, owner in zip(tree["logprobs"], tree["trained_by"], strict=True) if owner < 0)
    wrong = {
        "position_ids": tree["position_ids"] != positions,
        "subtree_end": tree["subtree_end"] != ends,
        "trained_by": any(owner not in owners for owner in tree["trained_by"]),
        "logprobs": any(one != 0 for one in untrained),
    }
    return [f"the {name} of its tree do not fit its other columns" for name, is_wrong in wrong.items() if is_wrong]


def _layout(rows: list[TokenRow], place: Place) -> Records:
    by_rollout: dict[tuple[str, str], list[TokenRow]] = {}
    for row in rows:
        by_rollout.setdefault((row.rollout, row.model), []).append(row)
    return [_record(some) for some in by_rollout.values()]


def _record(rows: list[TokenRow]) -> dict[str, Any]:
    tree, lasts = pack(rows)
    return {**tree, "rows": [{"last": last, **about(row)} for row, last in zip(rows, lasts, strict=True)]}


TREE = TokenPreset(name="tree", layout=_layout, read=_read, rows_in=lambda tree: len(tree["rows"]))
