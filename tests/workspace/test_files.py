"""The file tools: what they do, and that nothing leads out of the workspace."""

import contextlib
import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import Agent, ConfigurationError, Limits
from glidepath.errors import ToolError
from glidepath.testing import ScriptedModel, call, say
from glidepath.tools import ToolContext
from glidepath.workspace import TOOL_NAMES, Workspace, file_tools, workspace_tools
from glidepath.workspace.file_tools import MOST_READ, edit_file, list_folder, read_file, search, write_file


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "src" / "b.py").write_text("import os\n\ndef f():\n    return 'two'\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    return Workspace(root)


def read(place, path, first_line=1, lines=500):
    return read_file(place, path, first_line, lines)


# --- what they do -----------------------------------------------------------------------------------------------------


def test_read_gives_the_text_as_it_is(place):
    assert read(place, "a.txt") == "one\ntwo\nthree\n"
    assert read(place, "src/../a.txt") == "one\ntwo\nthree\n"
    assert read(place, str(place.root / "a.txt")) == "one\ntwo\nthree\n"


def test_read_gives_lines_and_says_where_to_go_on(place):
    assert read(place, "a.txt", 2, 1) == "two\n\n[lines 2 to 2, 14 bytes in all: continue with first_line=3]"
    assert read(place, "a.txt", 3, 5) == "three\n"
    with pytest.raises(ToolError, match="ends before line 9"):
        read(place, "a.txt", 9)
    with pytest.raises(ToolError, match="count from 1"):
        read(place, "a.txt", 0)


def test_a_line_behind_the_last_one_is_not_called_an_empty_file(place):
    (place.root / "one.txt").write_text("only\n")
    (place.root / "none.txt").write_text("")
    assert read(place, "none.txt") == "(the file is empty)"
    with pytest.raises(ToolError, match=r"one\.txt ends before line 2"):
        read(place, "one.txt", 2)


def test_read_is_bounded_whatever_the_file(place):
    (place.root / "long").write_bytes(b"x" * 10_000_000)
    text = read(place, "long")
    assert len(text) < MOST_READ + 200
    assert "line too long to show in full" in text


def test_read_refuses_what_is_no_text_file(place):
    (place.root / "bin").write_bytes(b"\x7fELF\0\0")
    os.mkfifo(place.root / "pipe")
    for path, said in (
        ("bin", "binary file of 6 bytes"),
        ("pipe", "not a regular file"),
        ("src", "is a folder"),
        ("no", "does not exist"),
    ):
        with pytest.raises(ToolError, match=said):
            read(place, path)


def test_write_makes_folders_and_replaces_as_a_whole(place):
    assert write_file(place, "new/deep/c.txt", "hello") == "wrote 5 bytes to new/deep/c.txt"
    write_file(place, "new/deep/c.txt", "bye")
    assert (place.root / "new/deep/c.txt").read_text() == "bye"
    assert [path.name for path in (place.root / "new/deep").iterdir()] == ["c.txt"]


def test_write_keeps_the_mode_of_a_file(place):
    (place.root / "run.sh").write_text("x")
    (place.root / "run.sh").chmod(0o750)
    write_file(place, "run.sh", "y")
    assert (place.root / "run.sh").stat().st_mode & 0o777 == 0o750


def test_write_through_a_hard_link_leaves_the_other_name_alone(place):
    os.link(place.root.parent / "secret.txt", place.root / "linked.txt")
    write_file(place, "linked.txt", "mine")
    assert (place.root.parent / "secret.txt").read_text() == "secret\n"


def test_edit_wants_a_text_that_is_there_once(place):
    assert edit_file(place, "a.txt", "two", "2", every=False) == "changed 1 place in a.txt"
    assert (place.root / "a.txt").read_text() == "one\n2\nthree\n"
    for old, new, said in (
        ("four", "4", "does not contain"),
        ("e", "E", "3 times"),
        ("", "x", "old is empty"),
        ("one", "one", "the same"),
    ):
        with pytest.raises(ToolError, match=said):
            edit_file(place, "a.txt", old, new, every=False)
    assert edit_file(place, "a.txt", "e", "E", every=True) == "changed 3 places in a.txt"


def test_list_shows_folders_with_a_slash_and_does_not_enter_build_folders(place):
    (place.root / "node_modules" / "x").mkdir(parents=True)
    assert list_folder(place, ".", None, 1) == "a.txt\nnode_modules/\nsrc/"
    assert list_folder(place, ".", None, 5) == "a.txt\nnode_modules/\nsrc/\nsrc/b.py"
    assert list_folder(place, ".", "*.py", 5) == "src/b.py"
    assert list_folder(place, "src", "*.c", 5) == "(nothing matches)"


def test_list_is_bounded(place):
    for number in range(600):
        (place.root / "src" / f"{number}").touch()
    assert list_folder(place, "src", None, 1).endswith("or give a pattern]")


def test_search_finds_lines_and_skips_what_is_no_text(place):
    (place.root / "bin").write_bytes(b"two\0")
    assert search(str(place.root), "two", ".", None, ignore_case=False) == "a.txt:2: two\nsrc/b.py:4: return 'two'"
    assert search(str(place.root), "TWO", ".", "*.py", ignore_case=True) == "src/b.py:4: return 'two'"
    assert search(str(place.root), "two", "a.txt", None, ignore_case=False) == "a.txt:2: two"
    assert search(str(place.root), "nowhere", ".", None, ignore_case=False) == "(nothing matches)"
    with pytest.raises(ToolError, match="not a regular expression"):
        search(str(place.root), "(", ".", None, ignore_case=False)


# --- nothing leads out ------------------------------------------------------------------------------------------------


def escapes(place):
    root = place.root
    (root / "out").symlink_to("../secret.txt")
    (root / "abs").symlink_to(root.parent / "secret.txt")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "chain").symlink_to("up/secret.txt")
    return [
        "../secret.txt",
        "src/../../secret.txt",
        str(root.parent / "secret.txt"),
        "/etc/passwd",
        f"{root}/../secret.txt",
        f"{root}-other/x",
        "out",
        "abs",
        "up/secret.txt",
        "chain",
        "loop",
        "src/../up/secret.txt",
        "..",
        "up",
        "a\0b",
        "",
        " ",
        "x" * 5000,
    ]


