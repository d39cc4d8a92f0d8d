"""The simulated disk: what was synced is there after a power cut, and what was not can be lost in every way it has."""

import subprocess
import sys
from shutil import which

import pytest

from glidepath.errors import ConfigurationError
from glidepath.testing import PowerCut, SimulatedDisk
from glidepath.testing.disk import MODES

SEEDS = range(60)
needs_strace = pytest.mark.skipif(
    which("strace") is None, reason="strace is missing: sh scripts/install_test_programs.sh"
)


@pytest.fixture
def disk(tmp_path):
    return SimulatedDisk(tmp_path / "store", marks=tmp_path / "marks")


def left(disk, mode, at=None):
    """Everything that a cut may leave, over many seeds."""
    at = len(disk.operations) if at is None else at
    return [dict(disk.files(PowerCut(at=at, mode=mode, seed=seed))) for seed in SEEDS]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_synced_survives_every_cut(disk, mode):
    disk.create("a")
    disk.write("a", 0, b"one")
    disk.sync("a")
    disk.sync()
    disk.write("a", 0, b"two")
    assert {one["a"] for one in left(disk, mode, at=4)} == {b"one"}
    assert {one["a"] for one in left(disk, mode)} <= {b"one", b"two"}


def test_lost_keeps_nothing_that_was_not_synced(disk):
    disk.create("a")
    disk.write("a", 0, b"one")
    assert left(disk, "lost") == [{"a": b""}] * len(SEEDS)


def test_prefix_keeps_the_first_writes_of_each_file(disk):
    disk.create("a")
    for letter in b"abc":
        disk.append("a", bytes([letter]))
    assert {one["a"] for one in left(disk, "prefix")} == {b"", b"a", b"ab", b"abc"}


def test_reordered_can_keep_a_later_write_without_an_earlier_one(disk):
    disk.create("a")
    for letter in b"abc":
        disk.append("a", bytes([letter]))
    assert {b"\0b", b"\0\0c", b"a\0c"} < {one["a"] for one in left(disk, "reordered")}


def test_torn_loses_blocks_and_sectors_in_the_middle_of_one_write(disk):
    disk.create("a")
    disk.write("a", 0, b"x" * 16384)
    found = {one["a"] for one in left(disk, "torn")}
    assert any(one[:4096] == bytes(4096) and one[4096:8192] == b"x" * 4096 for one in found)
    assert any(one[4096:8192].count(0) not in (0, 4096) for one in found)  # less than a block: sectors
    assert all(set(one[start : start + 512]) in ({0}, {120}) for one in found for start in range(0, len(one), 512))


def test_a_lying_disk_may_have_synced_nothing_and_anything(disk):
    disk.create("a")
    disk.sync()
    for letter in b"ab":
        disk.append("a", bytes([letter]))
        disk.sync("a")
    found = {one.get("a") for one in left(disk, "lying")}
    assert {b"", b"a", b"ab", b"\0b"} <= found
    assert "lying" not in {cut.mode for cut in disk.cuts(100)}, "it has to be asked for"


def test_older_names_forgets_a_file_whose_folder_was_not_synced(disk):
    disk.create("a")
    disk.write("a", 0, b"one")
    disk.sync("a")  # its content, not its name
    assert {"a" in one for one in left(disk, "older_names")} == {True, False}
    disk.sync()
    assert {one.get("a") for one in left(disk, "older_names")} == {b"one"}


def test_older_names_brings_a_renamed_or_removed_file_back(disk):
    for name in ("a", "b", "c"):
        disk.create(name)
        disk.write(name, 0, name.encode())
        disk.sync(name)
    disk.sync()
    disk.rename("a", "b")
    disk.unlink("c")
    assert left(disk, "lost") == [{"b": b"a"}] * len(SEEDS)
    before = {"a": b"a", "b": b"b", "c": b"c"}
    found = left(disk, "older_names")
    assert [one for one in (before, {"b": b"a", "c": b"c"}, {"b": b"a"}) if one not in found] == []
    disk.sync()
    assert left(disk, "older_names") == [{"b": b"a"}] * len(SEEDS)


def test_files_in_a_folder_that_is_lost_are_lost(disk):
    disk.make_folder("in")
    disk.create("in/a")
    disk.sync("in/a")
    disk.sync("in")
    assert {tuple(one) for one in left(disk, "older_names")} == {(), ("in", "in/a")}
    disk.sync()
    assert {tuple(one) for one in left(disk, "older_names")} == {("in", "in/a")}
    disk.rename("in", "out")
    assert {tuple(one) for one in left(disk, "lost")} == {("out", "out/a")}


