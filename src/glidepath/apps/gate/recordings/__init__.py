"""Recordings: what an agent and its models said to each other, byte for byte, and its replay without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

__all__: list[str] = []


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.gate.recordings.body_deltas import (
        Delta as Delta,
        DeltaReader as DeltaReader,
        DeltaWriter as DeltaWriter,
        count_common_prefix as count_common_prefix,
        count_common_suffix as count_common_suffix,
        pack as pack,
    )
    from glidepath.apps.gate.recordings.call_recorder import Recorder as Recorder
    from glidepath.apps.gate.recordings.differences import find_first as find_first
    from glidepath.apps.gate.recordings.isolation import (
        check_inside as check_inside,
        choose_environment as choose_environment,
        copy_home as copy_home,
        copy_workspace as copy_workspace,
        explain_no_sandbox as explain_no_sandbox,
        explain_own_sandbox as explain_own_sandbox,
        find_programs as find_programs,
    )
    from glidepath.apps.gate.recordings.matching import RecordedScript as RecordedScript
    from glidepath.apps.gate.recordings.player import Player as Player
    from glidepath.apps.gate.recordings.recording_terms import RecordingTerms as RecordingTerms
    from glidepath.apps.gate.recordings.replay_run import (
        ReplayFlight as ReplayFlight,
        ReplayTerms as ReplayTerms,
        replay_command as replay_command,
    )
    from glidepath.apps.gate.recordings.scrubbing import (
        find_secrets as find_secrets,
        scrub_body as scrub_body,
    )
    from glidepath.apps.gate.recordings.substitution import Substitution as Substitution
    from glidepath.apps.gate.recordings.tape_reader import (
        RecordedTape as RecordedTape,
        find_last_recorded as find_last_recorded,
        read_tape as read_tape,
    )
    from glidepath.apps.gate.recordings.volatile import (
        VOLATILE as VOLATILE,
        Normalizer as Normalizer,
        Place as Place,
        learn as learn,
        print_table as print_table,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        body_deltas=("Delta", "DeltaReader", "DeltaWriter", "count_common_prefix", "count_common_suffix", "pack"),
        call_recorder=("Recorder",),
        differences=("find_first",),
        isolation=(
            "check_inside",
            "choose_environment",
            "copy_home",
            "copy_workspace",
            "explain_no_sandbox",
            "explain_own_sandbox",
            "find_programs",
        ),
        matching=("RecordedScript",),
        player=("Player",),
        recording_terms=("RecordingTerms",),
        replay_run=("ReplayFlight", "ReplayTerms", "replay_command"),
        scrubbing=("find_secrets", "scrub_body"),
        substitution=("Substitution",),
        tape_reader=("RecordedTape", "find_last_recorded", "read_tape"),
        volatile=("VOLATILE", "Normalizer", "Place", "learn", "print_table"),
    )
