"""What holds for every test."""

import pytest

CAMPAIGN_SECONDS = 4 * 3600


def pytest_collection_modifyitems(items):
    """A campaign may take its time."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CAMPAIGN_SECONDS))
