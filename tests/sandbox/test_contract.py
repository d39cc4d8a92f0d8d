"""Our sandboxes against every attempt to get out of them, by each mechanism that works on this machine."""

import pytest

from glidepath.conformance import SandboxContract
from glidepath.sandbox import Sandbox
from glidepath.sandbox.policy import why_not

pytestmark = pytest.mark.process


def made(mechanism, policy):
    missing = why_not(mechanism)
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
