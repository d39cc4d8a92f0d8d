"""A file that merely lies in the folder can only narrow; a person's yes covers exactly the bytes that were shown."""

import io
import json
import os
import threading
from argparse import Namespace

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.apps.cli import CliContext
from glidepath.apps.cli.folder import read_folder
from glidepath.apps.cli.layers import gather
from glidepath.apps.cli.trust import forget, is_trusted, list_trusted_folders, read_trusted_files, remember
from glidepath.cli import main

from .shell_user import glidepath, process


class Tty(io.StringIO):
    """A stream that a person looks at, or types into."""

    def isatty(self):
        return True


def folder_of(tmp_path, text='model = "python:flights:hello"\n', name="glidepath.toml"):
    folder = tmp_path / "unpacked"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def person(folder, typed, *argv):
    """A person at a terminal: the exit code, what was printed, and what was asked."""
    out, err = io.StringIO(), Tty()
    world = CliContext(environ={}, stdin=Tty(typed), stdout=out, stderr=err, folder=folder)
    code = main(argv, world)
    return code, out.getvalue(), err.getvalue()


# --- without a terminal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_in_a_pipe_one_line_says_what_is_ignored_and_how_to_allow_it(tmp_path, form):
    text = 'workspace = "~"\ntools = ["read", "write"]\nsystem_prompt = "evil"\n[limits]\nmax_iterations = 4\n'
    folder = folder_of(tmp_path, text)
    ran = glidepath("run", "hi", "--model", "python:flights:hello", "--output-format", form, folder=folder)
    assert ran.code == 0, ran
    assert ran.err == (
        "glidepath: this folder is not trusted, so glidepath.toml cannot set workspace, tools and system_prompt. "
        "To allow it, run `glidepath trust` or pass --config glidepath.toml\n"
    )
    assert "evil" not in ran.out


def test_what_narrows_takes_effect_without_trust(tmp_path):
    folder = folder_of(tmp_path, 'tools = ["read"]\n[limits]\nmax_iterations = 4\ntimeout = "off"\n')
    ran = glidepath("config", "show", "--json", "--origin", folder=folder)
    known = json.loads(ran.out)
    assert known["tools"]["value"] == ["read"]
    assert known["limits.max_iterations"] == {"value": 4, "origin": "glidepath.toml"}
    assert known["limits.timeout"] == {
        "value": 1800.0,
        "origin": "default",
        "ignored": {"value": None, "origin": "glidepath.toml"},
    }


def test_a_file_that_only_narrows_is_not_worth_a_word(tmp_path):
    folder = folder_of(tmp_path, "[limits]\nmax_iterations = 4\n")
    ran = glidepath("run", "hi", "--model", "python:flights:hello", folder=folder)
    assert (ran.code, ran.err) == (0, "")


def test_what_a_flag_overrides_anyway_is_not_worth_a_word(tmp_path):
    folder = folder_of(tmp_path, 'model = "openai:gpt-5"\n')
    ran = glidepath("run", "hi", "--model", "python:flights:hello", folder=folder)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("how", [("--config", "glidepath.toml"), ()])
def test_a_file_that_was_named_is_the_person_s_own_word(tmp_path, how):
    folder = folder_of(tmp_path)
    environ = {} if how else {"GLIDEPATH_CONFIG": "glidepath.toml"}
    ran = glidepath("run", "hi", *how, folder=folder, environ=environ)
    assert (ran.code, ran.out, ran.err) == (0, "Hello from the script.\n", "")


def test_no_config_reads_nothing_and_says_nothing(tmp_path):
    ran = glidepath("run", "hi", "--no-config", "--model", "python:flights:hello", folder=folder_of(tmp_path))
    assert (ran.code, ran.err) == (0, "")


