"""The seccomp filter of sandboxed commands: a BPF program that the kernel runs before every system call.

What it closes, and why a namespace does not:

    add_key, request_key, keyctl   keyrings are inherited through every namespace; ours may hold tickets and passwords
    socket, socketpair             AF_VSOCK reaches the hypervisor, AF_BLUETOOTH, AF_ALG and others the kernel of the
                                   machine, whatever the network namespace; only Unix, IPv4, IPv6 and netlink are left
    memfd_create, memfd_secret     its memory belongs to no process, so that RLIMIT_AS does not count it
    shmget                         the same, for segments of more than 64 KB; smaller ones are bounded by SHMMNI
    io_uring_*                     makes sockets and opens files without a system call that a filter could see

Calls by the machine's other conventions (AUDIT_ARCH_I386, x32, 32-bit ARM), through which the same could be reached,
do not exist at all. `tests/tools/test_sandbox.py` tries each.
"""

import errno
import struct
from typing import NamedTuple

# struct sock_filter: code, jump if true, jump if false, operand (linux/bpf_common.h).
_LOAD_WORD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x06
# struct seccomp_data: where the number, the architecture and the low and high half of an argument are.
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_SECCOMP_RET_ALLOW, _SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
_X32_SYSCALL_BIT = 0x40000000

_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_LARGEST_SEGMENT = 64 << 10
"""Enough for the segment by which PostgreSQL finds out that it runs already."""

Step = tuple[int, int, int, int]


class _Machine(NamedTuple):
    """The numbers of a machine's system calls."""

    audit_arch: int
    absent: tuple[int, ...]
    """add_key, request_key, keyctl, memfd_create, memfd_secret, io_uring_setup, io_uring_enter, io_uring_register."""
    socket: int
    socketpair: int
    shmget: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, (248, 249, 250, 319, 447, 425, 426, 427), socket=41, socketpair=53, shmget=29),
    "aarch64": _Machine(0xC00000B7, (217, 218, 219, 279, 447, 425, 426, 427), socket=198, socketpair=199, shmget=194),
}


def seccomp_filter(machine: str) -> bytes:
    """The program for a machine as `uname -m` names it; empty for one that is not known."""
    known = _MACHINES.get(machine)
    return b"".join(struct.pack("=HBBI", *step) for step in _program(known)) if known else b""


def _program(machine: _Machine) -> list[Step]:
    absent, family = _fail(errno.ENOSYS), _fail(errno.EAFNOSUPPORT)
    only_known_families = [
        (_LOAD_WORD, 0, 0, _ARGUMENTS),
        *(step for known in _FAMILIES for step in _if_equal(known, [_ALLOW])),
        family,
    ]
    only_small_segments = [
        (_LOAD_WORD, 0, 0, _ARGUMENTS + 12),  # the high half of the size
        (_JUMP_GREATER, 2, 0, 0),
        (_LOAD_WORD, 0, 0, _ARGUMENTS + 8),
        (_JUMP_GREATER, 0, 1, _LARGEST_SEGMENT),
        _fail(errno.ENOMEM),
        _ALLOW,
    ]
    return [
        (_LOAD_WORD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, machine.audit_arch),
        absent,
        (_LOAD_WORD, 0, 0, _NR),
        (_JUMP_AT_LEAST, 0, 1, _X32_SYSCALL_BIT),
        absent,
        *(step for number in machine.absent for step in _if_equal(number, [absent])),
        *_if_equal(machine.socket, only_known_families),
        *_if_equal(machine.socketpair, only_known_families),
        *_if_equal(machine.shmget, only_small_segments),
        _ALLOW,
    ]


def _if_equal(value: int, then: list[Step]) -> list[Step]:
    """Do `then`, which must end in a return, if what was loaded is `value`; else go on behind it."""
    return [(_JUMP_EQUAL, 0, len(then), value), *then]


def _fail(error: int) -> Step:
    return (_RETURN, 0, 0, _SECCOMP_RET_ERRNO | error)


_ALLOW: Step = (_RETURN, 0, 0, _SECCOMP_RET_ALLOW)
