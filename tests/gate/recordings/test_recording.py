"""`--record`: the bytes that clients send and get, in their pieces, without a secret, beside the session."""

import asyncio
import base64
import json
import re
import stat
import zlib

import pytest
from tests.gate.foreign import KEY, LOOPS, in_real_time
from tests.gate.kept import names_in
from tests.gate.plain import Talk
from tests.gate.recordings.taped import NOWHERE, SESSION, record_behind, serving

from glidepath import ConfigurationError
from glidepath.apps.gate import ServedGate, read_config
from glidepath.apps.gate.recordings import RecordingTerms, find_secrets, read_tape, scrub_body
from glidepath.gate import Gate
from glidepath.sessions import (
    MemoryStore,
    RedactingStore,
    SqliteStore,
    each_session,
    export_journal,
    import_journal,
    is_recording,
    read_journal,
    refuse_foreign,
    refuse_foreign_entry,
    remove_sessions,
)
from glidepath.testing.upstream import ScriptedUpstream
from glidepath.values import StoreError

HEADERS = [(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01")]
SECRET = "sk-ant-api03-0123456789abcdef"


async def journals(store):
    """Every byte that a store has of the recordings."""
    found = b""
    async for entry in each_session(store, roots=False):
        if not is_recording(entry):
            continue
        found += b"".join(commit.body for commit in (await store.load(entry.session_id))[1])
    return found


def unpacked(data):
    """All that is in the journals, compressed or not."""
    packed = re.findall(rb'"(?:middle|reply)":"([A-Za-z0-9+/=]+)"', data)
    return b"".join([data, *[zlib.decompress(base64.b64decode(found)) for found in packed]])


@pytest.mark.parametrize("dialect", LOOPS)
@in_real_time
async def test_what_the_client_sent_and_got_is_recorded_byte_for_byte(dialect):
    store = MemoryStore()
    async with record_behind("honest", store) as flown:
        await LOOPS[dialect](flown.url, flown.key)
        sent = [call.body for call in flown.up.calls]
    tape = await read_tape(store, SESSION)
    assert len(tape.calls) == len(sent) == 4
    assert not tape.torn
    for call, body in zip(tape.calls, sent, strict=True):
        recorded = json.loads(tape.read_body(call))
        assert recorded["model"] == body["model"]
        assert recorded.get("messages", recorded.get("input")) == body.get("messages", body.get("input"))
        assert tape.read_reply(call)
    assert [call.began < call.ended for call in tape.calls] == [True] * 4


@in_real_time
async def test_a_stream_is_recorded_in_the_pieces_and_times_in_which_it_came():
    store = MemoryStore()
    async with record_behind("answer:tokens=60", store, scripted={"pace": 0.03}) as flown, Talk(flown.gate) as talk:
        body = json.dumps(
            {
                "model": "claude-sonnet-4-5",
                "max_tokens": 900,
                "stream": True,
                "messages": [{"role": "user", "content": "hi"}],
            }
        ).encode()
        talk.send(
            "/run-1/v1/messages",
            body,
            key=flown.key,
            headers=[(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01")],
        )
        head = await talk.read_head()
        pieces = [piece async for piece in talk.read_body(head)]
    (call,) = (await read_tape(store, SESSION)).calls
    tape = await read_tape(store, SESSION)
    assert tape.read_body(call) == body
    assert [size for _, size in call.chunks] == [len(piece) for piece in pieces]
    assert tape.read_reply(call) == b"".join(pieces)
    times = [at for at, _ in call.chunks]
    assert len(times) > 4
    assert times == sorted(times)
    assert times[-1] - times[0] >= 90


@in_real_time
async def test_nothing_is_recorded_that_nobody_asked_for():
    store = MemoryStore()
    async with record_behind("honest", store, record=False) as flown:
        await LOOPS["anthropic"](flown.url, flown.key)
    assert await names_in(store) == [SESSION]


@in_real_time
async def test_no_secret_is_recorded_whatever_brings_it():
    store = MemoryStore()
    keys = {
        "key": "sk-in-the-query-012345678",
        "cookie": "session-cookie-0123456789",
        "header": "x-own-secret-0123456789",
        "metadata": SECRET,
    }
    async with record_behind("answer", store) as flown, Talk(flown.gate) as talk:
        body = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 900,
            "metadata": {"user_id": f"ann {keys['metadata']}"},
            "messages": [
                {"role": "user", "content": f"my cookie is {keys['cookie']}, the gate's key {flown.key} and {KEY}"}
            ],
        }
        talk.send(
            f"/run-1/v1/messages?beta=true&key={keys['key']}&token={keys['header']}",
            json.dumps(body).encode(),
            key=flown.key,
            headers=[
                (b"content-type", b"application/json"),
                (b"anthropic-version", b"2023-06-01"),
                (b"cookie", keys["cookie"].encode()),
                (b"x-own-secret", keys["header"].encode()),
                (b"user-agent", f"claude-cli/1.0 {keys['metadata']}".encode()),
            ],
        )
        assert (await talk.read_reply()).status == 200
        gate_key = flown.key
    whole = unpacked(await journals(store))
    (call,) = (await read_tape(store, SESSION)).calls
    assert b"my cookie is ****" in (await read_tape(store, SESSION)).read_body(call)
    for secret in (*keys.values(), gate_key, KEY):
        assert secret.encode() not in whole.replace(b"x-own-secret", b"")
    assert call.query == "beta=true"
    assert {name for name, _ in call.headers} <= {"content-type", "user-agent", "anthropic-version"}


def test_what_looks_like_a_key_is_starred_where_a_body_says_who_asks_and_nowhere_else():
    body = json.dumps({"metadata": {"a": SECRET}, "messages": [{"content": "sk-example-of-a-key-in-a-text"}]}).encode()
    kept = scrub_body(body, ())
    assert SECRET.encode() not in kept
    assert len(kept) == len(body)
    assert b"sk-example-of-a-key-in-a-text" in kept


def test_the_credentials_of_a_request_are_starred_in_its_body():
    headers = [(b"authorization", b"Bearer token-0123456789"), (b"x-api-key", b"short")]
    assert (
        scrub_body(b'{"a": "token-0123456789 short"}', find_secrets(headers, b"")) == b'{"a": "**************** short"}'
    )


@in_real_time
async def test_a_store_that_redacts_says_that_its_recordings_cannot_be_replayed():
    with pytest.raises(ConfigurationError, match="redacts what it keeps, so its recordings cannot be replayed"):
        Gate(None, NOWHERE, store=RedactingStore(MemoryStore(), str.lower), record=True)


def test_recording_needs_a_store():
    with pytest.raises(ConfigurationError, match="sessions are not kept"):
        Gate(None, NOWHERE, record=True)


@in_real_time
async def test_a_recording_that_was_moved_into_a_store_that_redacts_is_gone_and_says_so():
    first, second = MemoryStore(), MemoryStore()
    async with record_behind("honest", first) as flown:
        await LOOPS["anthropic"](flown.url, flown.key, task="PRIVATE words")
    redacting = RedactingStore(second, lambda text: text.replace("PRIVATE", "***"))
    await import_journal(redacting, await export_journal(first, SESSION))
    assert b"PRIVATE" not in unpacked(await journals(second))
    with pytest.raises(ConfigurationError, match=r"copied into a store that redacts.*cannot be replayed"):
        await read_tape(second, SESSION)


@in_real_time
async def test_a_recording_belongs_to_its_session_it_is_exported_renamed_and_deleted_with_it(tmp_path):
    store, other = SqliteStore(tmp_path / "s.db"), MemoryStore()
    async with record_behind("honest", store) as flown:
        await LOOPS["anthropic"](flown.url, flown.key)
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("s.db*")} == {0o600}
    tape = await read_tape(store, SESSION)
    await import_journal(other, await export_journal(store, SESSION), session_id="elsewhere")
    moved = await read_tape(other, "elsewhere")
    assert [moved.read_body(call) for call in moved.calls] == [tape.read_body(call) for call in tape.calls]
    gone = await remove_sessions(store, [SESSION])
    assert len(gone) == 2
    assert await names_in(store) == []
    await store.close()


@in_real_time
async def test_a_recording_stops_at_its_largest_size_and_says_so_and_the_run_goes_on():
    store = MemoryStore()
    async with record_behind("honest:calls=12", store, record=RecordingTerms(largest=3_000)) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    assert flight.text.startswith("SCRIPTED-ANSWER after 12")
    tape = await read_tape(store, SESSION)
    assert 0 < len(tape.calls) < 13
    assert "largest size" in tape.torn
    assert "then no more: it has reached its largest size" in flown.gate.tap.describe()


@in_real_time
async def test_recordings_that_are_older_than_they_may_be_are_removed_and_sessions_stay():
    store = MemoryStore()
    async with record_behind("answer", store) as flown:
        await LOOPS["anthropic"](flown.url, flown.key)
    terms = RecordingTerms(oldest=0.001)
    async with record_behind("answer", store, line="run-2", record=terms) as flown:
        await LOOPS["anthropic"](flown.url, flown.key)
        await asyncio.sleep(0.05)
        await flown.gate.tap._expiring
    names = await names_in(store)
    assert [name for name in names if "/" not in name] == [SESSION, "gate:run-2"]
    assert not [name for name in names if name.startswith(f"{SESSION}/")]


class FullDisk(MemoryStore):
    """A store whose disk is full for recordings after so many commits."""

    left = 3

    def append(self, lease, commit, **options):
        if "/recording." in lease.session_id:
            self.left -= 1
            if self.left < 0:
                raise StoreError("the disk is full", kind="unavailable")
        return super().append(lease, commit, **options)


@in_real_time
async def test_a_disk_that_is_full_ends_the_recording_and_not_the_run():
    store = FullDisk()
    async with record_behind("honest", store) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    assert flight.text.startswith("SCRIPTED-ANSWER after 3")
    assert "disk is full" in flown.gate.tap.describe()
    tape = await read_tape(store, SESSION)
    assert len(tape.calls) == 2
    assert "breaks off after call 2" in tape.torn


@in_real_time
async def test_room_on_the_disk_is_left_for_the_journal_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("glidepath.apps.gate.recordings.tape_writer.LEAST_FREE", 1 << 60)
    store = SqliteStore(tmp_path / "s.db")
    async with record_behind("honest", store) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    assert flight.text.startswith("SCRIPTED-ANSWER")
    assert "bytes are free" in flown.gate.tap.describe()
    await store.close()


@in_real_time
async def test_a_recorder_that_breaks_down_does_not_touch_the_call(monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("glidepath.apps.gate.recordings.call_recorder.scrub_body", fail)
    store = MemoryStore()
    async with record_behind("honest", store) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    assert flight.text.startswith("SCRIPTED-ANSWER after 3")


@in_real_time
async def test_a_landing_is_recorded_as_the_client_got_it():
    store = MemoryStore()
    async with record_behind("loop", store, max_tokens=3_000) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    tape = await read_tape(store, SESSION)
    assert len(tape.calls) == flight.calls
    assert flight.text[:20].encode() in tape.read_reply(tape.calls[-1])


async def get(flown, path):
    async with Talk(flown.gate) as talk:
        talk.send(path, None, method="GET", key=flown.key, headers=[(b"anthropic-version", b"2023-06-01")])
        return await talk.read_reply()


@in_real_time
async def test_a_list_of_models_is_recorded_with_the_run_whose_path_it_has_also_before_its_first_call():
    store = MemoryStore()
    async with record_behind("answer", store) as flown:
        listed = await get(flown, "/run-1/v1/models")
        await get(flown, "/run-2/v1/models")
        await LOOPS["anthropic"](flown.url, flown.key)
        await get(flown, "/run-1/v1/models")
    tape = await read_tape(store, SESSION)
    assert [call.operation for call in tape.calls] == ["models", "generate", "models"]
    assert [call.path for call in tape.calls] == ["/v1/models", "/v1/messages", "/v1/models"]
    assert tape.read_reply(tape.calls[0]) == listed.body


@in_real_time
async def test_a_gate_of_a_file_records_when_its_file_says_so(tmp_path):
    async with ScriptedUpstream("honest") as up:
        said = {"upstreams": {"claude": {"dialect": "anthropic", "url": up.url}}, "gate": {"record": True}}
        store = SqliteStore(tmp_path / "s.db")
        served = ServedGate(read_config(said, {}, tmp_path), environ={}, tokens={"t" * 20: "run:ann"}, store=store)
        async with serving(served.application) as url:
            await LOOPS["anthropic"](f"{url}/one", "t" * 20)
        await served.close()
    store = SqliteStore(tmp_path / "s.db")
    names = await names_in(store)
    (session,) = [name for name in names if "/" not in name]
    assert len((await read_tape(store, session)).calls) == 4
    await store.close()


@in_real_time
async def test_a_reply_that_is_too_long_ends_the_recording_and_is_not_held(monkeypatch):
    monkeypatch.setattr("glidepath.apps.gate.recordings.call_recorder.LARGEST_BODY", 2_000)
    store = MemoryStore()
    async with record_behind("honest:tokens=900", store) as flown:
        flight = await LOOPS["anthropic"](flown.url, flown.key)
    assert len(flight.text) >= 3_600
    assert "a request or a reply has more than" in flown.gate.tap.describe()
    assert "it stops after call" in (await read_tape(store, SESSION)).torn


def test_a_gate_that_records_has_no_other_tap():
    with pytest.raises(ConfigurationError, match="leave out record or tap"):
        Gate(None, NOWHERE, store=MemoryStore(), record=True, tap=object())


@in_real_time
async def test_nobody_continues_a_recording_as_if_it_were_a_run():
    store = MemoryStore()
    async with record_behind("answer", store) as flown:
        await LOOPS["anthropic"](flown.url, flown.key)
    (name,) = [name for name in await names_in(store) if "/" in name]
    journal = await read_journal(store, name)
    for refuse in (lambda: refuse_foreign(journal.folded), lambda: refuse_foreign_entry(journal.entry)):
        with pytest.raises(ConfigurationError, match=f"is a recording.*glidepath replay {SESSION} -- COMMAND"):
            refuse()
