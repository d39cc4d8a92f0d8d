// Every event, however many: pages are fetched as they come into view.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty } from "../components/bits";
import { EVENT_KINDS, family, summary } from "../components/eventline";
import { Virtual, type Scroller } from "../components/virtual";
import { count, duration, plural } from "../format";
import { useKeys } from "../keys";
import type { RunStore } from "../store/run";
import type { RunEvent } from "../types";

const MOST_JSON = 20_000;

export function EventsTab({ store }: { store: RunStore }): VNode {
  const kind = useSignal("");
  const chosen = useSignal(-1);
  const opened = useSignal<RunEvent | null>(null);
  const list = useRef<Scroller>(null);
  const some = useSignal<RunEvent[]>([]);
  store.events.version.value;
  const total = kind.value ? some.value.length : store.events.total.value;
  const event = (index: number): RunEvent | undefined => (kind.value ? some.value[index] : store.events.get(index));
  const pick = (index: number): void => {
    chosen.value = Math.max(0, Math.min(total - 1, index));
    opened.value = event(chosen.value) ?? null;
    list.current?.show(chosen.value);
  };
  useKeys(() => [
    { key: "j", label: "next event", group: "Events", run: () => pick(chosen.peek() + 1) },
    { key: "k", label: "previous event", group: "Events", run: () => pick(chosen.peek() - 1) },
    { key: "G", label: "latest event", group: "Events", run: () => list.current?.toEnd() },
  ]);
  const more = useMemo(() => ({ busy: false, done: false }), [kind.value]);
  const load = async (): Promise<void> => {
    if (!kind.value || more.busy || more.done) return;
    more.busy = true;
    const page = await api.events(store.id, { kind: kind.value, after: some.peek().at(-1)?.sequence ?? 0, limit: 200 }).catch(() => null);
    more.busy = false;
    more.done = !page || page.events.length < 200;
    if (page) some.value = [...some.peek(), ...page.events];
  };
  useEffect(() => {
    some.value = [];
    chosen.value = -1;
    void load();
  }, [kind.value]);
  const started = store.detail.value?.started ?? 0;
  const follow = !kind.value && store.detail.value?.state === "running";
  return (
    <div class="scroll events">
      <div class="subbar">
        <label>Kind <select value={kind.value} onChange={(change) => (kind.value = change.currentTarget.value)}><option value="">all</option>{EVENT_KINDS.map((each) => <option key={each}>{each}</option>)}</select></label>
        <span class="muted num">{kind.value ? `${count(total)} shown` : plural(total, "event")}</span>
      </div>
      {total === 0 ? <Empty title="No events" /> : (
        <Virtual key={kind.value} count={total} estimate={30} label="Events" follow={follow} handle={list} onNearEnd={() => void load()}
          row={(index) => <EventRow event={event(index)} started={started} chosen={chosen.value === index} pick={() => pick(index)} />} />
      )}
      {opened.value && (
        <div class="event-detail">
          <div class="subbar"><strong>{opened.value.event}</strong><span class="muted num">sequence {opened.value.sequence}</span><span class="spring" /><button type="button" class="button small" onClick={() => (opened.value = null)}>Close</button></div>
          <pre class="code" tabIndex={0} aria-label="The event as JSON">{JSON.stringify(opened.value, null, 2).slice(0, MOST_JSON)}</pre>
        </div>
      )}
    </div>
  );
}

function EventRow({ event, started, chosen, pick }: { event: RunEvent | undefined; started: number; chosen: boolean; pick: () => void }): VNode {
  if (!event) return <div class="event-row skeleton"><span /></div>;
  return (
    <button type="button" class={`event-row family-${family(event.event)}${chosen ? " chosen" : ""}`} onClick={pick} aria-pressed={chosen}>
      <span class="num event-seq">{event.sequence}</span>
      <span class="num event-time">+{duration(event.time - started)}</span>
      <span class="event-kind"><i class="dot" aria-hidden="true" />{event.event}</span>
      <span class="event-line">{summary(event)}</span>
    </button>
  );
}
