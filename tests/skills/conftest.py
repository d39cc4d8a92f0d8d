"""Skills and agents, written into folders."""

import pytest

FRONT = "---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"


def write_skill(folder, name="pdf", *, description="Fill in PDF forms.", more="", body="Do it well.", **files):
    """A folder with a SKILL.md, and the files beside it: `scripts__run_py=...` is scripts/run.py."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    text = FRONT.format(name=name, description=description, more=more, body=body)
    (place / "SKILL.md").write_text(text, "utf-8")
    for path, content in files.items():
        inner = place / path.replace("__", "/").replace("_", ".")
        inner.parent.mkdir(parents=True, exist_ok=True)
        inner.write_bytes(content) if isinstance(content, bytes) else inner.write_text(content, "utf-8")
    return place


def write_agent(folder, name="reviewer", *, more="", body="You review."):
    """An agent's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(FRONT.format(name=name, description=f"The {name}.", more=more, body=body), "utf-8")
    return path


@pytest.fixture
def skill(tmp_path):
    return lambda *args, **named: write_skill(tmp_path / "skills", *args, **named)
