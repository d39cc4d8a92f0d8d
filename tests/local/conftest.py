"""One real model for the tests of a worker: pulled once per machine, loaded once per worker, one thread."""

import pytest

from glidepath.models import LocalModel, pull


@pytest.fixture(scope="session")
def weights():
    return pull("smollm2")


@pytest.fixture(scope="session")
def model(weights):
    with LocalModel(weights, threads=1, context_window=2048, start_timeout=300) as model:
        yield model
