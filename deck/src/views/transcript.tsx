// What was said and done, with the message being written at the end.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty, Icon, Tag } from "../components/bits";
import { LiveRow, MessageRow } from "../components/message";
import { Virtual, type Scroller } from "../components/virtual";
import { forkRun } from "../controls";
import { useKeys } from "../keys";
import { repeating } from "../period";
import type { RunStore } from "../store/run";
import { mayControl } from "../store/session";
import type { Detail, Message, RunEvent, ToolCall } from "../types";

const LOOK_BACK = 40;

export function Transcript({ store, run }: { store: RunStore; run: Detail }): VNode {
  const away = useSignal(false);
  const chosen = useSignal(-1);
  const list = useRef<Scroller>(null);
  const replay = store.replay.value;
  const { messages } = store;
  messages.version.value;
  const until = replay?.moment?.messages;
  const shown = until === undefined ? messages.total.value : Math.min(until, messages.total.value);
  const live = replay === null ? store.attempt.value : null;
  const follow = run.state === "running" && replay === null;
  const laps = useComputed(() => repeated(store));
  const move = (by: number): void => {
    chosen.value = Math.max(0, Math.min(shown - 1, chosen.peek() + by));
    list.current?.show(chosen.peek());
  };
  useKeys(() => [
    { key: "j", label: "next message", group: "Transcript", run: () => move(1) },
    { key: "k", label: "previous message", group: "Transcript", run: () => move(-1) },
    { key: "G", label: "latest message", group: "Transcript", run: () => list.current?.toEnd() },
  ]);
  useEffect(() => {
    if (replay) list.current?.show(Math.max(0, shown - 1));
  }, [replay?.turn, shown]);
  if (!shown && !live) return <div class="scroll"><Empty title={run.state === "queued" ? "The run is queued" : "No messages yet"} /></div>;
  return (
    <div class="scroll transcript">
      <Virtual count={shown + (live ? 1 : 0)} estimate={120} label="Transcript" follow={follow} handle={list} onAway={(far) => (away.value = far)}
        row={(index) => (index >= shown && live ? <LiveRow attempt={live} /> : <Line store={store} run={run} index={index} chosen={chosen.value === index} laps={laps.value} />)} />
      {away.value && follow && <button type="button" class="button to-end" onClick={() => list.current?.toEnd()}><Icon name="down" />Latest</button>}
    </div>
  );
}

function Line({ store, run, index, chosen, laps }: { store: RunStore; run: Detail; index: number; chosen: boolean; laps: Set<string> }): VNode {
  const message = store.messages.get(index);
  if (!message) return <div class="message skeleton" aria-busy="true"><span /><span /></div>;
  const before = index > 0 ? store.messages.get(index - 1) : undefined;
  const opens = message.turn > 0 && (!before || before.turn !== message.turn);
  return (
    <div class={chosen ? "line chosen" : "line"}>
      {opens && (
        <div class="turn-mark"><span class="num">Turn {message.turn}</span>
          <button type="button" class="link" onClick={() => void store.showTurn(message.turn)}>replay to here</button>
          {mayControl.value && <button type="button" class="link" onClick={() => forkRun(run, message.turn)}>fork from here</button>}
        </div>
      )}
      {opens && store.discarded.value.get(message.turn)?.map((event) => <Discarded key={event.sequence} id={store.id} event={event} />)}
      <MessageRow message={message} call={callOf(store, message, index)} repeats={message.call_id ? laps.has(message.call_id) : false} />
    </div>
  );
}

const PIECES = 500;

/** An attempt that does not count; what it had streamed is fetched when somebody wants to see it. */
function Discarded({ id, event }: { id: string; event: RunEvent }): VNode {
  const text = useSignal<string | null>(null);
  const read = async (): Promise<void> => {
    const page = await api.events(id, { kind: "StreamStarted,StreamChunk", before: event.sequence, limit: PIECES }).catch(() => null);
    const events = page?.events ?? [];
    const from = events.findLastIndex((each) => each.event === "StreamStarted");
    text.value = events.slice(from + 1).map((each) => String(each["text"] ?? "")).join("");
  };
  return (
    <details class="message mark-discarded attempt" onToggle={() => { if (text.peek() === null) void read(); }}>
      <summary><Tag tone="bad">discarded</Tag> attempt {String(event["attempt"])}: {String(event["reason"] ?? "")}</summary>
      <p class="md">{text.value === null ? "…" : text.value || "Nothing had been streamed."}</p>
    </details>
  );
}

/** The call that a result answers: it is in a message shortly before. */
function callOf(store: RunStore, message: Message, index: number): ToolCall | null {
  if (!message.call_id) return null;
  for (let at = index - 1; at >= Math.max(0, index - LOOK_BACK); at -= 1) {
    if (!store.messages.has(at)) break;
    const found = store.messages.get(at)?.tool_calls?.find((call) => call.id === message.call_id);
    if (found) return found;
  }
  return null;
}

/** The calls of the laps a guard saw, so that their cards can be marked. */
function repeated(store: RunStore): Set<string> {
  const guard = store.detail.value?.guard;
  store.messages.version.value;
  if (!guard || !/repet|loop|stuck/i.test(`${guard.guard} ${guard.reason}`)) return new Set();
  const calls: ToolCall[] = [];
  for (let at = Math.max(0, store.messages.total.value - 100); at < store.messages.total.value; at += 1) {
    if (store.messages.has(at)) calls.push(...(store.messages.get(at)?.tool_calls ?? []));
  }
  const found = repeating(calls.map((call) => `${call.name} ${JSON.stringify(call.arguments)}`), guard.period);
  return new Set(found ? calls.slice(found.start).map((call) => call.id) : []);
}
