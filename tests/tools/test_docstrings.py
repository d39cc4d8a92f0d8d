"""What is read out of a docstring."""

import pytest
from hypothesis import given, strategies as st

from glidepath.tools import read_docstring

GOOGLE = """Find a thing.

    Looks everywhere.

    Args:
        query (str): What to find,
            in any language.
        limit: How many: at most.
        *rest: More.

    Returns:
        The things.
    """
NUMPY = """Find a thing.

    Looks everywhere.

    Parameters
    ----------
    query : str
        What to find,
        in any language.
    limit, most : int, optional
        How many: at most.

    Returns
    -------
    str
        The things.
    """
SPHINX = """Find a thing.

    Looks everywhere.

    :param str query: What to find,
        in any language.
    :type query: str
    :param limit: How many: at most.
    :returns: The things.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_the_three_styles_say_the_same(text):
    description, parameters = read_docstring(text)
    assert description.startswith("Find a thing.\n\nLooks everywhere.")
    assert "The things." in description
    assert "any language" not in description
    assert parameters["query"] == "What to find, in any language."
    assert parameters["limit"] == "How many: at most."


def test_several_names_share_a_numpy_entry():
    assert read_docstring(NUMPY)[1]["most"] == "How many: at most."


def test_a_docstring_without_sections_is_all_description():
    assert read_docstring("Just this.\n\nAnd args: none.") == ("Just this.\n\nAnd args: none.", {})


def test_a_heading_without_entries_is_description():
    assert read_docstring("Takes these\nParameters:\nnone at all") == ("Takes these\nParameters:\nnone at all", {})


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_no_docstring_is_no_description(text):
    assert read_docstring(text) == ("", {})


WORDS = [
    "Args:",
    "Parameters",
    "----",
    "---",
    "x : int",
    "    x: text",
    ":param x:",
    ":param :",
    "    more",
    "",
    "Returns:",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=20), max_size=15))
def test_reading_never_fails(lines):
    description, parameters = read_docstring("\n".join(lines))
    assert isinstance(description, str)
    assert all(parameters.values())
