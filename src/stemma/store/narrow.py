"""Token ids on disk, in no more bytes than the largest of them needs.

    int32   07 00 00 00 · 39 30 00 00        two ids below 65,536
    disk    02 · 07 39 · 00 30               how many bytes an id has, then the first byte of each, then the second

Most vocabularies need three bytes, small ones two: a quarter or half of the file. There is one such form for each list
of ids, so that a changed byte is always a changed list. `tests/store/test_narrow.py` proves it.
"""

from stemma.errors import StoreDamaged

_WIDTH = 4


def narrow(ids: bytes | None) -> bytes | None:
    """Packed int32 as they lie on disk."""
    if not ids:
        return ids
    planes = [ids[place::_WIDTH] for place in range(_WIDTH)]
    while len(planes) > 1 and not any(planes[-1]):
        planes.pop()
    return bytes([len(planes)]) + b"".join(planes)


def widen(kept: bytes | None) -> bytes | None:
    """Packed int32 from what lies on disk."""
    if not kept:
        return kept
    width, size = kept[0], len(kept) - 1
    if not 1 <= width <= _WIDTH or size % width or not size:
        raise StoreDamaged("token ids are cut short or no ids at all; `stemma verify` names the call")
    count = size // width
    ids = bytearray(count * _WIDTH)
    for place in range(width):
        ids[place::_WIDTH] = kept[1 + place * count : 1 + (place + 1) * count]
    if width > 1 and not any(kept[1 + (width - 1) * count :]):
        raise StoreDamaged("token ids are wider than they need be; `stemma verify` names the call")
    return bytes(ids)
