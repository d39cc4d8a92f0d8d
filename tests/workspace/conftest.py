"""The real sandbox, where this machine has one."""

import pytest

from glidepath.workspace.sandbox import look_for_sandbox


@pytest.fixture(scope="session")
def sandbox():
    found, missing = look_for_sandbox()
    if found is None:
        pytest.skip(f"no sandbox to test with: {missing}")
    return found
