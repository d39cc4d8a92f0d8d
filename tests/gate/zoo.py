"""The harness of bench/gate for tests: its modules, and agents that skip their test where they are not installed."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "bench" / "gate"
NAMES = ("table", "install", "flight", "bare", "observe", "agents", "fly", "replay_tasks", "replays")


def load_zoo() -> SimpleNamespace:
    """The modules of the harness, which import each other by plain names; no other test sees those."""
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    sys.path.insert(0, str(FOLDER))
    try:
        found: dict[str, ModuleType] = {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
    return SimpleNamespace(**found)


ZOO = load_zoo()


def need_agent(name: str) -> None:
    """Skip the test unless the agent's program is installed with its pins; `make test` installs the slice's."""
    program = ZOO.table.AGENTS[name].program
    if not ZOO.install.is_installed(program):
        pytest.skip(f"{program} is not installed: python bench/gate/agents.py install {program}")
