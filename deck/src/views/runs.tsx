// The list: every run, newest first, kept true by the feed.

import { useEffect, useRef } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty, Failed, Icon, Loading, StatePill, Tag, tone } from "../components/bits";
import { GaugeBar, tightest } from "../components/gauges";
import { PhaseTrack } from "../components/phase";
import { Virtual, type Scroller } from "../components/virtual";
import { answerQuestion, approve, landRun, newRun, resumeRun, steerRun, stopRun } from "../controls";
import { ago, amount, count, duration, gaugeName, money, plainLine, plural } from "../format";
import { useKeys } from "../keys";
import { go, places } from "../router";
import { refreshApprovals } from "../store/approvals";
import { card, filter, listProblem, loading, loadMore, marked, order, reload, selected, setFilter } from "../store/runs";
import { info, mayControl, mayDecide, mayStart, now } from "../store/session";
import { narrow } from "../theme";
import type { Card } from "../types";

const STATES: [string, string][] = [["", "All"], ["running", "Running"], ["paused", "Waiting"], ["lost", "Lost"], ["queued", "Queued"], ["ended", "Ended"]];

export function RunsView(): VNode {
  const list = useRef<Scroller>(null);
  const search = useRef<HTMLInputElement>(null);
  const chosen = (): Card | undefined => card(order.peek()[selected.peek()] ?? "")?.peek();
  const move = (by: number): void => {
    selected.value = Math.max(0, Math.min(order.peek().length - 1, selected.peek() + by));
    list.current?.show(selected.peek());
  };
  const live = (): boolean => mayControl.peek() && chosen()?.state === "running";
  useKeys(() => [
    { key: "j", label: "next run", group: "List", run: () => move(1) },
    { key: "k", label: "previous run", group: "List", run: () => move(-1) },
    { key: "Enter", label: "open the run", group: "List", run: () => chosen() && go(places.run(chosen()!.run_id)) },
    { key: "a", label: "approve, or the inbox", group: "List", run: () => void decideFirst(chosen()) },
    { key: "s", label: "steer", group: "List", when: () => live() && !chosen()?.foreign, run: () => steerRun(chosen()!) },
    { key: "l", label: "land", group: "List", when: live, run: () => landRun(chosen()!) },
    { key: "x", label: "stop", group: "List", when: live, run: () => stopRun(chosen()!) },
    { key: "r", label: "resume", group: "List", when: () => mayControl.peek() && chosen()?.resumable === true, run: () => resumeRun(chosen()!) },
    { key: "c", label: "mark to compare", group: "List", run: () => chosen() && mark(chosen()!.run_id) },
    { key: "/", label: "search", group: "List", run: () => search.current?.focus() },
    { key: "n", label: "start a run", group: "List", when: () => mayStart.peek(), run: newRun },
  ]);
  useEffect(() => {
    if (!order.peek().length) void reload();
  }, []);
  const rows = order.value;
  return (
    <section class="runs" aria-label="Runs">
      <div class="toolbar">
        <h1>Runs</h1>
        <div class="segments" role="group" aria-label="State">
          {STATES.map(([state, label]) => (
            <button type="button" key={state} class="segment" aria-pressed={(filter.value.state ?? "") === state} onClick={() => setFilter({ state })}>{label}</button>
          ))}
        </div>
        <label class="search"><Icon name="search" /><span class="sr">Search runs</span>
          <input ref={search} type="search" placeholder="Search tasks, agents, tags" value={filter.value.q ?? ""}
            onInput={(event) => later(event.currentTarget.value)}
            onKeyDown={(event) => { if (event.key === "Escape") event.currentTarget.blur(); }} />
        </label>
        {(info.value?.agents.length ?? 0) > 1 && (
          <select class="agent-filter" aria-label="Agent" value={filter.value.agent ?? ""} onChange={(event) => setFilter({ agent: event.currentTarget.value })}>
            <option value="">All agents</option>
            {info.value?.agents.map((agent) => <option value={agent.name}>{agent.name}</option>)}
          </select>
        )}
        {filter.value.tag && <button type="button" class="button small" onClick={() => setFilter({ tag: "" })}>tag: {filter.value.tag} <Icon name="cross" size={12} /></button>}
        <span class="spring" />
        {marked.value.length === 2 && <a class="button" href={places.compare(marked.value[0], marked.value[1])}><Icon name="compare" />Compare 2</a>}
        {mayStart.value && (info.value?.agents.length ?? 0) > 0 && <button type="button" class="button primary" onClick={newRun}><Icon name="plus" />New run</button>}
      </div>
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

let timer = 0;

function later(text: string): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => setFilter({ q: text.trim() }), 180);
}

export function mark(id: string): void {
  const now = marked.peek();
  marked.value = now.includes(id) ? now.filter((each) => each !== id) : [...now, id].slice(-2);
}

function NoRuns(): VNode {
  const filtered = Object.values(filter.value).some(Boolean);
  if (filtered) {
    return <Empty title="No runs match this filter"><button type="button" class="button" onClick={() => setFilter({ state: "", q: "", tag: "", agent: "" })}>Show all runs</button></Empty>;
  }
  return <Empty title="No runs yet">{mayStart.value ? <p>Press <kbd>n</kbd> to start one, or send <code>POST /api/runs</code>.</p> : <p>Runs appear here as soon as they start.</p>}</Empty>;
}

function RunRow({ id, index }: { id: string; index: number }): VNode {
  const signal = card(id);
  if (!signal) return <div class="run-row" />;
  const run = signal.value;
  const gauge = tightest(run.gauges);
  const isMarked = marked.value.includes(id);
  const chosen = selected.value === index;
  return (
    <a class={`run-row edge-${tone(run)}${chosen ? " chosen" : ""}`} href={places.run(id)} data-run={id} data-sequence={run.sequence} aria-current={chosen ? "true" : undefined} onFocus={() => (selected.value = index)}>
      <span class="run-main">
        <span class="run-title">
          <StatePill card={run} />
          <strong>{run.title || run.task || id}</strong>
          {run.pending_count > 0 && <Tag tone="warn">{plural(run.pending_count, "decision")} needed</Tag>}
          {run.guard && <Tag tone="warn" title={run.guard.reason}>{run.guard.period ? `repeats every ${run.guard.period}` : run.guard.guard}</Tag>}
          {isMarked && <Tag tone="live">compare</Tag>}
        </span>
        <span class="run-last"><span class="run-agent">{run.parent ? "↳ " : ""}{run.agent}</span>{run.tags.map((tag) => <Tag key={tag}>{tag}</Tag>)}<span class="run-now">{run.state === "ended" && run.cause ? run.cause.reason : plainLine(run.last)}</span></span>
      </span>
      <span class="run-phase"><PhaseTrack card={run} small /></span>
      <span class="run-gauge">{gauge && (<><GaugeBar gauge={gauge} /><span class="small muted num">{gaugeName(gauge.kind)} {amount(gauge, gauge.used)} / {amount(gauge, gauge.limit ?? 0)}</span></>)}</span>
      <span class="num right run-turn"><span class="cell-name">turn </span>{run.turn}</span>
      <span class="num right run-tokens">{count(run.usage.total)}<span class="cell-name">{run.usage.total === 1 ? " token" : " tokens"}</span></span>
      <span class="num right run-cost">{run.cost === null ? "–" : money(run.cost)}</span>
      <span class="num right run-time">{run.ended === null && run.state === "running" ? duration(now.value - run.started) : run.ended ? <>{duration(run.ended - run.started)}<span class="muted small when"> {ago(now.value - run.ended)}</span></> : ago(now.value - run.updated)}</span>
    </a>
  );
}
