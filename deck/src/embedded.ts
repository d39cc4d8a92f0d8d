// An exported run: `glidepath deck export` puts what the page would ask for into the page itself.

import type { Detail, Info, Json, JsonObject, Message, RunEvent } from "./types";

interface Exported {
  info?: Partial<Info>;
  exported?: number;
  run: Detail;
  events: RunEvent[];
  messages: Message[];
  journal?: JsonObject[];
  turns?: { [turn: string]: JsonObject };
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
    if (path === "api/fleet") return { workers: [], queue: { waiting: 0, running: 0 }, breakers: [], rates: [], kill: { active: false, reason: null } };
    if (path.endsWith("/events")) return this.#events(query);
    if (path.endsWith("/messages")) return { messages: after(messages, query, (message) => message.index), total: messages.length };
    if (path.endsWith("/journal")) return { records: after(this.data.journal ?? [], query, (_, at) => at), total: this.data.journal?.length ?? 0 };
    if (path.endsWith("/at")) return this.data.turns?.[String(query["turn"])] ?? {};
    return run;
  }

  #events(query: Query): Json {
    const { events } = this.data;
    const kinds = query["kind"] ? String(query["kind"]).split(",") : null;
    const limit = Number(query["limit"] ?? 200);
    let found = kinds ? events.filter((event) => kinds.includes(event.event)) : events;
    const total = found.length;
    const { after: low, before: high } = query;
    if (low !== undefined && low !== null) found = found.filter((event) => event.sequence > Number(low));
    if (high !== undefined && high !== null) found = found.filter((event) => event.sequence < Number(high));
    const newest = high !== undefined && high !== null && (low === undefined || low === null);
    return { events: newest ? found.slice(-limit) : found.slice(0, limit), first: events[0]?.sequence ?? null, last: events.at(-1)?.sequence ?? null, total };
  }
}

function after<T>(items: T[], query: Query, place: (item: T, at: number) => number): T[] {
  const low = Number(query["after"] ?? -1);
  return items.filter((item, at) => place(item, at) > low).slice(0, Number(query["limit"] ?? 200));
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