def test_the_model_of_an_untrusted_file_is_missed_with_the_reason(tmp_path):
    ran = glidepath("run", "hi", folder=folder_of(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "no model is named: the one in glidepath.toml is ignored, because this folder is not trusted" in ran.err


def test_a_remembered_model_is_not_loaded_from_a_folder_whose_file_is_not_trusted(tmp_path):
    folder = tmp_path / "unpacked"
    folder.mkdir()
    assert glidepath("run", "hi", "--model", "python:flights:echoes", "--name", "bob", folder=folder).code == 0
    assert glidepath("run", "-r", "bob", "more", folder=folder).code == 0
    ran = glidepath("run", "-r", "bob", "more", folder=folder_of(tmp_path))
    assert (ran.code, "because this folder is not trusted" in ran.err) == (2, True), ran


def test_the_json_form_is_treated_the_same(tmp_path):
    ran = glidepath("run", "hi", folder=folder_of(tmp_path, '{"model": "python:flights:hello"}', "glidepath.json"))
    assert ran.code == 2
    assert "--config glidepath.json" in ran.err


@pytest.mark.parametrize("text", ["model = ", "modle = 'x'", "limits = 3", "prices = {'\\u001b]0;x\\u0007' = [1]}"])
def test_a_broken_file_in_an_untrusted_folder_is_an_error_and_cannot_steer_the_terminal(tmp_path, text):
    folder = folder_of(tmp_path, text.replace("'", '"'))
    ran = glidepath("run", "hi", "--model", "python:flights:hello", folder=folder)
    assert (ran.code, ran.out) == (2, "")
    assert "glidepath.toml" in ran.err
    assert "\x1b" not in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "argv",
    [
        ("run", "hi"),
        ("resume", "session_1"),
        ("runs", "list"),
        ("runs", "replay", "session_1"),
        ("sim", "--only", "no-such-specimen"),
        ("config", "check"),
        ("config", "show"),
        ("models",),
        ("worker",),
        ("submit", "agent", "task"),
        ("fleet",),
    ],
    ids=" ".join,
)
def test_no_command_acts_on_what_an_untrusted_file_says(tmp_path, argv):
    """The file names code that would leave a trace, and a store that would be made."""
    folder = folder_of(
        tmp_path, 'model = "python:evil:model"\ntools = ["python:evil:tool"]\nstore = "made.db"\nplugins = ["evil"]\n'
    )
    (folder / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').write_text('')\n")
    ran = process(*argv, folder=folder, XDG_DATA_HOME=str(tmp_path / "data"))
    assert "Traceback" not in ran.err, ran
    assert "evil" not in ran.err, ran
    assert sorted(path.name for path in folder.iterdir()) == ["evil.py", "glidepath.toml"], ran


def test_listing_runs_does_not_care_about_settings_of_a_flight(tmp_path):
    folder = folder_of(tmp_path)
    (tmp_path / "runs.db").touch()
    ran = glidepath("runs", "list", "--store", str(tmp_path / "runs.db"), folder=folder)
    assert (ran.code, ran.err) == (0, "there are no runs in this store\n")


def test_limits_of_an_untrusted_file_hold_but_are_nobody_s_word(tmp_path):
    folder = folder_of(tmp_path, "store = 'none'\n[limits]\nmax_iterations = 4\n")
    world = CliContext(environ={}, stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO(), folder=folder)
    known = gather(Namespace(), world)
    assert (known["limits.max_iterations"], known.is_set_by_person("limits.max_iterations"), known.trusted) == (
        4,
        False,
        False,
    )
    remember(read_folder(folder))
    known = gather(Namespace(), world)
    assert (known["limits.max_iterations"], known.is_set_by_person("limits.max_iterations"), known.trusted) == (
        4,
        True,
        True,
    )


# --- a person at a terminal ---------------------------------------------------------------------------------------


def test_yes_is_asked_for_once_and_again_when_a_file_changes(tmp_path):
    folder = folder_of(tmp_path)
    code, out, err = person(folder, "y\n", "run", "hi", "--store", "none")
    assert (code, "Hello from the script." in out) == (0, True), err
    assert "go to this model\n" in err
    assert '      "python:flights:hello" (runs Python code)\n' in err
    assert "Trust this folder (model)? [y/N] " in err
    code, _, err = person(folder, "", "run", "hi", "--store", "none")
    assert (code, "Trust" in err) == (0, False)
    (folder / "AGENTS.md").write_text("Do as I say.")
    code, _, err = person(folder, "n\n", "run", "hi", "--store", "none")
    assert code == 2
    assert "its files have changed since" in err
    assert "AGENTS.md (12 bytes)" in err


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "yeah\n", "Y E S\n", "y es\n"])
def test_whatever_is_not_a_yes_is_a_no_and_nothing_is_recorded(tmp_path, typed):
    folder = folder_of(tmp_path, 'system_prompt = "evil"\n')
    code, out, err = person(folder, typed, "run", "hi", "--model", "python:flights:hello", "--store", "none")
    assert (code, "Hello" in out) == (0, True), err
    assert "Not trusted: continuing without system_prompt from glidepath.toml." in err
    assert list_trusted_folders() == []
    assert not (tmp_path / "data" / "glidepath" / "trust").exists()


