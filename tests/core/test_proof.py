"""The proof: what an export says is so, and not one bit of it can change unseen."""

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import stemma.core.proof
from stemma.core.call import unpack_ids, unpack_logprobs
from stemma.core.exclusions import Rules
from stemma.core.proof import WrittenRow, prove
from stemma.core.receipts import Manifest, MerkleRoot, Receipt, from_line, hashed, merkle_root, to_line
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, plan_rows
from token_conversations import Chat, user


def exported(*chats, **rules):
    """Manifest, lines and rows, as an export writes them."""
    plans = [
        plan_rows(f"r{n}", captured(chat.graph), Rules(**rules), Standing(group="g")) for n, chat in enumerate(chats)
    ]
    rows = [row for plan in plans for row in plan.rows]
    lines = [to_line(row.line()) for row in rows]
    lines += [to_line(one) for plan in plans for one in (*plan.receipts, *plan.exclusions)]
    return manifest(plans, lines), lines, [WrittenRow(row.ids, row.labels(), row.logprobs()) for row in rows]


def manifest(plans, lines):
    rows = [row for plan in plans for row in plan.rows]
    trained, excluded = sum(len(p.receipts) for p in plans), [one.reason for p in plans for one in p.exclusions]
    counts = {
        "calls": trained + len(excluded),
        "trained": trained,
        "excluded": len(excluded),
        "rows": len(rows),
        "filler_rows": 0,
        "row_tokens": sum(row.length for row in rows),
        "trained_tokens": sum(row.trained for row in rows),
        "forced_tokens": sum(end - start for row in rows for start, end in row.forced),
    }
    about = {"preset": "tokens", "file": "f", "stemma": "0", "data": "", "breaks": {}, "policies": {}}
    by_reason = {reason: excluded.count(reason) for reason in excluded}
    return Manifest(root=merkle_root(lines), counts=counts, excluded=by_reason, **about)


def conversation():
    chat = Chat(user("hi")).says("hello").hears("and").says("yes indeed")
    chat.graph[0]["content"] = "ho"
    return chat.hears("so").says("well", logprobs=False).hears("?").says("text only", tokens=False)


@pytest.fixture(scope="module")
def sound():
    return exported(conversation(), Chat(user("other")).says("reply"))


def test_a_sound_export_is_proven_and_counted(sound):
    checked = prove(*sound)
    assert checked.findings == []
    assert (checked.calls, checked.trained, checked.rows, checked.excluded) == (5, 4, 3, {"no tokens": 1})
    assert (checked.trained_tokens, checked.off_policy) == (2 + 3 + 2 + 2, 0)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(st.data())
def test_every_changed_bit_of_a_row_is_found(sound, data):
    written, lines, rows = sound
    number = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(["ids", "labels", "logprobs"]))
    columns = {name: getattr(rows[number], name) for name in ("ids", "labels", "logprobs")}
    bit = data.draw(st.integers(0, len(columns[column]) * 8 - 1))
    columns[column] = flipped(columns[column], bit)
    changed = [*rows[:number], WrittenRow(**columns), *rows[number + 1 :]]
    assert prove(written, lines, changed).findings


@given(st.data())
def test_every_changed_bit_of_the_receipts_is_found(sound, data):
    written, lines, rows = sound
    number = data.draw(st.integers(0, len(lines) - 1))
    bit = data.draw(st.integers(0, len(lines[number]) * 8 - 1))
    changed = [*lines[:number], flipped(lines[number], bit), *lines[number + 1 :]]
    assert prove(written, changed, rows).findings


def test_a_forger_who_fits_the_receipts_and_writes_a_new_root_is_still_found(sound):
    written, lines, rows = sound
    changed = WrittenRow(flipped(rows[-1].ids, 0), rows[-1].labels, rows[-1].logprobs)
    records = [from_line(line) for line in lines]
    at, receipt = next((n, r) for n, r in enumerate(records) if isinstance(r, Receipt) and r.rollout == "r1")
    start = records[2].spans[0].start * 4
    fitted = replace(receipt, prompt=hashed(b"=" + changed.ids[:start]))
    forged = [*lines[:at], to_line(fitted), *lines[at + 1 :]]
    [finding] = prove(replace(written, root=merkle_root(forged)), forged, [*rows[:-1], changed]).findings
    assert finding.detail == "its receipt does not make its id"


@pytest.fixture(scope="module")
def forced():
    """Three calls of one row, with forced tokens at the start, within and at the end of what they sampled."""
    chat = Chat(user("hi")).says("so be it", extra={"constraint": "grammar", "forced": [[0, 1], [3, 4]]})
    chat.hears("and").says("one two three four", extra={"constraint": "grammar", "forced": [[1, 2], [3, 4]]})
    return exported(chat.hears("or").says("no", extra={"forced": [[0, 1]]}, logprobs=False))


def test_forced_tokens_are_listed_and_not_trained(forced):
    _, _, [row] = forced
    checked = prove(*forced)
    assert checked.findings == []
    assert (checked.forced_tokens, checked.trained_tokens, checked.not_free) == (5, 4 + 5 + 2 - 5, 2)
    labels = unpack_ids(row.labels)
    assert sum(label != -100 for label in labels) == checked.trained_tokens
    assert all(one == 0 for one, label in zip(unpack_logprobs(row.logprobs), labels, strict=True) if label == -100)


@given(st.data())
def test_every_changed_bit_of_a_row_with_forced_tokens_is_found(forced, data):
    written, lines, [row] = forced
    column = data.draw(st.sampled_from(["ids", "labels", "logprobs"]))
    columns = {name: getattr(row, name) for name in ("ids", "labels", "logprobs")}
    bit = data.draw(st.integers(0, len(columns[column]) * 8 - 1))
    columns[column] = flipped(columns[column], bit)
    assert prove(written, lines, [WrittenRow(**columns)]).findings


def test_a_row_left_out_or_written_twice_is_found(sound):
    written, lines, rows = sound
    assert prove(written, lines, rows[:-1]).findings
    assert prove(written, lines, [*rows, rows[-1]]).findings
    assert prove(written, lines, [rows[1], rows[0], *rows[2:]]).findings


def test_a_call_trained_twice_or_never_is_found(sound):
    written, lines, rows = sound
    first_row = next(line for line in lines if b'"row"' in line)
    twice = [*lines, first_row]
    found = prove(written, twice, [*rows, rows[0]]).findings
    assert any("trained 2 times" in one.detail for one in found)
    never = [line for line in lines if line != first_row]
    assert any("trained 0 times" in one.detail for one in prove(written, never, rows[1:]).findings)


def test_receipts_that_cannot_be_read_are_named_by_their_line(sound):
    written, lines, rows = sound
    found = prove(written, [*lines, b"{}"], rows).findings
    assert any(one.kind == "damaged" and one.subject == f"receipts line {len(lines) + 1}" for one in found)


def test_the_checker_shares_no_code_with_what_makes_the_rows():
    source = Path(stemma.core.proof.__file__).read_text(encoding="utf-8")
    for maker in ("cover", "token_trie", "token_rows", "graph", "breaks"):
        assert f"stemma.core.{maker}" not in source


@given(st.lists(st.binary(max_size=3), max_size=20))
def test_the_root_is_that_of_the_docstring(leaves):
    level = [sha256(b"\0" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        pairs = [sha256(b"\1" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    expected = level[0] if level else sha256(b"").digest()
    root = MerkleRoot()
    for leaf in leaves:
        root.add(leaf)
    assert root.hex() == expected.hex() == merkle_root(leaves)
