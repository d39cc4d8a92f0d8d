// One run: what it says, what it did, what it may still spend, and the controls.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { VNode } from "preact";
import { ApiError } from "../api";
import { Empty, Failed, Icon, Loading, StatePill, Tag } from "../components/bits";
import { PhaseTrack } from "../components/phase";
import { answerQuestion, approve, changeLimits, forkRun, killSwitch, landRun, resumeRun, steerRun, stopRun } from "../controls";
import { clock, count, duration, money, plainLine, plural } from "../format";
import { useKeys, type Key } from "../keys";
import { go, places } from "../router";
import { refreshApprovals } from "../store/approvals";
import { openRun, type RunStore } from "../store/run";
import { mayControl, mayDecide, mayKill, mayStop, now, offline } from "../store/session";
import { narrow } from "../theme";
import type { Detail, Pending } from "../types";
import { EventsTab } from "./events";
import { JournalTab } from "./journal";
import { Rail } from "./rail";
import { Replay } from "./replay";
import { TimelineTab } from "./timeline";
import { Transcript } from "./transcript";
import { Verdicts } from "./verdicts";

const TABS: [string, string][] = [["overview", "Overview"], ["transcript", "Transcript"], ["timeline", "Timeline"], ["verdicts", "Verdicts"], ["events", "Events"], ["journal", "Journal"]];

export function RunView({ id, tab }: { id: string; tab: string }): VNode {
  const store = useMemo(() => openRun(id), [id]);
  useEffect(() => () => store.close(), [store]);
  const detail = store.detail.value;
  if (!detail) return store.problem.value ? <Missing problem={store.problem.value} retry={() => store.retry()} /> : <Loading what="the run" />;
  return <Flight key={id} store={store} tab={tab} />;
}

function Missing({ problem, retry }: { problem: ApiError; retry: () => void }): VNode {
  if (problem.status === 404) return <Empty title="Run not found"><p>{problem.message}</p><p><a href={places.runs()}>Back to the list</a></p></Empty>;
  return <Failed message={problem.message} retry={retry} />;
}

function Flight({ store, tab }: { store: RunStore; tab: string }): VNode {
  const present = store.detail.value!;
  const run = store.shown.value ?? present;
  const wide = !narrow.value;
  const at = tab === "overview" && wide ? "transcript" : TABS.some(([name]) => name === tab) ? tab : "transcript";
  const gauge = useSignal<string | null>(null);
  const after = (): void => {
    void store.renew();
    void refreshApprovals();
  };
  const here = store.replay.value ? present : run; // what the list has heard since counts as well
  useKeys(() => [...controls(here, after).map(({ key, label, run: doing }) => ({ key, label, group: "Run", run: doing })), ...moves(store, present, at)]);
  const rail = <Rail store={store} run={run} gauge={gauge} after={after} />;
  return (
    <section class="flight" aria-label={run.title || "Run"}>
      <Head store={store} run={run} present={here} after={after} />
      <nav class="tabs" aria-label="Views of the run">
        {TABS.filter(([name]) => name !== "overview" || !wide).map(([name, label]) => (
          <a key={name} href={places.run(store.id, name === "transcript" ? undefined : name)} aria-current={at === name ? "page" : undefined}>{label}</a>
        ))}
      </nav>
      <div class="flight-body">
        <div class="flight-main">
          {at === "overview" && <div class="rail rail-tab">{rail}</div>}
          {at === "transcript" && <Transcript store={store} run={run} />}
          {at === "timeline" && <TimelineTab store={store} run={run} />}
          {at === "verdicts" && <Verdicts store={store} run={run} />}
          {at === "events" && <EventsTab store={store} />}
          {at === "journal" && <JournalTab id={store.id} sequence={present.sequence} />}
          {present.turn > 0 && (at === "transcript" || at === "overview") && <Replay store={store} turns={present.turn} />}
        </div>
        {wide && <aside class="rail" aria-label="Limits and needs" tabIndex={0}>{rail}</aside>}
      </div>
    </section>
  );
}

interface Control {
  key: string;
  label: string;
  icon: Parameters<typeof Icon>[0]["name"];
  run: () => void;
  tone?: string;
}

