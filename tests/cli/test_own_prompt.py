"""The command line's own system prompt: role, folder and date; shown by `config show`, and replaced by any other."""

import json
from datetime import date

import pytest

from .shell_user import glidepath

INSTRUCTED = ("--model", "python:flights:instructed")


def test_the_model_is_told_whom_it_helps_where_and_on_which_day(tmp_path):
    ran = glidepath("run", "hi", *INSTRUCTED, folder=tmp_path)
    assert ran.out.startswith("I was told: You help the person at this terminal.")
    assert f"You work in the folder {tmp_path}." in ran.out
    assert f"Today is {date.today().isoformat()}." in ran.out  # noqa: DTZ011 - the day where the people are


@pytest.mark.parametrize("words", ["Be brief.", ""])
def test_another_one_replaces_it(tmp_path, words):
    ran = glidepath("run", "hi", *INSTRUCTED, "--system-prompt", words, folder=tmp_path)
    assert ran.out.rstrip() == f"I was told: {words}".rstrip()


def test_a_folder_of_an_odd_name_cannot_write_the_prompt(tmp_path):
    odd = tmp_path / "x {date} {folder}\u202e"
    odd.mkdir()
    ran = glidepath("run", "hi", *INSTRUCTED, folder=odd)
    assert "\u202e" not in ran.out
    assert "Today is {date}" not in ran.out


def test_config_show_has_it_with_its_origin(tmp_path):
    shown = json.loads(glidepath("config", "show", "--json", "--origin", folder=tmp_path).out)
    assert shown["system_prompt"]["value"].startswith("You help the person at this terminal.")
    assert shown["system_prompt"]["origin"] == "default"