def test_no_path_leads_out(place):
    for path in escapes(place):
        with pytest.raises(ToolError):
            read(place, path)
        with pytest.raises(ToolError):
            write_file(place, path, "gotcha")
        with pytest.raises(ToolError):
            edit_file(place, path, "secret", "gotcha", every=False)
        with pytest.raises(ToolError):
            list_folder(place, path, None, 1)
        with pytest.raises(ToolError):
            search(str(place.root), "secret", path, None, ignore_case=False)
    assert (place.root.parent / "secret.txt").read_text() == "secret\n"
    assert sorted(path.name for path in place.root.parent.iterdir()) == ["root", "secret.txt"]


def test_searching_everything_follows_no_link_out(place):
    escapes(place)
    (place.root / "folder").symlink_to(place.root.parent)
    assert search(str(place.root), "secret", ".", None, ignore_case=False) == "(nothing matches)"


def test_a_link_inside_the_workspace_is_followed(place):
    (place.root / "alias").symlink_to("src/b.py")
    (place.root / "src" / "back").symlink_to("../a.txt")
    assert read(place, "alias").startswith("import os")
    assert read(place, "src/back") == "one\ntwo\nthree\n"
    write_file(place, "alias", "changed")
    assert (place.root / "src" / "b.py").read_text() == "changed"
    assert (place.root / "alias").is_symlink()


STEPS = st.lists(
    st.sampled_from(["..", ".", "", "src", "a.txt", "up", "out", "abs", "in", "/", "root", "secret.txt"]), max_size=8
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, absolute=st.booleans())
def test_whatever_the_steps_the_secret_is_never_read(place, steps, absolute):
    if not (place.root / "up").is_symlink():
        escapes(place)
        (place.root / "in").symlink_to("src/..")
    path = ("/" if absolute else "") + "/".join(steps)
    with contextlib.suppress(ToolError):
        assert "secret" not in read(place, path)


def test_swapping_a_folder_for_a_link_while_it_is_read_never_shows_the_secret(place):
    outside = place.root.parent / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("secret")
    stop = threading.Event()

    def swap():
        folder, link = place.root / "src", place.root / "src2"
        while not stop.is_set():
            folder.rename(link)
            folder.symlink_to(outside)
            folder.unlink()
            link.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1500):
            with contextlib.suppress(ToolError):
                assert "secret" not in read(place, "src/b.py")
            with contextlib.suppress(ToolError):
                edit_file(place, "src/b.py", "o", "oo", every=True)
                edit_file(place, "src/b.py", "oo", "o", every=True)
    finally:
        stop.set()
        thread.join()
    assert (outside / "b.py").read_text() == "secret"


def open_descriptors():
    return len(list(Path("/dev/fd").iterdir()))


def test_no_descriptor_is_left_open(place):
    before = open_descriptors()
    for path in [*escapes(place), "a.txt", "src/b.py"]:
        for work in (
            lambda path=path: read(place, path),
            lambda path=path: write_file(place, path, "x" if path else ""),
        ):
            with contextlib.suppress(ToolError):
                work()
    assert open_descriptors() == before


# --- as tools ---------------------------------------------------------------------------------------------------------


def test_the_tools_say_what_they_may_do(place):
    tools = {tool.name: tool for tool in workspace_tools(place, TOOL_NAMES, sandbox="off")}
    assert list(tools) == list(TOOL_NAMES)
    assert [name for name, tool in tools.items() if tool.read_only] == ["read", "list", "grep"]
    assert [name for name, tool in tools.items() if tool.idempotent] == ["read", "list", "grep", "write"]
    assert [name for name, tool in tools.items() if tool.requires_approval] == ["shell"]
    assert all(tool.description for tool in tools.values())