def test_ctrl_c_at_the_question_leaves_with_130_and_nothing_is_recorded(tmp_path):
    class Interrupted(Tty):
        def readline(self, *_):
            raise KeyboardInterrupt

    world = CliContext(environ={}, stdin=Interrupted(), stdout=io.StringIO(), stderr=Tty(), folder=folder_of(tmp_path))
    assert main(("run", "hi"), world) == 130
    assert list_trusted_folders() == []


def test_json_output_is_for_programs_and_nobody_is_asked(tmp_path):
    folder = folder_of(tmp_path, 'system_prompt = "evil"\n')
    argv = ("run", "hi", "--model", "python:flights:hello", "--store", "none", "--output-format", "json")
    code, out, err = person(folder, "y\n", *argv)
    assert (code, json.loads(out)["outcome"]) == (0, "done")
    assert err.count("\n") == 1
    assert "this folder is not trusted" in err


# --- the digest and the bytes -------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        "glidepath.toml",
        "glidepath.json",
        ".mcp.json",
        "AGENTS.md",
        ".glidepath/commands/a.md",
        ".glidepath/commands/b/c",
    ]
)


def _write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@settings(max_examples=50, deadline=None)
@given(
    one=st.dictionaries(NAMES, st.binary(max_size=20), max_size=6),
    other=st.dictionaries(NAMES, st.binary(max_size=20), max_size=6),
)
def test_two_folders_have_one_digest_only_when_names_and_bytes_are_equal(tmp_path_factory, one, other):
    left, right = tmp_path_factory.mktemp("left"), tmp_path_factory.mktemp("right")
    _write(left, one)
    _write(right, other)
    assert read_folder(left).files == one
    assert (read_folder(left).digest == read_folder(right).digest) == (one == other)


def test_bytes_cannot_move_from_one_file_to_the_next_under_one_digest(tmp_path):
    left, right = tmp_path / "left", tmp_path / "right"
    _write(left, {".mcp.json": b"ab", "AGENTS.md": b"c"})
    _write(right, {".mcp.json": b"a", "AGENTS.md": b"bc"})
    assert read_folder(left).digest != read_folder(right).digest


def test_the_bytes_that_were_shown_are_the_bytes_that_are_used(tmp_path):
    """Whoever swaps the file while the person reads the question gains nothing."""
    folder = folder_of(tmp_path)

    class Swapping(Tty):
        def readline(self, *_):
            (folder / "glidepath.toml").write_text('model = "python:flights:refuses"\n')
            return "y\n"

    out = io.StringIO()
    world = CliContext(environ={}, stdin=Swapping(), stdout=out, stderr=Tty(), folder=folder)
    assert main(("run", "hi", "--store", "none"), world) == 0
    assert "Hello from the script." in out.getvalue()
    assert not is_trusted(read_folder(folder))
    (folder / "glidepath.toml").write_text('model = "python:flights:hello"\n')
    assert is_trusted(read_folder(folder))


def test_other_code_gets_the_bytes_together_with_the_answer(tmp_path):
    folder = folder_of(tmp_path)
    _write(folder, {"AGENTS.md": b"Be kind.", ".glidepath/commands/a.md": b"/a"})
    assert read_trusted_files(folder)[0] is False
    remember(read_folder(folder))
    trusted, files = read_trusted_files(folder)
    assert trusted is True
    assert sorted(files) == [".glidepath/commands/a.md", "AGENTS.md", "glidepath.toml"]
    assert files["AGENTS.md"] == b"Be kind."


def test_pipes_devices_and_linked_folders_are_passed_over(tmp_path):
    folder = folder_of(tmp_path, "")
    os.mkfifo(folder / "AGENTS.md")
    (folder / ".mcp.json").symlink_to("/dev/zero")
    (folder / ".glidepath").mkdir()
    (folder / ".glidepath" / "commands").symlink_to("/etc")
    assert list(read_folder(folder).files) == ["glidepath.toml"]


def test_a_linked_file_counts_with_what_it_leads_to(tmp_path):
    folder = folder_of(tmp_path)
    (tmp_path / "secret").write_text("one")
    (folder / "AGENTS.md").symlink_to("../secret")
    first = read_folder(folder)
    assert first.links == {"AGENTS.md": "../secret"}
    (tmp_path / "secret").write_text("two")
    assert read_folder(folder).digest != first.digest
    _, _, err = person(folder, "n\n", "run", "hi")
    assert "AGENTS.md -> ../secret (3 bytes)" in err


