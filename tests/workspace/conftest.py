"""The real sandbox, where this machine has one."""

import pytest

from glidepath.workspace import try_sandbox


@pytest.fixture(scope="session")
def sandbox():
    found, missing = try_sandbox()
    if found is None:
        pytest.skip(f"no sandbox to test with: {missing}")
    return found