def test_a_sync_promises_nothing_about_a_write_that_came_while_it_worked(disk):
    disk.create("a")
    disk.append("a", b"1")
    began = len(disk.operations)
    disk.append("a", b"2")
    disk.sync("a", began=began)
    assert left(disk, "lost") == [{"a": b"1"}] * len(SEEDS)


def test_a_truncation_can_be_lost_and_kept(disk):
    disk.create("a")
    disk.write("a", 0, b"old")
    disk.sync("a")
    disk.truncate("a", 0)
    disk.write("a", 0, b"n")
    assert {one["a"] for one in left(disk, "reordered")} == {b"old", b"", b"nld", b"n"}
    disk.extend("a", 4)
    disk.sync_all()
    assert left(disk, "older_names") == [{"a": b"n\0\0\0"}] * len(SEEDS)


def test_a_mapped_file_holds_noise(disk):
    disk.create("a")
    disk.truncate("a", 8)
    disk.map("a")
    assert len({one["a"] for one in left(disk, "lost")}) > 1


def test_what_is_there_at_the_beginning_is_safe(tmp_path):
    (tmp_path / "store" / "in").mkdir(parents=True)
    (tmp_path / "store" / "in" / "a").write_bytes(b"old")
    disk = SimulatedDisk(tmp_path / "store")
    disk.write("in/a", 1, b"LD")
    left = disk.leave(PowerCut(at=1, mode="lost", seed=1), tmp_path / "left")
    assert (left / "in" / "a").read_bytes() == b"old"
    disk.sync("in/a")
    left = disk.leave(PowerCut(at=2, mode="lost", seed=1), tmp_path / "left")
    assert (left / "in" / "a").read_bytes() == b"oLD"


def test_cuts_come_from_the_seed_and_most_are_right_after_a_mark(disk):
    disk.create("a")
    for number in range(10):
        disk.append("a", b"x" * 10)
        disk.append("a", b"y" * 10)
        disk.mark(f"{number}")
    cuts = list(disk.cuts(100, seed=7))
    assert cuts == list(disk.cuts(100, seed=7)) != list(disk.cuts(100, seed=8))
    assert sum(cut.at > 0 and disk.operations[cut.at - 1].kind == "mark" for cut in cuts) > 50
    assert {cut.mode for cut in cuts} == set(MODES)
    assert eval(repr(cuts[0])) == cuts[0]  # it is printed as the program that makes it
    assert disk.files(cuts[3]) == disk.files(cuts[3])
    assert disk.marks(PowerCut(at=7, mode="lost", seed=0)) == ["0", "1"]


@pytest.mark.parametrize("mode", [*MODES, "lying"])
def test_a_cut_that_does_harm_is_shrunk_to_the_operations_that_matter(disk, mode):
    disk.create("a")
    disk.sync()
    for number in range(8):
        disk.append("a", b"x" * 600)
        disk.create(f"b{number}")
        disk.append(f"b{number}", b"y")
        disk.sync(f"b{number}")

    def is_harmed(cut):  # it was promised after the third round
        files = disk.files(cut)
        return cut.at >= 14 and not (files.get("a", b"").startswith(b"x" * 1800) and "b1" in files)

    cuts = [PowerCut(at=len(disk.operations), mode=mode, seed=seed) for seed in range(200)]
    found = next(cut for cut in cuts if is_harmed(cut))
    least = disk.shrink(found, is_harmed)
    assert is_harmed(least)
    assert 14 <= least.at <= found.at
    assert len(least.loses) == 1
    assert disk.operations[least.loses[0]].path in ("a", "b1")
    assert eval(repr(least)) == least
    assert not is_harmed(PowerCut(at=least.at, mode=mode, seed=least.seed, loses=()))


def test_what_is_spared_is_on_the_disk_and_everything_else_is_as_it_was(disk):
    disk.create("a")
    for letter in b"abcd":
        disk.append("a", bytes([letter]))
    for seed in SEEDS:
        whole = disk.files(PowerCut(at=5, mode="reordered", seed=seed))["a"].ljust(4, b"\0")
        spared = disk.files(PowerCut(at=5, mode="reordered", seed=seed, loses=(0, 1, 2, 4)))["a"].ljust(4, b"\0")
        assert spared == whole[:2] + b"c" + whole[3:]


def test_what_it_cannot_be_is_refused(disk, tmp_path):
    with pytest.raises(ConfigurationError, match="mode='gone' is not one of lost, prefix"):
        disk.files(PowerCut(at=0, mode="gone", seed=0))
    with pytest.raises(ConfigurationError, match="acknowledgements survive"):
        SimulatedDisk(tmp_path / "store", marks=tmp_path / "store" / "marks")


# --- recorded ------------------------------------------------------------------------------------------------------