def test_a_long_value_does_not_scroll_the_others_away(tmp_path):
    folder = folder_of(tmp_path, f'model = "a:b"\nsystem_prompt = "{"x" * 9000}"\ntools = ["shell"]\n')
    _, _, err = person(folder, "\n" * 8 + "n\n", "run", "hi")
    assert err.index("- system_prompt: ") < err.index("- model: ") < err.index("- tools: ")


def test_what_is_too_large_or_too_many_cannot_be_trusted_but_the_file_can_be_named(tmp_path):
    folder = folder_of(tmp_path)
    (folder / "AGENTS.md").write_bytes(b"x" * 1_000_001)
    ran = glidepath("run", "hi", folder=folder)
    assert ran.err.startswith(
        "glidepath: this folder is not trusted, so glidepath.toml cannot set model. It cannot be trusted: AGENTS.md "
        "is larger than 1,000,000 bytes. To allow it anyway, pass --config glidepath.toml\n"
    )
    assert glidepath("trust", "--yes", folder=folder).code == 2
    assert glidepath("run", "hi", "--config", "glidepath.toml", folder=folder).code == 0
    (folder / "AGENTS.md").unlink()
    _write(folder, {f".glidepath/commands/{number}": b"" for number in range(1001)})
    assert "more than 1,000 files" in glidepath("trust", "--yes", folder=folder).err


# --- what is kept -------------------------------------------------------------------------------------------------


