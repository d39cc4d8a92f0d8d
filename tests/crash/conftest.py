import pytest

from .flights import Server


@pytest.fixture(scope="module")
def server():
    """Forks a process for each leg of a flight."""
    made = Server()
    yield made
    made.close()
