"""Our sandboxes against every attempt to get out of them, by each mechanism that works on this machine."""

import pytest

from glidepath.conformance import SandboxContract
from glidepath.sandbox import Sandbox
from glidepath.testing.conformance import clauses_of
from glidepath.tools.sandbox import explain_unusable

pytestmark = pytest.mark.process


def made(mechanism, policy):
    missing = explain_unusable(mechanism)
    if missing:
        pytest.skip(f"{mechanism}: {missing}")
    return Sandbox(by=[mechanism], **policy)


class TestBubblewrap(SandboxContract):
    def make_sandbox(self, **policy):
        return made("bubblewrap", policy)


class TestLandlock(SandboxContract):
    lacks = frozenset(
        {
            "SBX-19",  # Landlock does not look at changes of rights and times
            "SBX-53",  # it cannot tell one host from another
        }
    )

    def make_sandbox(self, **policy):
        return made("landlock", policy)


class Open(SandboxContract):
    """No sandbox at all."""

    def make_sandbox(self, **policy):
        return Sandbox(by=["none"], **policy)


HARMLESS = (
    *("4_reads_nothing_outside", "5_lists_nothing_outside", "6_dots", "7_a_link_made_inside", "8_a_link_that_is_there"),
    *("9_the_root_of_processes", "12_hard_links", "14_writes_nothing_outside", "15_changes_nothing_outside"),
    *("16_what_may_be_read", "17_moving", "18_moving_folders", "19_rights_of_files", "27_the_environment_of_others"),
    *("29_killing", "30_killing_groups", "31_seeing_processes", "36_no_new_rights", "45_no_connections"),
    *("46_no_datagrams", "49_sockets_in_files", "50_abstract_sockets", "55_memory", "57_large_files", "58_open_files"),
)


@pytest.mark.parametrize("attempt", HARMLESS)
def test_an_attempt_succeeds_where_there_is_no_sandbox(attempt):
    with pytest.raises(AssertionError):
        getattr(Open(), f"test_sbx_{attempt}")()


def test_temporary_files_in_the_folder_that_may_be_written_are_seen(monkeypatch):
    class Shared(Open):
        def make_sandbox(self, **policy):
            monkeypatch.setenv("TMPDIR", str(policy["write"][0]))
            return super().make_sandbox(env=["TMPDIR"], **policy)

    with pytest.raises(AssertionError):
        Shared().test_sbx_3_temporary_files()


def test_there_are_at_least_forty_attempts():
    assert len(clauses_of(SandboxContract)) >= 40