def test_by_default_nothing_can_be_changed(place):
    assert all(tool.read_only for tool in workspace_tools(place))


@pytest.mark.process
def test_an_agent_works_with_them(place):
    model = ScriptedModel(
        [
            call("grep", pattern="two"),
            call("edit", path="a.txt", old="two", new="2"),
            call("read", path="../secret.txt"),
            say("done"),
        ]
    )
    agent = Agent(model=model, tools=workspace_tools(place, ["read", "grep", "edit"]), limits=Limits(max_iterations=9))
    result = agent.run_sync("go")
    results = [message for message in result.messages if message.role == "tool_result"]
    assert results[0].text == "a.txt:2: two\nsrc/b.py:4: return 'two'"
    assert (place.root / "a.txt").read_text() == "one\n2\nthree\n"
    assert results[2].is_error
    assert "leads out of the workspace" in results[2].text
    assert "secret\n" not in json.dumps([message.text for message in result.messages])


@pytest.mark.process
def test_a_pattern_that_takes_for_ever_is_stopped(place, monkeypatch):
    monkeypatch.setattr("glidepath.workspace.toolset._GREP_SECONDS", 0.5)
    (place.root / "evil.txt").write_text("a" * 40 + "!\n")
    model = ScriptedModel([call("grep", pattern="(a+)+$"), say("went on")])
    agent = Agent(model=model, tools=workspace_tools(place, ["grep"]), limits=Limits(max_iterations=3))
    result = agent.run_sync("go")
    assert result.text == "went on"
    assert result.messages[2].is_error


@pytest.mark.parametrize("root", ["/no/such/folder", 3, None, "a\0b", __file__])
def test_a_workspace_must_be_a_folder(root):
    with pytest.raises(ConfigurationError, match="workspace"):
        Workspace(root)


def test_an_unknown_tool_is_refused(place):
    with pytest.raises(ConfigurationError, match="did you mean 'write'"):
        workspace_tools(place, ["wrte"])


def sparse(place):
    with (place.root / "sparse").open("wb") as file:
        file.write(b"a" * 9000)
        file.truncate(1 << 40)


def test_a_sparse_file_larger_than_any_disk_is_refused_at_once(place):
    sparse(place)
    with pytest.raises(ToolError, match="binary file of 1099511627776 bytes"):
        read(place, "sparse", 2)
    assert len(read(place, "sparse")) < MOST_READ + 200
    with pytest.raises(ToolError, match="can be edited"):
        edit_file(place, "sparse", "a", "b", every=True)
    assert search(str(place.root), "a", "sparse", None, ignore_case=False) == "(nothing matches)"


def test_a_line_that_is_too_far_away_is_refused(place, monkeypatch):
    monkeypatch.setattr("glidepath.workspace.file_tools.MOST_PASSED", 1_000_000)
    (place.root / "long").write_bytes(b"x" * 3_000_000 + b"\nlast\n")
    with pytest.raises(ToolError, match="line 2 of long is more than 1000000 bytes away"):
        read(place, "long", 2)


def test_a_line_is_found_wherever_pieces_end(place):
    (place.root / "many").write_bytes(b"".join(b"%d\n" % number for number in range(1, 200_001)))
    for line in (2, 40_000, 199_999, 200_000):
        assert read(place, "many", line, 1).startswith(f"{line}\n")


def test_work_for_a_call_that_was_let_go_ends(place):
    (place.root / "long").write_bytes(b"x" * 3_000_000)
    let_go = ToolContext.for_testing(cancelled=True)
    with pytest.raises(ToolError, match="stopped"):
        read_file(place, "long", 2, 1, let_go)
    with pytest.raises(ToolError, match="stopped"):
        list_folder(place, ".", "nothing", 5, let_go)


def test_work_that_takes_too_long_ends(place, monkeypatch):
    monkeypatch.setattr(file_tools, "PATIENCE", -1)
    (place.root / "long").write_bytes(b"x" * 3_000_000)
    with pytest.raises(ToolError, match="longer than -1 seconds"):
        read_file(place, "long", 2, 1)


def test_a_folder_with_very_many_entries_is_listed_in_part(place, monkeypatch):
    monkeypatch.setattr("glidepath.workspace.file_tools.MOST_IN_FOLDER", 5)
    for number in range(30):
        (place.root / "src" / f"{number}").touch()
    assert len(list_folder(place, "src", None, 1).splitlines()) == 5


def test_passing_over_a_line_as_long_as_the_file_costs_no_memory(place):
    (place.root / "long").write_bytes(b"x" * 30_000_000 + b"\nlast\n")
    tracemalloc.start()
    try:
        assert read(place, "long", 2) == "last\n"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
