// What took how long: model calls, tools, waits and children as bars over time.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty, Failed, Icon, Loading, Tag } from "../components/bits";
import { Virtual, type Scroller } from "../components/virtual";
import { count, duration, money, plural } from "../format";
import { useKeys } from "../keys";
import { places } from "../router";
import { Paged } from "../store/paged";
import type { RunStore } from "../store/run";
import { now } from "../store/session";
import type { Detail, Span } from "../types";
import { showRequest } from "./request";

const KINDS: [Span["kind"], string][] = [["model", "model"], ["tool", "tools"], ["child", "children"], ["wait", "waits"]];
const FEW = 40; // spans that fit one axis without becoming hairs

export function TimelineTab({ store, run }: { store: RunStore; run: Detail }): VNode {
  const order = useSignal<"time" | "longest">("time");
  const whole = useSignal(false);
  const view = useSignal<[number, number]>([0, 0]);
  const seconds = useSignal<{ [kind: string]: number }>({});
  const list = useRef<Scroller>(null);
  const chosen = useSignal(-1);
  const by = order.value;
  const spans = useMemo(() => new Paged<Span>(async (start, limit) => {
    const page = await api.timeline(store.id, start, limit, by);
    seconds.value = page.seconds;
    return { items: page.spans, total: page.total };
  }, 200), [store.id, by]);
  const moved = store.events.total.value;
  useEffect(() => {
    const timer = window.setTimeout(() => void spans.grow(), spans.total.peek() ? 700 : 0);
    return () => clearTimeout(timer);
  }, [spans, moved]);
  const total = spans.total.value;
  const pick = (index: number): void => {
    chosen.value = Math.max(0, Math.min(total - 1, index));
    list.current?.show(chosen.value);
  };
  useKeys(() => [
    { key: "j", label: "next step", group: "Timeline", run: () => pick(chosen.peek() + 1) },
    { key: "k", label: "previous step", group: "Timeline", run: () => pick(chosen.peek() - 1) },
    { key: "o", label: "in order, or the longest first", group: "Timeline", run: () => (order.value = order.peek() === "time" ? "longest" : "time") },
    { key: "Enter", label: "the request of a model call", group: "Timeline", when: () => spans.get(chosen.peek())?.kind === "model", run: () => void showRequest(store.id, spans.get(chosen.peek())!) },
  ]);
  const version = spans.version.value;
  if (spans.failed.value && !total) return <Failed message="The timeline cannot be read." retry={() => void spans.grow()} />;
  if (!version) return <Loading what="the timeline" />;
  if (!total) return <Empty title="Nothing has happened yet" />;
  const end = run.ended ?? (run.state === "running" ? now.value : run.updated);
  const everything: [number, number] = [run.started, Math.max(end, run.started + 0.001)];
  const range = by === "longest" || whole.value || total <= FEW ? everything : inView(spans, view.value) ?? everything;
  return (
    <div class="scroll timeline">
      <div class="subbar">
        <div class="segments" role="group" aria-label="Order">
          <button type="button" class="segment" aria-pressed={by === "time"} onClick={() => (order.value = "time")}>In order</button>
          <button type="button" class="segment" aria-pressed={by === "longest"} onClick={() => (order.value = "longest")}>Longest first</button>
        </div>
        {by === "time" && total > FEW && <label class="in-texts"><input type="checkbox" checked={whole.value} onChange={(event) => (whole.value = event.currentTarget.checked)} /> whole run on the axis</label>}
        <span class="muted num">{plural(total, "step")}</span>
      </div>
      <dl class="spent" aria-label="Time by kind">
        {KINDS.filter(([kind]) => seconds.value[kind] !== undefined).map(([kind, label]) => <div key={kind} class={`span-${kind}`}><dt><i class="swatch" />{label}</dt><dd class="num">{duration(seconds.value[kind] ?? 0)}</dd></div>)}
      </dl>
      <div class="span-axis num muted" aria-hidden="true"><span>+{duration(range[0] - run.started)}</span><span>+{duration((range[0] + range[1]) / 2 - run.started)}</span><span>+{duration(range[1] - run.started)}</span></div>
      <Virtual key={by} count={total} estimate={34} label="Timeline" handle={list} follow={run.state === "running" && by === "time"} onView={(from, to) => (view.value = [from, to])}
        row={(index) => <Row span={spans.get(index)} range={range} end={end} started={run.started} chosen={chosen.value === index} choose={() => (chosen.value = index)} id={store.id} />} />
    </div>
  );
}

/** The time that the rows in view cover. */
function inView(spans: Paged<Span>, [from, to]: [number, number]): [number, number] | null {
  let start = Number.POSITIVE_INFINITY;
  let end = 0;
  for (let index = from; index < to; index += 1) {
    const span = spans.has(index) ? spans.get(index) : undefined;
    if (!span) continue;
    start = Math.min(start, span.started);
    end = Math.max(end, span.ended ?? span.started);
  }
  return end > start ? [start, end] : null;
}

interface RowProps {
  span: Span | undefined;
  range: [number, number];
  end: number;
  started: number;
  chosen: boolean;
  choose: () => void;
  id: string;
}

function Row({ span, range, end, started, chosen, choose, id }: RowProps): VNode {
  if (!span) return <div class="span-row skeleton"><span /></div>;
  const [from, to] = range;
  const stop = span.ended ?? end;
  const at = (time: number): number => Math.max(0, Math.min(100, ((time - from) / (to - from)) * 100));
  const left = at(span.started);
  const width = Math.max(0.3, at(stop) - left);
  const took = duration(Math.max(0, stop - span.started));
  const open = span.kind === "model";
  const title = [span.name, span.attempt && span.attempt > 1 ? `attempt ${span.attempt}` : "", span.note, `from +${duration(span.started - started)}`, took].filter(Boolean).join(", ");
  return (
    <div class={`span-row span-${span.kind}${span.failed ? " span-failed" : ""}${chosen ? " chosen" : ""}`} data-kind={span.kind} data-span={span.sequence} onClick={choose} title={title}>
      <span class="num muted span-turn">{span.turn ? span.turn : ""}</span>
      <span class="span-name">
        <Icon name={span.kind === "tool" ? "tool" : span.kind === "child" ? "child" : span.kind === "wait" ? "pause" : "steer"} size={13} />
        {span.child ? <a href={places.run(span.child, "timeline")}>{span.name}</a> : open
          ? <button type="button" class="link" title="Show the exact request" onClick={() => void showRequest(id, span)}>{span.name}</button>
          : <span class="span-label">{span.name}</span>}
        {span.landing && <Tag tone="landing">landing</Tag>}
        {span.failed && <Tag tone="bad">{span.kind === "model" ? "discarded" : "error"}</Tag>}
        {span.note && span.kind === "wait" && <span class="muted small span-note">{span.note}</span>}
      </span>
      <span class="span-track"><span class={span.ended === undefined || span.ended === null ? "span-bar going" : "span-bar"} style={{ left: `${left}%`, width: `${Math.min(width, 100 - left)}%` }} /></span>
      <span class="num right span-took">{took}</span>
      <span class="num right muted span-cost">{span.kind === "model" && (span.input || span.output) ? `${count(span.input ?? 0)} → ${count(span.output ?? 0)}` : ""}{span.cost ? ` ${money(span.cost)}` : ""}</span>
    </div>
  );
}
