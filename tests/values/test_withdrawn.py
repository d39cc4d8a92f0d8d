"""Names that were public once."""

import importlib

import pytest

WITHDRAWN = {
    "glidepath.conformance": ("Clause", "clauses_of"),
    "glidepath.guards": ("DEFAULT_NOTICE", "RepetitionGuard", "stitch"),
    "glidepath.sessions": ("Totals",),
    "glidepath.spi": ("HOOKS", "ToolTraits"),
    "glidepath.testing": ("RecordedRequest", "VirtualLoop", "live_work"),
    "glidepath.tools": ("Bound", "ToolHost", "ToolOptions", "as_result", "trim"),
    "glidepath.workspace": ("TOOL_NAMES", "find_sandbox"),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in WITHDRAWN.items() for name in names])
def test_a_withdrawn_name_still_comes_with_a_warning(module, name):
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is no longer public"):
        assert getattr(importlib.import_module(module), name) is not None
    assert name not in importlib.import_module(module).__all__


@pytest.mark.parametrize("module", sorted(WITHDRAWN))
def test_a_name_that_never_was_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = importlib.import_module(module).nonsense
