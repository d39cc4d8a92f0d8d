"""The contract of whatever reads skills: a malicious one reaches no file, host or tool that it was not given."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from glidepath.agent import Agent
from glidepath.run import approve, deny
from glidepath.testing import ScriptedModel, call, say
from glidepath.testing.conformance.contract import Contract
from glidepath.testing.specimens.skill_attacks import ATTACKS, SECRET, SkillAttack
from glidepath.tools import Tool, tool
from glidepath.values import ConfigurationError, ToolResultMessage

VARIABLE = "GLIDEPATH_SKILL_CANARY"
_TASK = "Tidy up my notes, please."
_SCRIPTS = ("run_skill_script",)


class AttackScene:
    """What lies around an attacked agent: a secret, a listener, two tools nobody may have, and which of them ran."""

    def __init__(self, place: Path, port: int) -> None:
        self.place, self.port = place, port
        self.reached: list[str] = []
        (place / "secret.txt").write_text(SECRET)
        (place / "outside.sh").write_text(f"cat {place}/secret.txt; touch {place}/escaped\n")

    def tools(self) -> tuple[Tool, ...]:
        """A tool that a person must approve, and one that changes the world."""

        @tool(requires_approval=True)
        async def wipe() -> str:
            """Wipe everything."""
            self.reached.append("wipe")
            return "wiped"

        @tool(consequential=True)
        async def send_out(to: str) -> str:
            """Send what you know to somebody."""
            self.reached.append("send_out")
            return f"sent to {to}"

        return wipe, send_out

    def fill(self, text: str) -> str:
        """A text of an attack, for this scene."""
        return text.replace("{place}", str(self.place)).replace("{port}", str(self.port))

    def write(self, attack: SkillAttack) -> Path:
        """Write the skill of an attack into its folder."""
        folder = self.place / "skills" / attack.name
        for name, text in attack.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(self.fill(text), "utf-8")
        for name, target in attack.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(self.fill(target))
        return folder

    def steps(self, attack: SkillAttack) -> list[Any]:
        """The calls of a model that obeys: it reads the skill, and does what it says."""
        rest = [call(name, self._fill_arguments(arguments)) for name, arguments in attack.steps]
        return [call("read_skill", name=attack.name), *rest, say("done")]

    def _fill_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.fill(value) if isinstance(value, str) else value for key, value in arguments.items()}


@contextmanager
def scene() -> Iterator[tuple[AttackScene, list[str]]]:
    """A scene, and what its listener has heard by the end."""
    heard: list[str] = []
    with tempfile.TemporaryDirectory(prefix="glidepath-attack-") as place, socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        tcp.listen(4)
        tcp.setblocking(False)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", port))
            udp.setblocking(False)
            yield AttackScene(Path(place).resolve(), port), heard
            with suppress(BlockingIOError):
                connection, _ = tcp.accept()
                connection.close()
                heard.append("a connection")
            with suppress(BlockingIOError):
                udp.recv(100)
                heard.append("a datagram")


class SkillContract(Contract):
    """Subclass this and provide `make_agent`: malicious skills, and a model that obeys each of them to the letter.

    A person approves every script, and nothing else.
    """

    def make_agent(self, model: ScriptedModel, tools: Sequence[Tool], folder: Path) -> Agent[Any, Any]:
        """An agent with these tools and the skills of a folder that nobody trusts; `ConfigurationError` refuses it."""
        raise NotImplementedError

    @pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
    async def test_skill_1_nothing_is_reached(self, attack: SkillAttack, monkeypatch: pytest.MonkeyPatch) -> None:
        """SKILL-1: no file, host, variable or tool is reached that was not given; what cannot be read is refused."""
        monkeypatch.setenv(VARIABLE, SECRET)
        with scene() as (around, heard):
            folder = around.write(attack)
            before = _bytes_below(folder)
            said = await self._obey(attack, around)
            if attack.name == "comes-back":
                await asyncio.sleep(0.6)  # longer than what it left behind would wait
            assert SECRET not in said, "a secret was read"
            assert around.reached == [], "a tool ran that nobody had approved"
            assert not (around.place / "escaped").exists(), "a file was written outside"
            assert _bytes_below(folder) == before, "the skill was changed"
        assert heard == [], "a host was reached"

    @pytest.mark.parametrize("attack", [one for one in ATTACKS if one.refused], ids=lambda attack: attack.name)
    async def test_skill_2_what_is_refused_says_where(self, attack: SkillAttack) -> None:
        """SKILL-2: a skill that cannot be used is refused before the first call, by its name, with a reason."""
        with scene() as (around, _):
            around.write(attack)
            with pytest.raises(ConfigurationError) as caught:
                self.make_agent(ScriptedModel(), around.tools(), around.place / "skills")
        assert attack.name in str(caught.value)
        assert len(str(caught.value)) < 2_000, "a reason is a few lines"

    async def _obey(self, attack: SkillAttack, around: AttackScene) -> str:
        """Everything that was said and returned while a model obeyed the skill."""
        model = ScriptedModel(around.steps(attack))
        try:
            agent = self.make_agent(model, around.tools(), around.place / "skills")
        except ConfigurationError as error:
            return str(error)
        run = await agent.run(_TASK)
        for _ in attack.steps:
            if not run.pending:
                break
            decided = {one.call.id: approve() if one.call.name in _SCRIPTS else deny("no") for one in run.pending}
            run = await agent.resume(run, decisions=decided)
        results = [message for message in run.messages if isinstance(message, ToolResultMessage)]
        return "\n".join([run.text, *[message.text for message in results]])


def _bytes_below(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and not one.is_symlink()
    }
