"""Token ids on disk: as short as they can be, and back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.core.call import pack_ids
from stemma.errors import StoreDamaged
from stemma.store.narrow import narrow, widen


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(-(2**31), 2**31 - 1)), max_size=20).map(pack_ids))
def test_ids_come_back_as_they_were(ids):
    assert widen(narrow(ids)) == ids


@given(st.binary(max_size=12))
def test_whatever_can_be_read_is_the_one_way_to_write_it(kept):
    try:
        ids = widen(kept)
    except StoreDamaged:
        return
    assert narrow(ids) == kept


@pytest.mark.parametrize(("largest", "width"), [(255, 1), (50_000, 2), (151_000, 3), (2**30, 4)])
def test_ids_take_as_many_bytes_as_the_largest_needs(largest, width):
    assert len(narrow(pack_ids([1, largest]))) == 1 + 2 * width


def test_none_and_nothing_stay_what_they_are():
    assert narrow(None) is widen(None) is None
    assert narrow(b"") == widen(b"") == b""
