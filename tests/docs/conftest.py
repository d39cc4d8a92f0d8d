"""What the pages and examples need that is not in the repository."""

import pytest

from glidepath.models import pull


@pytest.fixture(scope="session", autouse=True)
def _model_file():
    """The file of the embedded model, fetched before a page's clock runs."""
    pull("smollm2")
