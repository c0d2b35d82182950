"""A filter of system calls: the kernel's keyrings are shut.

A keyring goes along with a process, whatever namespaces it enters: a key that we were given (a ticket, a password of a
file system) could be read behind a fence. So the three calls that deal with keys do not exist there, and neither do
those of the machine's other dialects, through which they could be reached. The filter is the kernel's own form of
program, eight steps for a machine that looks at the number of each call. `tests/tools/test_sandbox.py` proves it.
"""

import struct

_LOAD, _EQUAL, _AT_LEAST, _MORE, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x06
_NUMBER, _DIALECT = 0, 4
"""Where a call's number and its dialect stand."""
_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38
_SHORT_POINTERS = 0x40000000
"""Numbers from here on are a second dialect of the same machine."""
_MACHINES = {"x86_64": (0xC000003E, 248), "aarch64": (0xC00000B7, 217)}
"""The dialect of a machine, and the first of its three calls for keys."""


def keyless(machine: str) -> bytes:
    """The filter for a machine as `uname -m` names it; empty for one that is not known."""
    if machine not in _MACHINES:
        return b""
    dialect, first = _MACHINES[machine]
    steps = [  # what to do, how many steps to skip if so and if not, with which value
        (_LOAD, 0, 0, _DIALECT),
        (_EQUAL, 0, 5, dialect),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 3, 0, _SHORT_POINTERS),
        (_AT_LEAST, 0, 1, first),
        (_MORE, 0, 1, first + 2),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