STORE = """
import os, sys, threading
folder, marks, syncs = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
acknowledged = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
log = os.open(folder + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
if "folder" in syncs:
    place = os.open(folder, os.O_RDONLY)
    os.fsync(place)
def save(number):
    os.write(log, b"%d\\n" % number)
    if "file" in syncs:
        os.fdatasync(log)
    os.write(acknowledged, b"%d\\n" % number)
for number in range(5):
    save(number)
thread = threading.Thread(target=save, args=(5,))
thread.start()
thread.join()
"""


def lies(disk, place, seed=1):
    """Cuts after which something that was acknowledged is not there."""
    for cut in disk.cuts(100, seed=seed):
        log = disk.leave(cut, place) / "log"
        kept = log.read_bytes().split() if log.exists() else []
        if not {mark.encode() for mark in disk.marks(cut)} <= set(kept):
            yield cut


@needs_strace
@pytest.mark.process
@pytest.mark.parametrize(
    ("syncs", "caught"),
    [("file folder", set()), ("folder", set(MODES)), ("file", {"older_names"})],
    ids=["honest", "no fsync", "no fsync of the folder"],
)
def test_a_store_that_lies_about_its_syncs_is_caught(disk, tmp_path, syncs, caught):
    assert disk.record([sys.executable, "-c", STORE, str(disk.folder), str(disk.marks_file), syncs]).returncode == 0
    assert disk.marks() == ["0", "1", "2", "3", "4", "5"]
    assert {cut.mode for cut in lies(disk, tmp_path / "left")} == caught


EVERYTHING = """
import os, sys
folder = sys.argv[1]
os.makedirs(folder + "/in/deep")
with open(folder + "/a", "wb") as file:
    file.write(b"hello")
    file.flush()
    file.seek(1)
    file.write(b"E")
    file.truncate(4)
os.rename(folder + "/a", folder + "/b")
os.link(folder + "/b", folder + "/in/c")
os.chdir(folder)
place = os.open("in", os.O_RDONLY)
open("gone", "w").close()
os.unlink("gone")
os.rmdir("deep", dir_fd=place)
fd = os.open("pieces", os.O_CREAT | os.O_RDWR)
os.writev(fd, [b"one, ", b'"two"'])
os.pwrite(fd, b"O", 0)
if os.fork() == 0:
    os.write(fd, b"!")
    os._exit(0)
os.wait()
os.posix_fallocate(fd, 0, 14)
os.truncate("b", 3)
open("b", "r+b").close()
os.sync()
if "kill" in sys.argv:
    os.kill(os.getpid(), 9)
"""


@needs_strace
@pytest.mark.process
def test_a_recording_has_what_the_program_did(disk, tmp_path):
    assert disk.record([sys.executable, "-c", EVERYTHING, str(disk.folder)]).returncode == 0
    left = disk.leave(PowerCut(at=len(disk.operations), mode="lost", seed=0), tmp_path / "left")
    compared = subprocess.run(["diff", "-r", str(disk.folder), str(left)], capture_output=True, text=True, check=False)
    assert compared.stdout == compared.stderr == ""
    assert (left / "pieces").read_bytes() == b'One, "two"!\0\0\0'
    assert (left / "in" / "c").read_bytes() == b"hEl"


@needs_strace
@pytest.mark.process
def test_a_program_that_was_killed_is_recorded_up_to_there(disk):
    assert disk.record([sys.executable, "-c", EVERYTHING, str(disk.folder), "kill"]).returncode == -9
    assert disk.operations[-1].kind == "sync_all"


FILLS = """
import os, sys
fd = os.open(sys.argv[1] + "/a", os.O_CREAT | os.O_RDWR)
for number in range(10):
    try:
        os.pwrite(fd, b"x", number)
    except OSError as error:
        sys.exit(error.strerror)
"""


@needs_strace
@pytest.mark.process
def test_a_disk_is_full_after_so_many_writes(disk):
    disk.folder.mkdir()
    done = disk.record([sys.executable, "-c", FILLS, str(disk.folder)], full_after=4)
    assert done.returncode == 1
    assert "No space left" in done.stdout
    assert (disk.folder / "a").read_bytes() == b"xxxx"
    assert [one.offset for one in disk.operations if one.kind == "write"] == [0, 1, 2, 3]


@needs_strace
@pytest.mark.process
def test_what_the_model_lacks_is_an_error_and_not_a_hole(disk):
    program = "import os, sys; os.mkdir(sys.argv[1]); os.symlink('a', sys.argv[1] + '/b')"
    with pytest.raises(ConfigurationError, match="SimulatedDisk has no symlink"):
        disk.record([sys.executable, "-c", program, str(disk.folder)])


def test_without_strace_it_says_what_to_install(disk, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="install the package strace"):
        disk.record([sys.executable, "-c", ""])
