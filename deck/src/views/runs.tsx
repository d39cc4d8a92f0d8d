// The list: every run, newest first, kept true by the feed.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty, Failed, Icon, Loading, StatePill, Tag, tone } from "../components/bits";
import { GaugeBar, tightest } from "../components/gauges";
import { PhaseTrack } from "../components/phase";
import { Virtual, type Scroller } from "../components/virtual";
import { actOnMany, answerQuestion, approve, landRun, newRun, resumeRun, steerRun, stopRun } from "../controls";
import { ago, amount, count, duration, gaugeName, money, plainLine, plural } from "../format";
import { useKeys } from "../keys";
import { go, places } from "../router";
import { refreshApprovals } from "../store/approvals";
import { card, excerpts, filter, listProblem, loading, loadMore, marked, order, pick, pickAll, picked, reload, searched, selected, setFilter } from "../store/runs";
import { info, mayControl, mayDecide, mayStart, mayStop, now } from "../store/session";
import { narrow } from "../theme";
import type { Card } from "../types";

const STATES: [string, string][] = [["", "All"], ["running", "Running"], ["paused", "Waiting"], ["lost", "Lost"], ["queued", "Queued"], ["ended", "Ended"]];
const OUTCOMES: [string, string][] = [["", "Any outcome"], ["failed", "Failed"], ["cut_off", "Cut off"], ["wrapped_up", "Landed"], ["cancelled", "Cancelled"], ["failed,cut_off,cancelled", "Not delivered"], ["done", "Done"]];
const TIMES: [string, string][] = [["", "Any time"], ["3600", "Last hour"], ["86400", "Last 24 hours"], ["604800", "Last 7 days"], ["between", "Between…"]];
const between = signal(false);

export function RunsView(): VNode {
  const list = useRef<Scroller>(null);
  const search = useRef<HTMLInputElement>(null);
  const chosen = (): Card | undefined => card(order.peek()[selected.peek()] ?? "")?.peek();
  const move = (by: number): void => {
    selected.value = Math.max(0, Math.min(order.peek().length - 1, selected.peek() + by));
    list.current?.show(selected.peek());
  };
  const live = (): boolean => chosen()?.state === "running";
  const stoppable = (): boolean => mayStop.peek() && live();
  useKeys(() => [
    { key: "j", label: "next run", group: "List", run: () => move(1) },
    { key: "k", label: "previous run", group: "List", run: () => move(-1) },
    { key: "Enter", label: "open the run", group: "List", run: () => chosen() && go(places.run(chosen()!.run_id)) },
    { key: "a", label: "approve, or the inbox", group: "List", run: () => void decideFirst(chosen()) },
    { key: "s", label: "steer", group: "List", when: () => mayControl.peek() && live() && !chosen()?.foreign, run: () => steerRun(chosen()!) },
    { key: "l", label: "land", group: "List", when: stoppable, run: () => landRun(chosen()!) },
    { key: "x", label: "stop", group: "List", when: stoppable, run: () => stopRun(chosen()!) },
    { key: "r", label: "resume", group: "List", when: () => mayControl.peek() && chosen()?.resumable === true, run: () => resumeRun(chosen()!) },
    { key: "c", label: "mark to compare", group: "List", run: () => chosen() && mark(chosen()!.run_id) },
    { key: "v", label: "select the run", group: "List", when: mayAct, run: () => chosen() && pick(chosen()!.run_id) },
    { key: "V", label: "select all, or none", group: "List", when: mayAct, run: () => (picked.peek().size ? clearPicked() : void pickAll()) },
    { key: "/", label: "search", group: "List", run: () => search.current?.focus() },
    { key: "n", label: "start a run", group: "List", when: () => mayStart.peek(), run: newRun },
  ]);
  useEffect(() => {
    if (!order.peek().length) void reload();
  }, []);
  const rows = order.value;
  return (
    <section class={mayStop.value || mayControl.value ? "runs pickable" : "runs"} aria-label="Runs">
      <div class="toolbar">
        <h1>Runs</h1>
        <div class="segments" role="group" aria-label="State">
          {STATES.map(([state, label]) => (
            <button type="button" key={state} class="segment" aria-pressed={(filter.value.state ?? "") === state} onClick={() => setFilter({ state })}>{label}</button>
          ))}
        </div>
        <Search box={search} />
        <select class="agent-filter" aria-label="Outcome" value={filter.value.outcome ?? ""} onChange={(event) => setFilter({ outcome: event.currentTarget.value })}>
          {OUTCOMES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
        </select>
        <TimeFilter />
        {(info.value?.agents.length ?? 0) > 1 && (
          <select class="agent-filter" aria-label="Agent" value={filter.value.agent ?? ""} onChange={(event) => setFilter({ agent: event.currentTarget.value })}>
            <option value="">All agents</option>
            {info.value?.agents.map((agent) => <option value={agent.name}>{agent.name}</option>)}
          </select>
        )}
        {filter.value.tag && <button type="button" class="button small" onClick={() => setFilter({ tag: "" })}>tag: {filter.value.tag} <Icon name="cross" size={12} /></button>}
        <span class="spring" />
        {filter.value.text && <span class="muted small num" role="status">{loading.value ? "searching, " : ""}{plural(searched.value, "transcript")} searched</span>}
        {marked.value.length === 2 && <a class="button" href={places.compare(marked.value[0], marked.value[1])}><Icon name="compare" />Compare 2</a>}
        {mayStart.value && (info.value?.agents.length ?? 0) > 0 && <button type="button" class="button primary" onClick={newRun}><Icon name="plus" />New run</button>}
      </div>
      <Picked />
      {listProblem.value && <Failed message={listProblem.value.message} retry={() => void reload()} />}
      {!rows.length && loading.value && !listProblem.value && <Loading what="runs" />}
      {!rows.length && !loading.value && !listProblem.value && <NoRuns />}
      {rows.length > 0 && (
        <>
          <div class="list-head" aria-hidden="true"><span>Run</span><span>Phase</span><span>Tightest limit</span><span class="right">Turn</span><span class="right">Tokens</span><span class="right">Cost</span><span class="right">Time</span></div>
          <Virtual count={rows.length} estimate={narrow.value ? 104 : 68} label="List of runs" handle={list} onNearEnd={() => void loadMore()} row={(index) => <RunRow key={rows[index]} id={rows[index]!} index={index} />} />
        </>
      )}
    </section>
  );
}

/** Decide about the first call that waits in this run; without one, show the inbox. */
async function decideFirst(run: Card | undefined): Promise<void> {
  const waiting = run?.pending_count && mayDecide.peek() ? await api.detail(run.run_id).catch(() => null) : null;
  const call = waiting?.pending[0];
  if (call) (call.kind === "question" ? answerQuestion : approve)(call, () => void refreshApprovals());
  else go(places.approvals());
}

const inTexts = signal(false);
let timer = 0;

function later(text: string): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => look(text.trim()), inTexts.peek() ? 400 : 180);
}

