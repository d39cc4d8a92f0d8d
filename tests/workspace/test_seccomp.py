"""The filter for system calls, run by an interpreter of BPF: what it answers on every machine it is made for."""

import errno
import struct

import pytest
from hypothesis import given, strategies as st

from glidepath.workspace import MACHINES, filter_program

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def answer(machine, number, *arguments, audit=None):
    program = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    audit = MACHINES[machine].audit if audit is None else audit
    data = struct.pack("=IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    held, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("=I", data, value)[0]
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            return value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if true else if_false


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


HIGH = st.integers(0, 2**32 - 1).map(lambda high: high << 32)


@given(family=st.integers(0, 2**32 - 1), high=HIGH)
@pytest.mark.parametrize("machine", MACHINES)
def test_only_internet_and_netlink_sockets_can_be_made(machine, family, high):
    expected = ALLOW if family in (2, 10, 16) else REFUSE
    assert answer(machine, MACHINES[machine].table["socket"], family | high, 1) == expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", [0, 1, 2, 16, 30, 40])
@pytest.mark.parametrize("kind", range(12))
@pytest.mark.parametrize("flags", [0, 0o2000000, 0o4000, 1 << 40])
def test_only_connected_pairs_of_unix_sockets_can_be_made(machine, family, kind, flags):
    expected = ALLOW if family == 1 and kind in (1, 5) else REFUSE
    assert answer(machine, MACHINES[machine].table["socketpair"], family, kind | flags) == expected


@pytest.mark.parametrize("name", ["clone", "unshare"])
def test_no_user_namespace_can_be_made(machine, name):
    number = MACHINES[machine].table[name]
    assert answer(machine, number, 0x10000000 | 0x11) == REFUSE
    assert answer(machine, number, 0x10000000 | 0x11 | 1 << 45) == REFUSE
    assert answer(machine, number, 0x3D0F00) == ALLOW


@pytest.mark.parametrize("name", ["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"])
def test_what_could_go_behind_the_filter_is_not_there(machine, name):
    assert answer(machine, MACHINES[machine].table[name]) == ABSENT


@pytest.mark.parametrize("audit", [0x40000003, 0x40000028, 0xC00000F3, 0])
def test_other_architectures_are_killed(machine, audit):
    assert answer(machine, 1, audit=audit) == KILL


@given(number=st.integers(0x40000000, 2**32 - 1))
def test_no_number_of_x32_is_there(number):
    assert answer("x86_64", number) == ABSENT


@given(number=st.integers(0, 600))
@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_is_not_named_is_allowed(machine, number):
    if number not in MACHINES[machine].table.values():
        assert answer(machine, number, 1, 2) == ALLOW


def test_a_machine_that_is_not_known_has_none():
    assert filter_program("sparc64") is None
