// What constraints, guards and gates decided, in order, with the repeating period marked.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VNode } from "preact";
import { api, NEWEST } from "../api";
import { Empty, Failed, Loading, Tag } from "../components/bits";
import { summary, VERDICT_KINDS, verdictWord } from "../components/eventline";
import { duration } from "../format";
import { repeating } from "../period";
import type { RunStore } from "../store/run";
import type { Detail, Json, RunEvent } from "../types";

const MOST = 500;

export function Verdicts({ store, run }: { store: RunStore; run: Detail }): VNode {
  const found = useSignal<RunEvent[] | null>(null);
  const failed = useSignal(false);
  const load = async (): Promise<void> => {
    const page = await api.events(store.id, { kind: VERDICT_KINDS.join(","), before: NEWEST, limit: MOST }).catch(() => null);
    failed.value = page === null && !store.eventless.peek();
    found.value = page?.events ?? [];
  };
  const { turn, phase } = store.detail.value ?? run;
  useEffect(() => void load(), [turn, phase, store.detail.value?.state]);
  if (failed.value) return <Failed message="The verdicts cannot be read." retry={() => void load()} />;
  if (!found.value) return <Loading what="verdicts" />;
  const until = store.replay.value ? run.sequence : Number.POSITIVE_INFINITY;
  const shown = found.value.filter((event) => event.sequence <= until);
  if (!shown.length) return <div class="scroll"><Empty title="No verdicts"><p>No constraint, guard or gate has had to act.</p></Empty></div>;
  return (
    <div class="scroll verdicts" tabIndex={0} role="region" aria-label="Verdicts">
      <ol>
        {shown.map((event) => <VerdictRow key={event.sequence} event={event} started={run.started} store={store} />)}
      </ol>
    </div>
  );
}

function VerdictRow({ event, started, store }: { event: RunEvent; started: number; store: RunStore }): VNode {
  const { word, tone } = verdictWord(event);
  const source = event["constraint"] ?? event["guard"] ?? event["source"] ?? event["winner"] ?? event["target"] ?? event["plugin"] ?? "";
  const reason = event.event === "NoticeSent" ? event["text"] : event["reason"];
  return (
    <li class={`verdict tone-${tone}`} data-kind={event.event}>
      <span class="num muted">#{event.sequence}</span>
      <span class="num muted">+{duration(event.time - started)}</span>
      <div>
        <p class="verdict-head"><Tag tone={tone}>{word}</Tag><strong>{String(source) || event.event}</strong>{event["checkpoint"] ? <span class="muted">at {String(event["checkpoint"]).replaceAll("_", " ")}</span> : null}</p>
        <p class="verdict-text">{typeof reason === "string" && reason ? reason : summary(event)}</p>
        {Array.isArray(event["tools"]) && event["tools"].length > 0 && <p class="small muted">tools: {event["tools"].map(String).join(", ")}</p>}
        {event.event === "GuardTripped" && <Laps store={store} event={event} known={typeof event["period"] === "number" ? event["period"] : null} />}
      </div>
    </li>
  );
}

const CALLS = 24;

/** The values of a call's arguments, each short: enough to tell calls apart. */
function values(given: Json | undefined): string {
  if (given === null || typeof given !== "object" || Array.isArray(given)) return "";
  return Object.values(given).map((value) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return text.length > 26 ? `${text.slice(0, 10)}…${text.slice(-13)}` : text;
  }).join(", ");
}

/** The calls before a guard acted; those that repeat stand in brackets. */
function Laps({ store, event, known }: { store: RunStore; event: RunEvent; known: number | null }): VNode | null {
  const calls = useSignal<{ text: string; signature: string }[]>([]);
  useEffect(() => {
    void api.events(store.id, { kind: "ToolStarted", before: event.sequence, limit: CALLS }).then((page) => {
      calls.value = page.events.map((call) => {
        const given = JSON.stringify(call["arguments"] ?? {});
        return { text: `${String(call["tool_name"])}(${values(call["arguments"])})`, signature: `${String(call["tool_name"])} ${given}` };
      });
    }).catch(() => undefined);
  }, [event.sequence]);
  const signatures = calls.value.map((call) => call.signature);
  const found = repeating(signatures) ?? repeating(signatures, known);
  if (!found) return null;
  const lead = calls.value.slice(Math.max(0, found.start - 2), found.start);
  const laps = Array.from({ length: found.laps }, (_, lap) => calls.value.slice(found.start + lap * found.period, found.start + (lap + 1) * found.period));
  return (
    <div class="laps" data-period={found.period} data-laps={found.laps}>
      <p class="small"><strong>Period {found.period}</strong>, seen {found.laps} times:</p>
      <div class="lap-row">
        {lead.map((call, place) => <code class="call" key={place}>{call.text}</code>)}
        {laps.map((lap, place) => <span class="lap" key={place} aria-label={`lap ${place + 1}`}>{lap.map((call, at) => <code class="call" key={at}>{call.text}</code>)}</span>)}
      </div>
    </div>
  );
}