function look(text: string): void {
  setFilter(inTexts.peek() ? { q: "", text } : { q: text, text: "" });
}

function Search({ box }: { box: { current: HTMLInputElement | null } }): VNode {
  return (
    <div class="search-group">
      <label class="search"><Icon name="search" /><span class="sr">Search runs</span>
        <input ref={box} type="search" placeholder={inTexts.value ? "Search what was said" : "Search tasks, ids"} value={filter.value.text || filter.value.q || ""}
          onInput={(event) => later(event.currentTarget.value)}
          onKeyDown={(event) => { if (event.key === "Escape") event.currentTarget.blur(); }} />
      </label>
      <label class="in-texts"><input type="checkbox" checked={inTexts.value} onChange={(event) => {
        inTexts.value = event.currentTarget.checked;
        look(box.current?.value.trim() ?? "");
      }} /> in transcripts</label>
    </div>
  );
}

/** A time of this machine as the field has it; null where it is empty. */
function read(field: string): number | undefined {
  const at = new Date(field).getTime();
  return Number.isFinite(at) ? Math.floor(at / 1000) : undefined;
}

function TimeFilter(): VNode {
  const { last, since, until } = filter.value;
  return (
    <>
      <select class="agent-filter" aria-label="Time" value={between.value ? "between" : String(last ?? "")} onChange={(event) => {
        const value = event.currentTarget.value;
        between.value = value === "between";
        setFilter({ last: Number(value) || undefined, since: undefined, until: undefined });
      }}>
        {TIMES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
      </select>
      {between.value && (
        <span class="between">
          <input type="datetime-local" aria-label="From" defaultValue={since ? local(since) : ""} onChange={(event) => setFilter({ since: read(event.currentTarget.value) })} />
          <span class="muted">to</span>
          <input type="datetime-local" aria-label="To" defaultValue={until ? local(until) : ""} onChange={(event) => setFilter({ until: read(event.currentTarget.value) })} />
        </span>
      )}
    </>
  );
}

function local(epoch: number): string {
  const at = new Date(epoch * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const mayAct = (): boolean => mayStop.peek() || mayControl.peek();

function clearPicked(): void {
  picked.value = new Set();
}

/** What can be done to all runs that are picked. */
function Picked(): VNode | null {
  const chosen = picked.value;
  if (!chosen.size) return null;
  const runs = [...chosen].map((id) => card(id)?.value).filter((run) => run !== undefined);
  const going = runs.filter((run) => run.state === "running").map((run) => run.run_id);
  const resumable = runs.filter((run) => run.resumable && run.state !== "running" && !run.pending_count).map((run) => run.run_id);
  return (
    <div class="picked" role="toolbar" aria-label="Selected runs">
      <strong class="num">{plural(chosen.size, "run")} selected</strong>
      {mayStop.value && <button type="button" class="button small" disabled={!going.length} onClick={() => actOnMany("land", going, clearPicked)}><Icon name="land" />Land {going.length || ""}</button>}
      {mayStop.value && <button type="button" class="button small danger-quiet" disabled={!going.length} onClick={() => actOnMany("stop", going, clearPicked)}><Icon name="stop" />Stop {going.length || ""}</button>}
      {mayControl.value && <button type="button" class="button small" disabled={!resumable.length} onClick={() => actOnMany("resume", resumable, clearPicked)}><Icon name="resume" />Resume {resumable.length || ""}</button>}
      <span class="spring" />
      <button type="button" class="button small" onClick={() => void pickAll()}>Select all</button>
      <button type="button" class="button small" onClick={clearPicked}>Clear</button>
    </div>
  );
}

export function mark(id: string): void {
  const now = marked.peek();
  marked.value = now.includes(id) ? now.filter((each) => each !== id) : [...now, id].slice(-2);
}

function showAll(): void {
  between.value = false;
  inTexts.value = false;
  setFilter({ state: "", outcome: "", q: "", text: "", tag: "", agent: "", last: undefined, since: undefined, until: undefined });
}

function NoRuns(): VNode {
  const filtered = Object.values(filter.value).some(Boolean);
  if (filtered) {
    return <Empty title="No runs match this filter"><button type="button" class="button" onClick={showAll}>Show all runs</button></Empty>;
  }
  return <Empty title="No runs yet">{mayStart.value ? <p>Press <kbd>n</kbd> to start one, or send <code>POST /api/runs</code>.</p> : <p>Runs appear here as soon as they start.</p>}</Empty>;
}

function RunRow({ id, index }: { id: string; index: number }): VNode {
  const known = card(id);
  if (!known) return <div class="run-line" />;
  const run = known.value;
  const gauge = tightest(run.gauges);
  const isMarked = marked.value.includes(id);
  const chosen = selected.value === index;
  const found = excerpts.value.get(id);
  const isPicked = picked.value.has(id);
  return (
    <div class={`run-line edge-${tone(run)}${chosen ? " chosen" : ""}${isPicked ? " picked-line" : ""}`}>
      {(mayStop.value || mayControl.value) && <label class="run-pick"><input type="checkbox" checked={isPicked} onChange={() => pick(id)} /><span class="sr">Select {run.title || run.task || id}</span></label>}
    <a class="run-row" href={places.run(id)} data-run={id} data-sequence={run.sequence} aria-current={chosen ? "true" : undefined} onFocus={() => (selected.value = index)}>
      <span class="run-main">
        <span class="run-title">
          <StatePill card={run} />
          <strong dir="auto">{run.title || run.task || id}</strong>
          {run.pending_count > 0 && <Tag tone="warn">{plural(run.pending_count, "decision")} needed</Tag>}
          {run.guard && <Tag tone="warn" title={run.guard.reason}>{run.guard.period ? `repeats every ${run.guard.period}` : run.guard.guard}</Tag>}
          {isMarked && <Tag tone="live">compare</Tag>}
        </span>
        <span class="run-last"><span class="run-agent">{run.parent ? "↳ " : ""}{run.agent}</span>{run.tags.map((tag) => <Tag key={tag}>{tag}</Tag>)}<span class="run-now" dir="auto">{found ? <mark>{found}</mark> : run.state === "ended" && run.cause ? run.cause.reason : plainLine(run.last)}</span></span>
      </span>
      <span class="run-phase"><PhaseTrack card={run} small /></span>
      <span class="run-gauge">{gauge && (<><GaugeBar gauge={gauge} /><span class="small muted num">{gaugeName(gauge.kind)} {amount(gauge, gauge.used)} / {amount(gauge, gauge.limit ?? 0)}</span></>)}</span>
      <span class="num right run-turn"><span class="cell-name">turn </span>{run.turn}</span>
      <span class="num right run-tokens">{count(run.usage.total)}<span class="cell-name">{run.usage.total === 1 ? " token" : " tokens"}</span></span>
      <span class="num right run-cost">{run.cost === null ? "–" : money(run.cost)}</span>
      <span class="num right run-time">{run.ended === null && run.state === "running" ? duration(now.value - run.started) : run.ended ? <>{duration(run.ended - run.started)}<span class="muted small when"> {ago(now.value - run.ended)}</span></> : ago(now.value - run.updated)}</span>
    </a>
    </div>
  );
}
