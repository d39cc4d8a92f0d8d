"""Fixture tasks for recordings: what a scripted model does in a small workspace, in the tools of Claude Code and Codex.

A task is a list of moves, one turn each; a move is one call or several at once. `children` starts sub-agents, each with
moves of its own. Where the moves are over, the model answers.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from glidepath.testing.upstream.asked import AskedCall
from glidepath.testing.upstream.spoken import Spoken, SpokenCall

FILES = {
    "notes.txt": "alpha\nbeta\ngamma\n",
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": "from calc import add\n\nassert add(2, 3) == 5, add(2, 3)\nprint('passed')\n",
    "data/words.csv": "word,count\none,1\ntwo,2\nthree,3\n",
    "docs/read me.md": '# Title\n\nSome *text* with ünïcode, tabs\tand "quotes".\n',
}
ANSWER = "SCRIPTED-ANSWER: the work is done"


@dataclass(frozen=True)
class Move:
    """One call: `shell`, `read`, `write`, `edit`."""

    kind: str
    one: str = ""
    two: str = ""
    three: str = ""


@dataclass(frozen=True)
class Task:
    """Turns of the main agent, and those of its sub-agents by number."""

    name: str
    turns: tuple[tuple[Move, ...], ...]
    children: dict[str, tuple[tuple[Move, ...], ...]] = field(default_factory=dict)


def shell(command):
    return Move("shell", command)


def read(path):
    return Move("read", path)


def write(path, text):
    return Move("write", path, text)


def edit(path, old, new):
    return Move("edit", path, old, new)


CHILDREN = Move("children")
FIX = edit("calc.py", "a - b", "a + b")
CHECK = shell("python3 -B test_calc.py")  # no bytecode: a change in the same second would not be seen


def task(name, *turns, **children):
    """A task; a turn is one move, or a list of moves at once."""

    def whole(given):
        return tuple(tuple(turn) if isinstance(turn, list) else (turn,) for turn in given)

    return Task(name, whole(turns), {number.removeprefix("child"): whole(given) for number, given in children.items()})


TASKS = (
    task("only an answer"),
    task("look around", shell("ls"), shell("cat notes.txt"), shell("wc -l notes.txt data/words.csv")),
    task("where and who", shell("pwd"), shell("whoami; id -u"), shell("ls -la")),
    task("make a file and run it", write("hello.py", "print('hello')\n"), shell("python3 hello.py")),
    task("read and edit", read("notes.txt"), edit("notes.txt", "beta", "BETA"), shell("cat notes.txt")),
    task("a failing command", shell("false"), shell("ls nowhere"), shell("exit 7"), shell("echo on")),
    task("a failing test, mended", CHECK, read("calc.py"), FIX, CHECK),
    task("a file that is not there", read("absent.txt"), shell("cat absent.txt"), read("notes.txt")),
    task("an edit that does not fit", read("calc.py"), edit("calc.py", "a * b", "a + b"), FIX, shell("cat calc.py")),
    task("several calls at once", [shell("echo one"), shell("echo two"), shell("echo three")], shell("echo four")),
    task("files and calls at once", [read("notes.txt"), shell("ls data")], [read("calc.py"), shell("ls docs")]),
    task("dates, ids and chance", shell("date; date -Is; cat /proc/sys/kernel/random/uuid"), shell("date +%T; mktemp")),
    task(
        "a repository",
        shell("git init -q . && git config user.email a@b.c && git config user.name n"),
        shell("git add -A && git commit -m first"),
        FIX,
        shell("git diff; git status --short"),
        shell("git commit -qam second; git log"),
    ),
    task("long output", shell("seq 1 4000"), shell("head -c 20000 /dev/zero | tr '\\0' x"), shell("seq 1 3")),
    task("other letters", write("ü.txt", "Grüße, 世界 🙂\n"), shell("cat ü.txt"), read("docs/read me.md")),
    task("folders", shell("mkdir -p a/b && mv notes.txt a/b"), shell("find . -type f | sort"), shell("rm -r a; ls")),
    task("errors of a program", shell("python3 -c 'import calc; calc.add(1)'"), shell("python3 -c 'print(1/0)'")),
    task("many turns", *[shell(f"echo step {number}; wc -c < notes.txt") for number in range(20)]),
    task(
        "pipes and stderr", shell("cat data/words.csv | sort -t, -k2 -n | tail -2"), shell("echo oops >&2; echo fine")
    ),
    task("slow commands", shell("sleep 0.3; echo slept"), shell("time true"), shell("sleep 0.2 & wait; echo waited")),
    task(
        "one sub-agent",
        CHILDREN,
        shell("cat made-by-child-1.txt"),
        child1=(shell("echo child > made-by-child-1.txt"), shell("ls")),
    ),
    task(
        "two sub-agents",
        CHILDREN,
        shell("ls | sort"),
        child1=(shell("echo 1 > one.txt"), shell("cat one.txt")),
        child2=(read("notes.txt"), shell("echo 2 > two.txt")),
    ),
    task(
        "three sub-agents beside each other",
        shell("ls"),
        CHILDREN,
        child1=(shell("sleep 0.2; echo a"), shell("echo b")),
        child2=(shell("echo c"),),
        child3=(shell("echo d"), shell("echo e"), shell("echo f")),
    ),
    task(
        "a sub-agent that fails",
        CHILDREN,
        shell("echo after"),
        child1=(shell("false"), shell("python3 -B test_calc.py"), read("absent.txt")),
    ),
    task(
        "sub-agents that edit",
        CHILDREN,
        shell("python3 -B test_calc.py"),
        shell("git diff --no-index /dev/null calc.py | tail -3"),
        child1=(read("calc.py"), FIX),
        child2=(write("extra.txt", "more\n"), shell("cat extra.txt")),
    ),
)


class FixtureModel:
    """A scripted model that works on one task in one folder. Use it as the `speaker` of a `ScriptedUpstream`."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder

    def __call__(self, asked: AskedCall) -> Spoken | None:
        """What it says; None for a side call, which has no tools."""
        if not asked.tools:
            return None
        turns = self.task.turns if asked.child is None else self.task.children.get(asked.child, ())
        names = {tool.name: tool for tool in asked.tools}
        past = [one for one in asked.past if one.name != "wait_agent"]
        made = 0
        for turn in turns:
            if turn == (CHILDREN,):
                wanted = len(self.task.children)
                if len(past) < made + wanted:
                    return self._start_children(asked, names, len(past) - made)
                if "wait_agent" in names and not self._have_reported(asked):
                    return _say(SpokenCall(name="wait_agent", arguments="{}", namespace=names["wait_agent"].namespace))
                made += wanted
                continue
            if len(past) <= made:
                return _say(*[self._call(move, names) for move in turn])
            made += len(turn)
        return Spoken(text=f"{ANSWER}{'' if asked.child is None else f' by child {asked.child}'}")

    def _have_reported(self, asked: AskedCall) -> bool:
        """True once every sub-agent of Codex has told its parent that it is done."""
        texts = "\n".join(asked.user_texts + [json.dumps(one) for one in asked.items])
        return all(f"by child {number}" in texts for number in self.task.children)

    def _start_children(self, asked, names, begun):
        numbers = list(self.task.children)[begun:]
        if "spawn_agent" in names:
            numbers = numbers[:1]
        return _say(*[self._start_child(number, names) for number in numbers])

    def _start_child(self, number, names):
        prompt = f"You are scripted child {number}. Do your work."
        if "spawn_agent" in names:
            arguments = {"message": prompt, "task_name": f"work_{number}", "fork_turns": "none"}
            where = names["spawn_agent"].namespace
            return SpokenCall(name="spawn_agent", arguments=json.dumps(arguments), namespace=where)
        arguments = {"description": f"work {number}", "prompt": prompt, "subagent_type": "general-purpose"}
        arguments["run_in_background"] = False
        return SpokenCall(name="Agent", arguments=json.dumps(arguments))

    def _call(self, move, names):
        if "exec" in names:
            return SpokenCall(name="exec", arguments=_program(move), kind="custom", namespace=names["exec"].namespace)
        path = str(self.folder / move.one)
        made = {
            "shell": ("Bash", {"command": move.one, "description": "Run it"}),
            "read": ("Read", {"file_path": path}),
            "write": ("Write", {"file_path": path, "content": move.two}),
            "edit": ("Edit", {"file_path": path, "old_string": move.two, "new_string": move.three}),
        }
        name, arguments = made[move.kind]
        return SpokenCall(name=name, arguments=json.dumps(arguments))


def _program(move):
    """A move as the JavaScript that Codex runs."""
    if move.kind == "shell":
        return f"text(await tools.exec_command({{cmd: {json.dumps(move.one)}}}))"
    if move.kind == "read":
        return f"text(await tools.exec_command({{cmd: {json.dumps(f'cat {move.one!r}')}}}))"
    lines = move.two.rstrip("\n").split("\n")
    if move.kind == "write":
        patch = ["*** Begin Patch", f"*** Add File: {move.one}", *[f"+{line}" for line in lines], "*** End Patch"]
    else:
        # A whole line is replaced: the fixtures have one with these words.
        text = FILES.get(move.one, "")
        old = next((line for line in text.split("\n") if move.two in line), f"    return {move.two}")
        new = old.replace(move.two, move.three)
        patch = ["*** Begin Patch", f"*** Update File: {move.one}", "@@", f"-{old}", f"+{new}", "*** End Patch"]
    joined = "\n".join(patch) + "\n"
    return f"text(await tools.apply_patch({json.dumps(joined)}))"


def _say(*calls):
    return Spoken(calls=calls, stop="calls")


def make_workspace(folder: Path) -> None:
    """Write the files of the fixture."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