/** The controls that make sense for a run in this state. */
function controls(run: Detail, after: () => void): Control[] {
  const made: Control[] = [];
  const able = mayControl.peek();
  const stops = mayStop.peek();
  const going = run.state === "running" || run.state === "queued";
  if (run.pending.length && mayDecide.peek()) made.push(decision(run.pending[0]!, after));
  if (able && run.resumable && !run.pending.length) made.push({ key: "r", label: "Resume", icon: "resume", tone: "primary", run: () => resumeRun(run, after) });
  if (able && going && !run.foreign) made.push({ key: "s", label: "Steer", icon: "steer", run: () => steerRun(run) });
  if (stops && going) made.push({ key: "l", label: "Land", icon: "land", run: () => landRun(run) });
  if (able && (run.state !== "ended" || run.resumable)) made.push({ key: "m", label: "Limits", icon: "limits", run: () => changeLimits(run, after) });
  if (able && run.turn > 0) made.push({ key: "f", label: "Fork", icon: "fork", run: () => forkRun(run) });
  if (stops && (going || run.state === "paused")) made.push({ key: "x", label: "Stop", icon: "stop", tone: "danger-quiet", run: () => stopRun(run, after) });
  if (mayKill.peek() && run.state !== "ended") made.push({ key: "X", label: "Kill", icon: "kill", tone: "danger-quiet", run: () => killSwitch("run", true, run.run_id, after) });
  return made;
}

function decision(call: Pending, after: () => void): Control {
  return call.kind === "question"
    ? { key: "a", label: "Answer", icon: "check", tone: "primary", run: () => answerQuestion(call, after) }
    : { key: "a", label: "Approve", icon: "check", tone: "primary", run: () => approve(call, after) };
}

function moves(store: RunStore, run: Detail, at: string): Key[] {
  const turn = (by: number): void => {
    const here = store.replay.peek()?.turn ?? run.turn;
    const next = Math.max(0, here + by);
    void store.showTurn(next >= run.turn && by > 0 ? null : next);
  };
  const tabs = TABS.slice(1).map(([name]) => name);
  const tab = (by: number): void => go(places.run(store.id, tabs[(tabs.indexOf(at) + by + tabs.length) % tabs.length]));
  return [
    { key: "[", label: "one turn back", group: "Replay", run: () => turn(-1) },
    { key: "]", label: "one turn forward", group: "Replay", run: () => turn(1) },
    { key: ".", label: "next view", group: "Run", run: () => tab(1) },
    { key: ",", label: "previous view", group: "Run", run: () => tab(-1) },
    { key: "c", label: "compare", group: "Run", run: () => go(places.compare(run.run_id)) },
    { key: "Escape", label: "back", group: "Run", run: () => (store.replay.peek() ? void store.showTurn(null) : go(places.runs())) },
  ];
}

function Head({ store, run, present, after }: { store: RunStore; run: Detail; present: Detail; after: () => void }): VNode {
  const waiting = store.link.value;
  const end = run.ended ?? (run.state === "running" && !store.replay.value ? now.value : run.updated);
  return (
    <header class="flight-head">
      <div class="flight-id">
        {!offline.value && <a class="back" href={places.runs()}><Icon name="back" />Runs</a>}
        <h1 dir="auto">{run.title || run.task || run.run_id}</h1>
        <div class="flight-facts">
          <StatePill card={run} />
          {store.replay.value && <Tag tone="landing">replay</Tag>}
          {run.state === "lost" && <Tag tone="bad">owner gone, {run.resumable ? "resumable" : "not resumable"}</Tag>}
          <span>{run.agent}</span>
          <span class="num">turn {run.turn}</span>
          <span class="num">{plural(run.usage.total, "token")}</span>
          {run.cost !== null && <span class="num">{money(run.cost)}</span>}
          <span class="num">{duration(end - run.started)}</span>
          {run.parent && <a href={places.run(run.parent)}>parent</a>}
          {run.forked_from && <a href={places.run(run.forked_from.session)}>forked at turn {run.forked_from.turn}</a>}
        </div>
        {run.cause && <p class="flight-cause" dir="auto"><strong>{run.cause.source}</strong> {run.cause.reason}</p>}
        {run.state === "running" && run.last && <p class="flight-cause" dir="auto">{plainLine(run.last)}</p>}
      </div>
      <div class="flight-side">
        <PhaseTrack card={run} />
        <div class="controls" role="toolbar" aria-label="Controls">
          {controls(present, after).map((control) => (
            <button type="button" key={control.key} class={`button ${control.tone ?? ""}`} title={`${control.label} (${control.key})`} onClick={control.run}><Icon name={control.icon} />{control.label}</button>
          ))}
          {!mayControl.value && !mayStop.value && !mayDecide.value && !offline.value && <span class="muted small">Your token is view-only: it cannot control runs.</span>}
        </div>
      </div>
      {store.eventless.value && <p class="muted small">Another program ran this, so its events were not kept. This page shows its journal.</p>}
      {waiting.kind === "waiting" && (
        <p class="stale" role="status">Disconnected from this run. Showing event {count(run.sequence)}, from {clock(run.updated)}. <button type="button" class="button small" onClick={() => store.retry()}>Reconnect</button></p>
      )}
    </header>
  );
}
