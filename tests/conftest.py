"""What holds for every test."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no defect.
settings.register_profile("glidepath", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("glidepath")
CAMPAIGN_SECONDS = 4 * 3600
FAR_FROM_THE_KERNEL = (
    "bench", "cli", "contracts", "deck", "deploy", "docs", "gate", "local", "properties", "sandbox", "serve",
    "sim", "testing", "typing", "values", "wire", "workspace",
)  # fmt: skip
"""Folders whose tests are not measured: what they try is not the kernel, and they would take half as long again."""


def pytest_collection_modifyitems(config, items):
    """A campaign may take its time; coverage is measured where it is judged."""
    measured = config.pluginmanager.hasplugin("_cov")
    for item in items:
        if measured and item.path.relative_to(config.rootpath / "tests").parts[0] in FAR_FROM_THE_KERNEL:
            item.add_marker(pytest.mark.no_cover)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CAMPAIGN_SECONDS))


def pytest_sessionstart():
    gc.disable()  # nothing is thrown away while tests are collected


def pytest_collection_finish():
    """Eighteen thousand collected tests are a heap that every full garbage collection would walk through anew."""
    gc.collect()
    gc.freeze()
    gc.enable()
