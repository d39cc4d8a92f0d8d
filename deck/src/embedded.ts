// An exported run: `glidepath deck export` puts what the page would ask for into the page itself.

import { ApiError } from "./errors";
import type { UsagePoint, Detail, Info, Json, JsonObject, Message, RunEvent, Span } from "./types";

interface Exported {
  info?: Partial<Info>;
  exported?: number;
  run: Detail;
  events: RunEvent[];
  messages: Message[];
  journal?: JsonObject[];
  turns?: { [turn: string]: JsonObject };
  burn?: UsagePoint[];
  timeline?: { spans: Span[]; seconds: JsonObject };
}

type Query = Record<string, string | number | null | undefined>;

export class Embedded {
  constructor(readonly data: Exported) {}

  answer(path: string, query: Query): unknown {
    const { run, messages } = this.data;
    if (path === "api/info") return { version: "", role: "view", agents: [], store: "export", demo: false, now: 0, max_runs: null, ...this.data.info };
    if (path === "api/runs") return { runs: [run], cursor: null };
    if (path === "api/approvals") return { approvals: [] };
    if (path === "api/budgets") return { roots: run.budget ? [run.budget] : [] };
    if (path === "api/evals") return { evals: [] };
    if (path === "api/fleet") return { workers: [], queue: { waiting: 0, running: 0 }, breakers: [], rates: [], kill: { active: false, reason: "", switches: [] } };
    if (path.endsWith("/events")) return this.#events(query);
    if (path.endsWith("/messages")) return { messages: slice(messages, query), total: messages.length };
    if (path.endsWith("/journal")) return { records: slice(this.data.journal ?? [], query), total: this.data.journal?.length ?? 0 };
    if (path.endsWith("/burn")) return { points: this.data.burn ?? [] };
    if (path.endsWith("/timeline")) return this.#timeline(query);
    if (path.endsWith("/request")) throw new ApiError(404, "offline", "Requests are not in an exported run: open it on its server.");
    if (path.endsWith("/at")) return this.data.turns?.[String(query["turn"])] ?? {};
    return run;
  }

  #timeline(query: Query): unknown {
    const { spans, seconds } = this.data.timeline ?? { spans: [], seconds: {} };
    const end = this.data.run.ended ?? this.data.run.updated;
    const took = (span: Span): number => (span.ended ?? end) - span.started;
    const all = query["order"] === "longest" ? spans.toSorted((one, other) => took(other) - took(one)) : spans;
    return { spans: slice(all, query), total: all.length, seconds };
  }

  #events(query: Query): Json {
    const { events } = this.data;
    const kinds = query["kind"] ? String(query["kind"]).split(",") : null;
    const limit = Number(query["limit"] ?? 200);
    const found = (kinds ? events.filter((event) => kinds.includes(event.event)) : events)
      .filter((event) => event.sequence > Number(query["after"] ?? 0) && event.sequence < Number(query["before"] ?? Number.POSITIVE_INFINITY));
    const newest = query["before"] !== undefined && query["before"] !== null;
    return { events: newest ? found.slice(-limit) : found.slice(0, limit), total: events.at(-1)?.sequence ?? 0 };
  }
}

function slice<T>(items: T[], query: Query): T[] {
  const start = Number(query["after"] ?? 0);
  return items.slice(start, start + Number(query["limit"] ?? 200));
}

let read = false;
let kept: Embedded | null = null;

export function embedded(): Embedded | null {
  if (!read) {
    read = true;
    const block = document.getElementById("glidepath-export");
    if (block?.textContent) kept = new Embedded(JSON.parse(block.textContent) as Exported);
  }
  return kept;
}
