"""Protected files: no spelling, link or detour makes the file tools write one, unless a person allowed it by name."""

import contextlib
import string
import subprocess
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, ConfigurationError, Limits
from glidepath.errors import ToolError
from glidepath.testing import ScriptedModel, call, calls, say
from glidepath.workspace import Workspace, workspace_tools
from glidepath.workspace.file_tools import edit_file, write_file
from glidepath.workspace.protected_names import ROWS, fold_name


@pytest.fixture
def place(tmp_path):
    (tmp_path / "root").mkdir()
    return Workspace(tmp_path / "root")


def everything(place):
    return sorted(str(path.relative_to(place.root)) for path in place.root.rglob("*"))


def example(row):
    return row.replace("*", "project")


@pytest.mark.parametrize("row", ROWS)
def test_no_row_of_the_table_can_be_made(place, row):
    for path in (example(row), f"deep/er/{example(row)}"):
        with pytest.raises(ToolError, match=r"is protected and nothing was written: .*--allow-protected"):
            write_file(place, path, "planted")
        if row != "HEAD":
            with pytest.raises(ToolError, match="is protected"):
                write_file(place, f"{path}/below/it", "planted")
    assert not (place.root / example(row)).exists()
    assert not (place.root / "deep/er" / example(row)).exists()


@pytest.mark.parametrize("row", ROWS)
def test_no_row_of_the_table_can_be_changed(place, row):
    target = place.root / example(row)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("mine")
    with pytest.raises(ToolError, match="is protected"):
        write_file(place, example(row), "planted")
    with pytest.raises(ToolError, match="is protected"):
        edit_file(place, example(row), "mine", "planted", every=False)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("row", ROWS)
def test_every_row_can_be_allowed_by_name(tmp_path, row):
    place = Workspace(tmp_path, allow_protected=[example(row)])
    write_file(place, example(row), "wanted")
    assert (tmp_path / example(row)).read_text() == "wanted"
    with pytest.raises(ToolError, match="is protected"):
        write_file(place, f"elsewhere/{example(row)}", "planted")


@pytest.mark.parametrize(
    "path",
    [
        ".GIT/config",
        ".Git/hooks/pre-commit",
        "sub/.git/config",
        ".git./config",
        ".git /config",
        ".git. . /config",
        ".git::$INDEX_ALLOCATION/config",
        "GIT~1/config",
        ".g\u200cit/config",
        "\ufeff.git/config",
        ".\u0262it/config" if fold_name(".\u0262it") == ".git" else ".g\ufe0fit/config",
        "\uff0egit/config",
        ".git\\config",
        "sub\\.git\\config",
        "./.git/../.git/config",
        "src/../.git/config",
        ".git/../.git/config",
        ".//.git//config",
        "GLIDEPATH.TOML",
        "glidepath.toml.",
        "glidepath.toml ",
        "Agents.MD",
        "agents.md",
        ".EnvRC",
        ".BASH\u0280C" if fold_name("\u0280") == "r" else ".BASHRC",
        ".pro\ufb01le",  # a ligature
        ".v\u017fcode/tasks.json",  # a long s
        "X.Code-Workspace",
    ],
)
def test_no_other_spelling_helps(place, path):
    (place.root / "src").mkdir()
    with pytest.raises(ToolError, match="is protected"):
        write_file(place, path, "planted")
    assert everything(place) == ["src"]


def test_an_absolute_path_does_not_help(place):
    with pytest.raises(ToolError, match="is protected"):
        write_file(place, str(place.root / ".git" / "config"), "planted")


@pytest.mark.parametrize(
    "path",
    [
        ".gitignore",
        ".gitattributes",
        ".editorconfig",
        "head/page.html",
        "src/head.py",
        "git/x",
        "docs/agents.md.txt",
        ".github/workflows/ci.yml",
        "Makefile",
        ".env",
        "profile",
    ],
)
def test_ordinary_files_are_written(place, path):
    write_file(place, path, "fine")
    assert (place.root / path).read_text() == "fine"


def test_a_link_to_a_protected_folder_does_not_help(place):
    (place.root / ".git").mkdir()
    (place.root / "innocent").symlink_to(".git")
    (place.root / "file").symlink_to(".git/config")
    for path in ("innocent/config", "file"):
        with pytest.raises(ToolError, match="is protected"):
            write_file(place, path, "planted")
    assert everything(place) == [".git", "file", "innocent"]


def test_what_a_protected_name_links_to_is_protected(place):
    (place.root / "shared").mkdir()
    (place.root / "shared" / "rc").write_text("mine")
    (place.root / ".envrc").symlink_to("shared/rc")
    for path in ("shared/rc", ".envrc"):
        with pytest.raises(ToolError, match="is protected"):
            write_file(place, path, "planted")
    assert (place.root / "shared" / "rc").read_text() == "mine"


def test_the_file_that_a_gitfile_is_cannot_be_changed(place):
    (place.root / "tree").mkdir()
    (place.root / "tree" / ".git").write_text("gitdir: /somewhere\n")
    with pytest.raises(ToolError, match="is protected"):
        edit_file(place, "tree/.git", "somewhere", "evil", every=False)


