// Beside the transcript: what needs a person, the limits, the tree, the children, what was left behind.

import type { Signal } from "@preact/signals";
import type { ComponentChildren, VNode } from "preact";
import { safeAddress } from "../components/address";
import { Arguments, Icon, StatePill, Tag } from "../components/bits";
import { BudgetTree } from "../components/budget";
import { GaugePanel } from "../components/gauges";
import { PendingCard } from "../components/pending";
import { settle } from "../controls";
import { ago, clock, line, moment, money } from "../format";
import { places } from "../router";
import type { RunStore } from "../store/run";
import { mayControl, now } from "../store/session";
import type { Detail, Json, UnknownEffect } from "../types";

interface Props {
  store: RunStore;
  run: Detail;
  gauge: Signal<string | null>;
  after: () => void;
}

function Section({ title, tone, children }: { title: string; tone?: string; children: ComponentChildren }): VNode {
  return <section class={tone ? `rail-section tone-${tone}` : "rail-section"}><h2>{title}</h2>{children}</section>;
}

export function Rail({ store, run, gauge, after }: Props): VNode {
  const past = store.replay.value !== null;
  const time = past ? run.updated : now.value;
  const samples = past ? store.samples.value.filter((each) => each.time <= time) : store.samples.value;
  return (
    <>
      {past && <p class="past" role="status">State at the end of turn {store.replay.value?.turn}.</p>}
      {run.pending.length > 0 && <Section title="Waiting for you" tone="warn">{run.pending.map((call) => <PendingCard key={call.id} call={call} where={false} after={after} />)}</Section>}
      {run.unknown_effects.length > 0 && <Section title="Unknown effects" tone="bad">{run.unknown_effects.map((effect) => <Unknown key={effect.call_id} run={run} effect={effect} after={after} />)}</Section>}
      {run.guard && <Section title="Guard" tone="warn"><p><strong>{run.guard.guard}</strong> {run.guard.period ? <Tag tone="warn">period {run.guard.period}</Tag> : null}</p><p class="muted">{run.guard.reason}</p><p><a href={places.run(run.run_id, "verdicts")}>See the verdicts</a></p></Section>}
      <Section title="Limits"><GaugePanel card={run} samples={samples} now={time} chosen={gauge.value} choose={(kind) => (gauge.value = kind)} /></Section>
      {run.budget && (run.budget.children.length > 0 || run.budget.kind !== "run") && <Section title="Budget tree"><BudgetTree node={run.budget} here={run.run_id} /></Section>}
      {run.children.length > 0 && <Section title="Children"><ul class="child-list">{run.children.map((child) => <li key={child.run_id}><StatePill card={child} /><a href={places.run(child.run_id)}>{line(child.title || child.task || child.agent, 60)}</a><span class="muted num">{child.cost === null ? "" : money(child.cost)}</span></li>)}</ul></Section>}
      {run.abandoned.length > 0 && <Section title="Abandoned work" tone="bad"><p class="muted">This work ignored its cancellation and may still be running.</p><ul class="plain-list">{run.abandoned.map((each) => <li key={said(each)}>{said(each)}</li>)}</ul></Section>}
      {run.notices.length > 0 && <Section title="Notices"><ul class="plain-list">{run.notices.map((each, place) => <li key={place}>{said(each)}</li>)}</ul></Section>}
      {(run.controls?.length ?? 0) > 0 && <Section title="Actions by people"><ul class="plain-list" data-controls>{run.controls?.map((each, place) => <li key={place}><strong>{each.action}</strong> by {each.who}{each.reason && <>: {each.reason}</>} <span class="muted num">{clock(each.time)}</span></li>)}</ul></Section>}
      <Section title="Run"><Facts run={run} /></Section>
    </>
  );
}

function said(value: Json): string {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return String(value["text"] ?? value["reason"] ?? value["name"] ?? JSON.stringify(value));
  return String(value);
}

function Unknown({ run, effect, after }: { run: Detail; effect: UnknownEffect; after: () => void }): VNode {
  return (
    <article class="pending" data-effect={effect.call_id}>
      <header class="pending-head"><Icon name="alert" /><code class="tool-name">{effect.tool}</code><span class="spring" />{effect.since !== null && <span class="muted num">{ago(now.value - effect.since)}</span>}</header>
      <p class="pending-reason">The process died while this call was under way. Nobody knows whether it happened.</p>
      <Arguments value={effect.arguments} />
      <div class="pending-actions">
        <button type="button" class="button" disabled={!mayControl.value} onClick={() => settle(run, effect, "done", after)}>It happened</button>
        <button type="button" class="button" disabled={!mayControl.value} onClick={() => settle(run, effect, "not_done", after)}>It did not</button>
      </div>
    </article>
  );
}

function Facts({ run }: { run: Detail }): VNode {
  const rows: [string, ComponentChildren][] = [
    ["Run", <span class="mono">{run.run_id}</span>],
    ["Session", <span class="mono">{run.session_id}</span>],
    ["Started", moment(run.started)],
    ["Owner", run.owner ?? (run.state === "lost" ? "gone" : "none")],
    ["Tags", run.tags.length ? run.tags.map((tag) => <Tag key={tag}>{tag}</Tag>) : "none"],
    ["Tokens", `${run.usage.input.toLocaleString("en-US")} in, ${run.usage.output.toLocaleString("en-US")} out`],
  ];
  return (
    <>
      <dl class="facts">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {run.trace && safeAddress(run.trace) && <p><a href={run.trace} target="_blank" rel="noopener noreferrer" data-trace>Open the trace</a></p>}
      <p><a href={places.compare(run.run_id)}>Compare with another run</a></p>
    </>
  );
}
