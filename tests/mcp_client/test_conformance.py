"""The official conformance scenarios: a slice of them here, all of them in the campaign."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_mcp_conformance.py"
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kit():
    """The script that runs them; skipped, by name, where something cannot be installed."""
    spec = importlib.util.spec_from_file_location("make_mcp_conformance", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    try:
        script.installed()
    except script.Missing as missing:
        pytest.skip(f"the MCP conformance scenarios need {missing}")
    return script


@pytest.mark.parametrize("scenario", ["tools_call"])
def test_our_client_passes(kit, scenario):
    passed, said = kit.client_result(scenario)
    assert passed, said


def test_the_page_has_every_scenario(kit):
    page = kit.PAGE.read_text()
    for scenario in (*kit.CLIENT, *kit.REASONS):
        assert f"| {scenario} |" in page


@pytest.mark.slow
def test_every_scenario_has_its_expected_result(kit):
    client = {scenario: kit.client_result(scenario) for scenario in kit.CLIENT}
    server = kit.server_results()
    assert kit.unexpected(client, server) == []
    assert kit.PAGE.read_text() == kit.page(client, server)