@pytest.mark.parametrize("name", ["bare.git", "plain"])
def test_a_repository_without_a_git_folder_is_recognized(place, name):
    subprocess.run(["git", "init", "-q", "--bare", place.root / name], check=True)
    for path in ("config", "hooks/post-checkout", "info/attributes", "new"):
        with pytest.raises(ToolError, match="git repository's own"):
            write_file(place, f"{name}/{path}", "planted")


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("core.hooksPath", "scripts/hooks", "scripts/hooks/pre-commit"),
        ("core.hooksPath", "./scripts/../tools", "tools/deep/pre-push"),
        ("include.path", "../shared.cfg", "shared.cfg"),
        ("includeIf.gitdir:/**.path", "../shared.cfg", "shared.cfg"),
    ],
)
def test_wherever_the_configuration_sends_git_is_protected(place, key, value, path):
    subprocess.run(["git", "init", "-q", place.root / "sub"], check=True)
    subprocess.run(["git", "config", key, value], check=True, cwd=place.root / "sub")
    with pytest.raises(ToolError, match="has git take commands from it"):
        write_file(place, f"sub/{path}", "planted")
    write_file(place, f"sub/other/{path}", "fine")
    write_file(place, path, "fine")


def test_no_bare_repository_can_be_put_together(place):
    for path in ("x/config", "x/refs/heads/keep", "x/objects/keep"):
        write_file(place, path, "planted")
    with pytest.raises(ToolError, match="turns its folder into a git repository"):
        write_file(place, "x/HEAD", "ref: refs/heads/main\n")
    assert not (place.root / "x/HEAD").exists()


def test_the_agent_is_told_and_git_runs_nothing(place, tmp_path):
    subprocess.run(["git", "init", "-q", place.root], check=True)
    marker = tmp_path / "ran"
    evil = f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"sh -c 'id > {marker}; false'\"\n"
    script = [
        calls(
            call("write", path=".git/config", content=evil),
            call("edit", path=".git/config", old="[core]", new=evil),
            call("write", path="glidepath.toml", content='workspace = "~"\n'),
        ),
        say("done"),
    ]
    tools = workspace_tools(place, ["write", "edit"])
    result = Agent(model=ScriptedModel(script), tools=tools, limits=Limits(max_iterations=5)).run_sync("fix the typo")
    told = [message for message in result.messages if message.role == "tool_result"]
    assert [message.is_error for message in told] == [True, True, True]
    assert all("is protected" in message.text for message in told)
    subprocess.run(["git", "status", "-s"], cwd=place.root, capture_output=True, check=True)
    assert not marker.exists()
    assert not (place.root / "glidepath.toml").exists()


def test_only_what_is_named_is_allowed(tmp_path):
    place = Workspace(tmp_path, allow_protected=[".vscode/tasks.json", ".git/info/exclude"])
    write_file(place, ".vscode/tasks.json", "{}")
    write_file(place, ".git/info/exclude", "x")
    for path in (".vscode/settings.json", ".git/config", ".git/info/attributes", "sub/.vscode/tasks.json"):
        with pytest.raises(ToolError, match="is protected"):
            write_file(place, path, "planted")


@pytest.mark.parametrize("wrong", ["", ".", "..", "../x", "/etc/x", "~/.bashrc", "a/../b", 3, None])
def test_an_allowed_path_lies_inside_the_workspace(tmp_path, wrong):
    with pytest.raises(ConfigurationError, match="allow_protected"):
        Workspace(tmp_path, allow_protected=[wrong])


def test_a_name_alone_is_not_a_list(tmp_path):
    with pytest.raises(ConfigurationError, match="put it in a list"):
        Workspace(tmp_path, allow_protected=".vscode")


MESS = st.text(alphabet=st.sampled_from("\u200b\u200c\u200d\u2060\ufeff"), max_size=2)
PLAIN = [row for row in ROWS if "*" not in row and row != "HEAD"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), row=st.sampled_from(PLAIN), form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_whatever_is_done_to_a_protected_name_it_is_not_written(place, data, row, form):
    spelled = "".join(
        data.draw(MESS) + (sign.upper() if data.draw(st.booleans()) and sign in string.ascii_letters else sign)
        for sign in row
    )
    path = unicodedata.normalize(form, spelled) + data.draw(st.sampled_from(["", ".", " ", "...", ". "]))
    before = everything(place)
    with pytest.raises(ToolError, match="is protected"):
        write_file(place, path, "planted")
    assert everything(place) == before


STEPS = st.lists(st.sampled_from(["..", ".", "", "src", "link", "up", ".git", "hooks", "x", "config"]), max_size=7)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_the_steps_nothing_in_the_git_folder_is_written(place, steps):
    root = place.root
    if not (root / ".git").exists():
        (root / ".git" / "hooks").mkdir(parents=True)
        (root / ".git" / "config").write_text("mine")
        (root / "src").mkdir()
        (root / "src" / "link").symlink_to("../.git/hooks")
        (root / "link").symlink_to("src/link/..")
        (root / "src" / "up").symlink_to("../.git/./config")
    with contextlib.suppress(ToolError):
        write_file(place, "/".join(steps), "planted")
    assert (root / ".git" / "config").read_text() == "mine"
    assert sorted(path.name for path in (root / ".git").iterdir()) == ["config", "hooks"]
    assert not list((root / ".git" / "hooks").iterdir())