def test_trust_is_kept_outside_the_folder_for_this_user_alone(tmp_path):
    folder = folder_of(tmp_path)
    before = sorted(folder.rglob("*"))
    remember(read_folder(folder))
    place = tmp_path / "data" / "glidepath" / "trust"
    (kept,) = place.iterdir()
    assert (place.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    assert sorted(folder.rglob("*")) == before


def test_a_record_that_somebody_else_could_have_written_is_not_believed(tmp_path):
    folder = folder_of(tmp_path)
    remember(read_folder(folder))
    place = tmp_path / "data" / "glidepath" / "trust"
    (kept,) = place.iterdir()
    kept.chmod(0o666)
    assert not is_trusted(read_folder(folder))
    kept.chmod(0o600)
    assert is_trusted(read_folder(folder))
    place.chmod(0o777)
    assert not is_trusted(read_folder(folder))
    assert "chmod 700" in glidepath("trust", "--yes", folder=folder).err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folder": 1, "digest": 2, "when": 3}', "[" * 100_000])
def test_a_broken_record_is_no_trust(tmp_path, text):
    folder = folder_of(tmp_path)
    remember(read_folder(folder))
    (kept,) = (tmp_path / "data" / "glidepath" / "trust").iterdir()
    kept.write_text(text)
    assert not is_trusted(read_folder(folder))
    assert list_trusted_folders() == []


def test_a_record_in_the_folder_itself_is_not_believed(tmp_path, monkeypatch):
    """It could have come with the folder."""
    folder = folder_of(tmp_path)
    (folder / "data").mkdir()
    remember(read_folder(folder))
    kept = tmp_path / "data" / "glidepath"
    assert is_trusted(read_folder(folder))
    kept.rename(folder / "data" / "glidepath")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    assert not is_trusted(read_folder(folder))
    assert "check XDG_DATA_HOME" in glidepath("trust", "--yes", folder=folder).err


def test_many_at_once_lose_nothing(tmp_path):
    folders = [tmp_path / f"folder-{number}" for number in range(20)]
    for folder in folders:
        _write(folder, {"glidepath.toml": b"model = 'a:b'"})
    threads = [threading.Thread(target=remember, args=(read_folder(folder),)) for folder in folders * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list_trusted_folders()) == len(folders)
    assert all(is_trusted(read_folder(folder)) for folder in folders)


def test_a_yes_that_cannot_be_kept_counts_for_this_command_and_a_line_says_so(tmp_path):
    (tmp_path / "data").write_text("not a folder")
    code, out, err = person(folder_of(tmp_path), "y\n", "run", "hi", "--store", "none")
    assert (code, "Hello" in out) == (0, True), err
    assert "Your answer cannot be kept, so you will be asked again" in err


# --- glidepath trust ----------------------------------------------------------------------------------------------


def test_trust_list_and_revoke(tmp_path):
    folder = folder_of(tmp_path)
    ran = glidepath("trust", "--yes", folder=folder)
    assert ran.code == 0, ran
    assert "  - model: " in ran.out
    assert ran.out.endswith(f"Trusted: {folder}\n")
    assert glidepath("run", "hi", folder=folder).out == "Hello from the script.\n"
    assert "You already trust this folder." in glidepath("trust", folder=folder).out
    listed = glidepath("trust", "list", folder=tmp_path).out
    assert listed.rstrip().endswith(str(folder))
    (folder / "AGENTS.md").write_text("new")
    assert glidepath("trust", "list", folder=tmp_path).out.rstrip().endswith("(changed)")
    (folder / "AGENTS.md").unlink()
    assert glidepath("trust", "revoke", "unpacked", folder=tmp_path).out == f"No longer trusted: {folder}\n"
    assert glidepath("run", "hi", folder=folder).code == 2
    gone = glidepath("trust", "revoke", folder=folder)
    assert (gone.code, "is not trusted" in gone.err) == (1, True)
    assert "You trust no folder yet." in glidepath("trust", "list", folder=tmp_path).err


def test_trust_takes_a_path_of_a_folder_or_of_its_file(tmp_path):
    folder = folder_of(tmp_path)
    assert glidepath("trust", "unpacked", "--yes", folder=tmp_path).code == 0
    assert forget(folder)
    assert glidepath("trust", "unpacked/glidepath.toml", "--yes", folder=tmp_path).code == 0
    assert is_trusted(read_folder(folder))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("trust",), "trust needs a terminal to ask on; in a script, pass --yes"),
        (("trust", "nowhere"), "is not a folder"),
        (("trust", "revok"), "is not a folder; did you mean revoke?"),
        (("trust", "list", "more"), "unexpected argument 'more'"),
        (("trust", "list", "--yes"), "--yes has no effect with list"),
    ],
)
def test_a_wrong_trust_is_refused(tmp_path, argv, said):
    ran = glidepath(*argv, folder=folder_of(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert list_trusted_folders() == []


def test_trust_asks_at_a_terminal_and_no_is_exit_1(tmp_path):
    folder = folder_of(tmp_path)
    code, out, err = person(folder, "n\n", "trust")
    assert (code, out) == (1, "Not trusted.\n")
    assert "  - model: " in err
    code, out, _ = person(folder, "yes\n", "trust")
    assert (code, out) == (0, f"Trusted: {folder}\n")


@pytest.mark.parametrize(
    ("text", "why"), [(None, "no glidepath.toml"), ("max_steps = 3", "glidepath.toml only narrows")]
)
def test_where_nothing_needs_trust_nothing_is_recorded(tmp_path, text, why):
    folder = tmp_path if text is None else folder_of(tmp_path, text)
    ran = glidepath("trust", "--yes", folder=folder)
    assert (ran.code, why in ran.out) == (0, True)
    assert list_trusted_folders() == []


def test_trust_follows_the_folder_and_not_a_link_to_it(tmp_path):
    folder = folder_of(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert glidepath("trust", "link", "--yes", folder=tmp_path).code == 0
    assert glidepath("run", "hi", folder=tmp_path / "link").code == 0
    assert [record.folder for record in list_trusted_folders()] == [str(folder)]


def test_a_copy_of_a_trusted_folder_is_not_trusted(tmp_path):
    folder = folder_of(tmp_path)
    remember(read_folder(folder))
    other = tmp_path / "copy"
    other.mkdir()
    (other / "glidepath.toml").write_bytes((folder / "glidepath.toml").read_bytes())
    assert not is_trusted(read_folder(other))


def test_show_says_which_values_are_ignored(tmp_path):
    ran = glidepath("config", "show", "--origin", folder=folder_of(tmp_path, 'model = "a:\\u001bb"\n'))
    assert ran.code == 0
    (row,) = [line for line in ran.out.splitlines() if line.startswith("model ")]
    assert row.split(maxsplit=2) == ["model", "a:<U+001B>b", "glidepath.toml, ignored: the folder is not trusted"]
    assert ran.err.count("\n") == 1


def test_help_and_completion_know_it(tmp_path):
    assert "trust" in glidepath("--help-all", folder=tmp_path).out
    told = glidepath("trust", "--help", folder=tmp_path).out
    assert all(word in told for word in ("list", "revoke", "--yes"))
    assert "trust" in glidepath("completion", "bash", folder=tmp_path).out


def test_a_person_is_asked_on_standard_output_when_the_error_stream_is_a_file(tmp_path):
    out = Tty()
    world = CliContext(environ={}, stdin=Tty("y\n"), stdout=out, stderr=io.StringIO(), folder=folder_of(tmp_path))
    assert main(("config", "check"), world) == 0
    assert "Trust this folder (model)? [y/N] " in out.getvalue()
