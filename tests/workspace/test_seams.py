"""Where the workspace stands, what links into it, and how large it is: none of that unprotects anything."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from glidepath.errors import ToolError
from glidepath.workspace import Workspace, file_survey, run_command
from glidepath.workspace.file_tools import edit_file, write_file


def shell(sandbox, place, command):
    return asyncio.run(run_command(place, sandbox, command, 60))


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".git/hooks").mkdir(exist_ok=True)
    return root


@pytest.mark.parametrize(
    ("root", "path"),
    [
        (".config", "git/config"),
        (".config", "fish/config.fish"),
        (".config", "autostart/x.desktop"),
        (".local", "share/glidepath/trust/x.json"),
        (".local/share", "glidepath/trust/x.json"),
        (".local", "bin/ls"),
        (".yarn", "releases/yarn.cjs"),
        (".git", "hooks/pre-commit"),
        (".git", "config"),
        (".git/hooks", "pre-commit"),
        (".git/modules/sub/hooks", "pre-commit"),
        (".GIT/hooks", "pre-commit"),
    ],
)
def test_a_workspace_in_the_middle_of_a_protected_path_protects_the_rest_of_it(tmp_path, sandbox, root, path):
    (tmp_path / root / path).parent.mkdir(parents=True)
    place = Workspace(tmp_path / root)
    with pytest.raises(ToolError, match="is protected and nothing was written"):
        write_file(place, path, "planted")
    try:
        shell(sandbox, place, f"echo planted > {path}")
    except ToolError as error:
        assert "was renamed" in str(error)  # noqa: PT017 - it may also be read-only, and then there is no error
    assert not (tmp_path / root / path).exists()


def test_a_folder_that_a_person_chose_as_the_workspace_can_be_worked_in(tmp_path):
    for root in (".config/nvim", ".vscode", ".claude/worktrees/mine"):
        (tmp_path / root).mkdir(parents=True)
        write_file(Workspace(tmp_path / root), "notes.txt", "fine")


@pytest.mark.parametrize("inside", [".", "glidepath", "glidepath/trust"])
def test_the_data_folder_is_protected_wherever_it_is(tmp_path, monkeypatch, sandbox, inside):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    record = tmp_path / "elsewhere/glidepath/trust/x.json"
    record.parent.mkdir(parents=True)
    record.write_text("mine")
    root = tmp_path if inside == "." else tmp_path / "elsewhere" / inside
    place = Workspace(root)
    path = str(record.relative_to(root))
    with pytest.raises(ToolError, match="is protected and nothing was written"):
        write_file(place, path, "planted")
    with pytest.raises(ToolError, match="is protected and nothing was written"):
        edit_file(place, path, "mine", "planted", every=False)
    shell(sandbox, place, f"echo planted > {path}; rm {path}; mv {path} other; true")
    assert record.read_text() == "mine"


def test_files_that_the_caller_protects_are_not_written(tmp_path, sandbox):
    named = tmp_path / "named.toml"
    named.write_text("mine")
    place = Workspace(tmp_path, protect=[named, tmp_path / "store.db", "/somewhere/else"])
    for path in ("named.toml", "store.db", "NAMED.toml"):
        with pytest.raises(ToolError, match="is protected and nothing was written"):
            write_file(place, path, "planted")
    said = shell(sandbox, place, "echo planted > named.toml; cat named.toml")
    assert said.endswith("mine")
    assert "Read-only" in said


def test_what_the_caller_protects_may_be_changed_by_the_caller_meanwhile(tmp_path, sandbox):
    store = tmp_path / "store.db"
    store.write_text("mine")
    place = Workspace(tmp_path, protect=[store])

    async def both():
        running = asyncio.ensure_future(run_command(place, sandbox, "sleep 0.5; echo done", 60))
        await asyncio.sleep(0.2)
        store.write_text("changed by us")
        (tmp_path / "store.db-wal").write_text("made by us")
        return await running

    assert asyncio.run(both()) == "done"
    assert (tmp_path / "store.db-wal").exists()


@pytest.mark.parametrize("where", [".", "sub", "new/deep"])
def test_a_flood_of_files_hides_nothing(tmp_path, sandbox, monkeypatch, where):
    monkeypatch.setattr(file_survey, "MOST_ENTRIES", 200)
    (tmp_path / "sub").mkdir()
    place = Workspace(tmp_path)
    with pytest.raises(ToolError, match=r"protected|too many"):
        shell(sandbox, place, f"mkdir -p {where} && cd {where} && touch $(seq 400) && echo x > .envrc")
    assert not (tmp_path / where / ".envrc").exists()


def test_a_folder_that_cannot_be_listed_any_more_hides_nothing(tmp_path, sandbox, monkeypatch):
    (tmp_path / "sub").mkdir()
    refused = {str(tmp_path / "sub"), str(tmp_path / "new")}
    real = os.scandir

    def scandir(path):
        if not isinstance(path, int) and os.fspath(path) in refused and not Path(path).stat().st_mode & 0o400:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # we may be root, who can list everything
    place = Workspace(tmp_path)
    with pytest.raises(ToolError, match=r"protected"):
        shell(sandbox, place, "mkdir new; echo x > sub/.envrc; echo x > new/.envrc; chmod 311 sub new")
    assert not (tmp_path / "sub/.envrc").exists()
    assert not (tmp_path / "new/.envrc").exists()


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".vscode/tasks.json", ".husky/pre-push"])
def test_what_a_link_in_a_protected_folder_leads_to_is_protected(repository, sandbox, name):
    (repository / "scripts").mkdir()
    (repository / "scripts/run").write_text("mine\n")
    link = repository / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(os.path.relpath(repository / "scripts/run", link.parent))
    place = Workspace(repository)
    with pytest.raises(ToolError, match="is protected and nothing was written"):
        write_file(place, "scripts/run", "planted")
    shell(sandbox, place, "echo planted > scripts/run; true")
    assert (repository / "scripts/run").read_text() == "mine\n"


@pytest.mark.parametrize("how", ["hooksPath", "link"])
def test_a_repository_above_the_workspace_sends_git_into_it(repository, sandbox, how):
    (repository / "src/tools").mkdir(parents=True)
    (repository / "src/tools/pre-commit").write_text("mine\n")
    if how == "link":
        (repository / ".git/hooks/pre-commit").symlink_to("../../src/tools/pre-commit")
    else:
        subprocess.run(["git", "-C", str(repository), "config", "core.hooksPath", "src/tools"], check=True)
    place = Workspace(repository / "src")
    with pytest.raises(ToolError, match="is protected and nothing was written"):
        write_file(place, "tools/pre-commit", "planted")
    shell(sandbox, place, "echo planted > tools/pre-commit; true")
    assert (repository / "src/tools/pre-commit").read_text() == "mine\n"
    shell(sandbox, Workspace(repository / "src/tools"), "echo planted > pre-commit; true")
    assert (repository / "src/tools/pre-commit").read_text() == "mine\n"
    allowed = Workspace(repository / "src", allow_protected=["tools"])
    write_file(allowed, "tools/pre-commit", "wanted")


def test_a_planted_rebase_does_not_wait_for_the_person(repository, sandbox):
    place = Workspace(repository)
    with pytest.raises(ToolError, match="rebase"):
        shell(sandbox, place, "mkdir .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo")
    assert not (repository / ".git/rebase-merge/git-rebase-todo").exists()


def test_an_honest_rebase_that_stops_stays(repository, sandbox):
    place = Workspace(repository)
    git = "git -c user.name=a -c user.email=a@b"
    shell(
        sandbox,
        place,
        f"echo 1 > f; git add f; {git} commit -qm 1; git checkout -qb other; echo 2 > f; {git} commit -qam 2; "
        f"git checkout -q -; echo 3 > f; {git} commit -qam 3; {git} rebase other; true",
    )
    assert (repository / ".git/rebase-merge/git-rebase-todo").exists()
