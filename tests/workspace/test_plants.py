"""What a sandboxed command plants loses its name while the command still runs, not only when it has ended."""

import asyncio
import os
import subprocess
import threading
import time

import pytest

from glidepath.errors import ToolError
from glidepath.workspace import Workspace, run_command

pytestmark = pytest.mark.process
EVIL = "git init -q /tmp/x && git -C /tmp/x config core.fsmonitor 'touch PWNED'"
PLANTS = {
    "a repository": f"{EVIL} && mkdir lib && cp -r /tmp/x/.git lib/.git",
    "a repository made in place": "git init -q lib && git -C lib config core.fsmonitor 'touch PWNED'",
    "a repository in a new folder": f"{EVIL} && mkdir -p y/a/b/lib && cp -r /tmp/x/.git y/a/b/lib/ && mv y/a/b/lib .",
    "a hook": "git init -q lib && printf '#!/bin/sh\n' > lib/.git/hooks/post-checkout",
    "a link": f"{EVIL} && mkdir lib && ln -s /tmp/x/.git lib/.git",
    "a task": "mkdir -p lib/.vscode && echo '{}' > lib/.vscode/tasks.json",
    "instructions": "mkdir lib && echo obey > lib/CLAUDE.md",
    "a start file": "mkdir lib && echo evil > lib/.envrc",
    "a moved file": "mkdir lib && echo evil > plain && mv plain lib/.envrc",
    "another spelling": "mkdir lib && echo evil > lib/claude.MD",
}
NAMES = (".git", ".vscode", "CLAUDE.md", ".envrc", "claude.MD")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "root").mkdir()
    return Workspace(tmp_path / "root")


def run(place, sandbox, command, seconds=30.0):
    return asyncio.run(run_command(place, sandbox, command, seconds))


@pytest.mark.parametrize("plant", PLANTS)
def test_it_has_lost_its_name_while_the_command_still_runs(place, sandbox, plant):
    with pytest.raises(ToolError, match="is protected") as caught:
        run(place, sandbox, f"{PLANTS[plant]}; sleep 0.7; echo NOW; ls -A lib; echo END")
    said = str(caught.value)
    assert "at once" in said, said
    seen = said.partition("NOW\n")[2].partition("END")[0].split()
    assert not [name for name in NAMES if name in seen], said
    assert any(".set-aside" in name for name in seen), "and nothing is lost"


def test_what_git_makes_by_itself_works_and_stays(place, sandbox):
    me = "-c user.name=me -c user.email=me@example.org"
    command = f"git init -q lib && cd lib && echo a > a && git add a && git {me} commit -qm one && git log --oneline"
    assert "one" in run(place, sandbox, command)
    assert (place.root / "lib/.git/HEAD").exists()


def test_what_was_there_before_is_left_alone(place, sandbox):
    subprocess.run(["git", "init", "-q", str(place.root)], check=True)
    (place.root / "CLAUDE.md").write_text("mine")
    assert run(place, sandbox, "echo x > a && git add a && git status -s").split() == ["A", "a", "??", "CLAUDE.md"]
    assert (place.root / "CLAUDE.md").read_text() == "mine"


def swapped(place, sandbox, tmp_path, seconds):
    """A command that swaps a folder with a planted file for a link that leads out, as fast as it can."""
    outside = tmp_path / "outside"
    (outside / ".git").mkdir(parents=True)
    (outside / ".envrc").write_text("mine")
    (outside / ".git/config").write_text("[core]\n\tfsmonitor = mine\n")
    code = (
        "import os, shutil, time\n"
        f"end = time.time() + {seconds}\n"
        "while time.time() < end:\n"
        "    os.makedirs('lib', exist_ok=True)\n"
        "    open('lib/.envrc', 'w').close()\n"
        "    try:\n"
        "        os.rename('lib', 'away')\n"
        f"        os.symlink({str(outside)!r}, 'lib')\n"
        "        os.unlink('lib')\n"
        "    except OSError:\n"
        "        pass\n"
        "    shutil.rmtree('away', ignore_errors=True)\n"
    )
    (place.root / "swap.py").write_text(code)
    with pytest.raises(ToolError):
        run(place, sandbox, "python3 swap.py", seconds + 20)
    return sorted(path.name for path in outside.iterdir()), (outside / ".envrc").read_text()


def test_a_link_that_is_swapped_in_renames_nothing_outside(place, sandbox, tmp_path):
    assert swapped(place, sandbox, tmp_path, 1.5) == ([".envrc", ".git"], "mine")


def rounds(tmp_path, sandbox, number):
    """Plant a repository again and again, while somebody outside asks git for its state without a pause."""
    ran = []
    for one in range(number):
        root, marker = tmp_path / f"root{one}", tmp_path / f"ran{one}"
        (root / "lib").mkdir(parents=True)
        over = threading.Event()

        def person(root=root, over=over):
            while not over.is_set():
                subprocess.run(["git", "-C", str(root / "lib"), "status", "-s"], capture_output=True, check=False)
                time.sleep(0.05)

        thread = threading.Thread(target=person)
        thread.start()
        try:
            with pytest.raises(ToolError):
                run(
                    Workspace(root), sandbox,
                    f"git init -q /tmp/x && git -C /tmp/x config core.fsmonitor \"sh -c 'id > {marker}; false'\" && "
                    "echo a > lib/a && cp -r /tmp/x/.git lib/.git; sleep 0.3",
                )  # fmt: skip
        finally:
            over.set()
            thread.join()
        ran.append(marker.exists())
    return ran


def test_a_prompt_outside_runs_nothing_of_it(tmp_path, sandbox):
    assert not any(rounds(tmp_path, sandbox, 3))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_prompts_outside_run_nothing_of_it(tmp_path, sandbox):
    assert not any(rounds(tmp_path, sandbox, 100))


@pytest.mark.slow
def test_ten_seconds_of_swapping_rename_nothing_outside(place, sandbox, tmp_path):
    assert swapped(place, sandbox, tmp_path, 10) == ([".envrc", ".git"], "mine")


def test_nothing_is_left_open(place, sandbox):
    run(place, sandbox, "true")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a list
    for _ in range(3):
        run(place, sandbox, "true")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
