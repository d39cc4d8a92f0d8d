"""G13: what `full` acknowledged survives a power cut on a simulated disk; after `sync` a session is at most shorter."""

import asyncio
import os
import shutil
import subprocess
import sys
import time

import pytest

from .power import WORKLOAD, Promises, cut_power, look

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is missing: sh scripts/install_test_programs.sh"
)


def cut(kind, durability, place, *, seeds, cuts, **options):
    return asyncio.run(cut_power(kind, durability, seeds=seeds, cuts=cuts, place=place, **options))


@needs_strace
@pytest.mark.process
def test_g13_a_power_cut_loses_nothing_that_full_acknowledged(tmp_path):
    harms, seen = cut("sqlite", "full", tmp_path, seeds=range(3), cuts=40)
    assert harms == []
    assert seen["cuts"] == 120
    assert seen["whole"] > 200  # sessions that were looked at


@needs_strace
@pytest.mark.process
def test_g13_a_power_cut_under_sync_leaves_every_session_whole_or_shorter(tmp_path):
    harms, seen = cut("sqlite", "sync", tmp_path, seeds=range(100, 102), cuts=40)
    assert harms == []
    assert seen["cuts"] == 80
    assert seen["whole"]
    assert seen["shorter"] + seen["missing"]  # something really was lost


@needs_strace
@pytest.mark.process
def test_a_store_that_does_not_sync_what_full_acknowledged_is_caught(tmp_path):
    """The planted defect: without it, nobody knows that the tests above can fail."""
    harms, seen = cut("forgetful", "full", tmp_path, seeds=range(200, 202), cuts=40)
    assert seen["harmed lost"] > 5
    assert any("acknowledged commits are lost" in harm for harm in harms)
    assert any("tokens were spent" in harm for harm in harms)


@needs_strace
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seed", range(300, 304))
def test_a_disk_that_lies_about_its_syncs_makes_nothing_up(tmp_path, seed):
    """Nothing can be kept on such a disk; but whatever is read is what was written, and damage is said."""
    harms, seen = cut("sqlite", "full", tmp_path, seeds=[seed], cuts=50, modes=("lying",))
    assert [harm for harm in harms if "was never written" in harm] == []
    assert seen["whole"]


@needs_strace
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("full_after", [5, 60, 150, 400])
def test_a_full_disk_loses_nothing_that_full_acknowledged_and_a_power_cut_on_it_neither(tmp_path, full_after):
    harms, seen = cut("sqlite", "full", tmp_path, seeds=[400], cuts=50, full_after=full_after)
    assert harms == []
    assert seen["whole"]


@needs_strace
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.process
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("durability", ["full", "sync"])
def test_g13_two_thousand_power_cuts(tmp_path, durability, part):
    first = 1000 + 100 * part
    harms, seen = cut("sqlite", durability, tmp_path, seeds=range(first, first + 4), cuts=50)
    assert harms == []
    assert seen["cuts"] == 200
    print(durability, dict(seen))


# --- a real file system ---------------------------------------------------------------------------------------------


def missing_for_a_real_disk():
    """What a loop-mounted file system needs and this machine lacks; None if nothing."""
    if sys.platform != "linux":
        return "a loop-mounted ext4 needs Linux"
    lacking = [name for name in ("mkfs.ext4", "mount", "umount", "losetup") if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} is missing: install e2fsprogs and mount"
    return None if os.geteuid() == 0 else "mounting an image needs root"


@pytest.fixture
def image(tmp_path):
    """An ext4 of its own: the file that is its block device, and the folder where it is mounted."""
    lacking = missing_for_a_real_disk()
    if lacking:
        pytest.skip(lacking)
    device, here, after = tmp_path / "device", tmp_path / "here", tmp_path / "after"
    for folder in (here, after):
        folder.mkdir()
    with device.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(device)], check=True)
    done = subprocess.run(["mount", "-o", "loop", str(device), str(here)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts no loop device: {done.stderr.strip()}")
    yield device, here, after
    for folder in (here, after):
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "how", "harmed"), [("sqlite", "full", False), ("sqlite", "closed", False), ("unsynced", "full", True)]
)
def test_g13_a_power_cut_on_a_real_file_system(image, tmp_path, kind, how, harmed):
    """The device is copied as it is, and the copy mounted: its journal is replayed, as after a reboot."""
    device, here, after = image
    marks, ready = tmp_path / "marks", tmp_path / "ready"
    durability = "full" if how == "full" else "sync"
    program = [sys.executable, str(WORKLOAD), kind, str(here), str(marks)]
    for seed in range(3):  # earlier lives, safely on the disk or not
        subprocess.run([*program, str(seed), "0", durability, "alone"], check=False, timeout=60)
    waiting = subprocess.Popen([*program, "9", "0", durability, "alone", how, str(ready)])
    try:
        while not ready.exists():
            assert waiting.poll() is None
            time.sleep(0.01)
        shutil.copy(device, tmp_path / "copy")
    finally:
        waiting.kill()
        waiting.wait()
    subprocess.run(["mount", "-o", "loop", str(tmp_path / "copy"), str(after)], check=True)
    promises = Promises(marks.read_text().splitlines())
    assert len(promises.commits) > 1
    wrong, _ = asyncio.run(look(kind, after, promises, "full"))
    assert bool(wrong) is harmed, wrong
