"""One virtual environment per framework, made from pinned requirements and kept until the pins change."""

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
OURS = "glidepath"
FRAMEWORKS = ("bare", OURS, "agent_framework", "agno", "langgraph", "openai_agents", "pydantic_ai", "strands")


def interpreter(cache: Path, framework: str) -> Path:
    """The Python of a framework's environment. It exists after `make_environment`."""
    return cache.absolute() / framework / "bin" / "python"


def make_environment(cache: Path, framework: str) -> Path:
    """Creates the environment of one framework unless it is there with the same pins."""
    pins = HERE / "requirements" / f"{framework}.txt"
    wanted = hashlib.sha256(f"{sys.version}\n{pins.read_text(encoding='utf-8')}".encode()).hexdigest()
    python = interpreter(cache, framework)
    stamp = cache / framework / "pins.sha256"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"{framework}: installing", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(cache / framework)], check=True)
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*install, "-r", str(pins)], check=True)
    if framework == OURS:
        subprocess.run([*install, "--no-deps", "-e", str(REPOSITORY)], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python
