// Small parts used everywhere.

import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import { word } from "../format";
import type { Card, Json, RunState } from "../types";

const ICONS = {
  land: "M3 5h4c5 0 5 8 10 8h4M3 19h18",
  stop: "M7 7h10v10H7z",
  steer: "M4 12h13M12 6l6 6-6 6",
  limits: "M4 18a8 8 0 1 1 16 0M12 18l4-6",
  fork: "M7 4v6c0 4 10 2 10 8v2M7 10v10M4 7l3-3 3 3M14 17l3 3 3-3",
  resume: "M7 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  kill: "M12 3v9M6 6a8.5 8.5 0 1 0 12 0",
  check: "M5 12l5 5 9-10",
  cross: "M6 6l12 12M18 6L6 18",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  tool: "M14 7a4 4 0 0 0-5 5l-6 6 3 3 6-6a4 4 0 0 0 5-5l-3 3-3-3z",
  child: "M6 4v8a4 4 0 0 0 4 4h8M15 12l4 4-4 4",
  moon: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z",
  sun: "M12 4V2M12 22v-2M4 12H2M22 12h-2M6 6L5 5M19 19l-1-1M6 18l-1 1M19 5l-1 1M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM16 16l4 4",
  down: "M6 9l6 6 6-6",
  plus: "M12 5v14M5 12h14",
  compare: "M4 5h7v14H4zM13 5h7v14h-7z",
  alert: "M12 4l9 16H3zM12 10v4M12 17v.5",
  back: "M14 6l-6 6 6 6",
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): VNode {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

const STATE_WORDS: Record<RunState, string> = { queued: "queued", running: "running", paused: "waiting for you", ended: "ended", lost: "lost" };
const BUSY_WORDS: Record<string, string> = { waiting_for_tool: "in a tool", recovering: "retrying" };
const OUTCOME_WORDS: Record<string, string> = { done: "done", wrapped_up: "wrapped up", cut_off: "cut off", failed: "failed", cancelled: "cancelled", paused: "paused" };
const OUTCOME_TONES: Record<string, string> = { done: "good", wrapped_up: "good", cut_off: "warn", failed: "bad", cancelled: "plain" };

/** The tone that goes with where a run stands: used for the pill and the row's edge. */
export function tone(card: Pick<Card, "state" | "outcome" | "phase">): string {
  if (card.state === "running") return card.phase === "landing" ? "landing" : card.phase === "notice" ? "warn" : "live";
  if (card.state === "paused") return "warn";
  if (card.state === "lost") return "bad";
  if (card.state === "ended") return OUTCOME_TONES[card.outcome ?? ""] ?? "plain";
  return "plain";
}

export function stateWord(card: Pick<Card, "state" | "agent_state" | "outcome">): string {
  if (card.state === "running") return BUSY_WORDS[card.agent_state ?? ""] ?? STATE_WORDS.running;
  return card.state === "ended" && card.outcome ? (OUTCOME_WORDS[card.outcome] ?? word(card.outcome)) : STATE_WORDS[card.state];
}

export function StatePill({ card }: { card: Pick<Card, "state" | "agent_state" | "outcome" | "phase"> }): VNode {
  return <span class={`pill tone-${tone(card)}`} data-state={card.state} data-agent-state={card.agent_state}><i class="dot" aria-hidden="true" />{stateWord(card)}</span>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): VNode {
  return (
    <div class="empty">
      <svg width="120" height="44" viewBox="0 0 120 44" fill="none" aria-hidden="true"><path d="M4 10h30c30 0 30 24 62 24h20" stroke="currentColor" stroke-width="2" stroke-dasharray="2 6" stroke-linecap="round" /><path d="M4 40h112" stroke="currentColor" stroke-width="1" opacity=".5" /></svg>
      <p class="empty-title">{title}</p>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function Loading({ what }: { what: string }): VNode {
  return <div class="loading" role="status"><span class="spinner" aria-hidden="true" />Loading {what}…</div>;
}

export function Failed({ message, retry }: { message: string; retry?: () => void }): VNode {
  return (
    <div class="failed" role="alert">
      <Icon name="alert" /><span>{message}</span>
      {retry && <button type="button" class="button small" onClick={retry}>Try again</button>}
    </div>
  );
}

const MOST_TEXT = 4000;

/** A text that may be very long: the beginning, and the rest when asked for. */
export function LongText({ text, render }: { text: string; render: (text: string) => ComponentChildren }): VNode {
  const [whole, setWhole] = useState(false);
  if (text.length <= MOST_TEXT || whole) return <>{render(text)}</>;
  return (
    <>
      {render(text.slice(0, MOST_TEXT))}
      <button type="button" class="button small" onClick={() => setWhole(true)}>Show all {Math.ceil(text.length / 1000)} kB</button>
    </>
  );
}

export function pretty(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Exact arguments, one a row; nothing is shortened where a person has to decide. */
export function Arguments({ value }: { value: Json }): VNode {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return <pre class="code wrap" tabIndex={0}>{pretty(value)}</pre>;
  const rows = Object.entries(value);
  if (!rows.length) return <p class="muted small">no arguments</p>;
  return (
    <dl class="arguments">
      {rows.map(([name, each]) => (
        <div class="argument" key={name}>
          <dt>{name}</dt>
          <dd>{typeof each === "string" ? <span class="string" dir="auto">{each === "" ? <i class="muted">empty text</i> : each}</span> : <code>{pretty(each)}</code>}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Tag({ children, tone: shade = "plain", title }: { children: ComponentChildren; tone?: string; title?: string }): VNode {
  return <span class={`tag tone-${shade}`} title={title}>{children}</span>;
}
