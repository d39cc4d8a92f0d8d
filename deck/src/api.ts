// One door to the server. Every request carries the token in a header; none goes to another host.

import { embedded } from "./embedded";
import { ApiError } from "./errors";
import { currentToken } from "./token";
import type {
  Answer, BudgetNode, UsagePoint, Card, Detail, EvalCard, EvalDetail, Fleet, Info, Json, JsonObject, Message, ModelRequest, Moment, Pending, RunEvent, Span,
} from "./types";

export { ApiError };

/** Above every event's number: asks for the newest ones. */
export const NEWEST = 1_000_000_000;

type Query = Record<string, string | number | null | undefined>;

/** The address of an API path, relative to the page, so that a path prefix of a proxy is kept. */
export function address(path: string, query: Query = {}): string {
  const url = new URL(path, document.baseURI);
  url.hash = "";
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(key, String(value));
  }
  return url.href;
}

export function headers(accept: string): Record<string, string> {
  const token = currentToken();
  return token ? { Accept: accept, Authorization: `Bearer ${token}` } : { Accept: accept };
}

export async function failure(response: Response): Promise<ApiError> {
  let code = `http_${response.status}`;
  let message = `The server answered ${response.status} ${response.statusText}.`;
  try {
    const body = (await response.json()) as { error?: { code?: string; message?: string } };
    code = body.error?.code ?? code;
    message = body.error?.message ?? message;
  } catch {
    // Not JSON: a proxy's page, for example. The status says enough.
  }
  const after = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, code, message, Number.isFinite(after) && after > 0 ? after : null);
}

async function send(method: string, url: string, body: JsonObject | null): Promise<Json> {
  const sent = headers("application/json");
  if (body !== null) sent["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(url, {
      method, headers: sent, body: body === null ? null : JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    });
  } catch {
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  if (!response.ok) throw await failure(response);
  return (await response.json()) as Json;
}

async function get<T>(path: string, query: Query = {}): Promise<T> {
  const kept = embedded();
  if (kept) return kept.answer(path, query) as T;
  return (await send("GET", address(path, query), null)) as T;
}

async function post<T>(path: string, body: JsonObject): Promise<T> {
  if (embedded()) throw new ApiError(405, "offline", "This is an exported run; it cannot be controlled from here.");
  return (await send("POST", address(path), body)) as T;
}

const run = (id: string, rest = ""): string => `api/runs/${encodeURIComponent(id)}${rest}`;

export interface RunFilter {
  state?: string;
  /** One or more, with commas between them. */
  outcome?: string;
  /** To be found in the transcripts. */
  text?: string;
  since?: number;
  until?: number;
  tag?: string;
  q?: string;
  agent?: string;
}

export interface RunPage {
  runs: Card[];
  cursor: string | null;
  /** Of a search in transcripts: where the text stands, by run, and how many were searched. */
  excerpts?: { [run: string]: string };
  searched?: number;
}

export interface BatchAnswer {
  message: string;
  took_ms: number;
  results: { run_id: string; message: string; error: string | null }[];
}

export interface NewRun {
  agent: string;
  prompt: string;
  session?: string;
  limits?: JsonObject;
  tags?: string[];
}

export const api = {
  info: () => get<Info>("api/info"),
  runs: (filter: RunFilter, cursor: string | null, limit: number) =>
    get<RunPage>("api/runs", { ...filter, cursor, limit }),
  detail: (id: string) => get<Detail>(run(id)),
  events: (id: string, query: { after?: number; before?: number; limit?: number; kind?: string }) =>
    get<{ events: RunEvent[]; total: number }>(run(id, "/events"), query),
  /** Messages from place `start` on. */
  messages: (id: string, start: number, limit: number) =>
    get<{ messages: Message[]; total: number }>(run(id, "/messages"), { after: start, limit }),
  journal: (id: string, start: number, limit: number) =>
    get<{ records: JsonObject[]; total: number }>(run(id, "/journal"), { after: start, limit }),
  at: (id: string, turn: number) => get<Moment>(run(id, "/at"), { turn }),
  timeline: (id: string, start: number, limit: number, order: string) =>
    get<{ spans: Span[]; total: number; seconds: { [kind: string]: number } }>(run(id, "/timeline"), { after: start, limit, order }),
  request: (id: string, at: number) => get<ModelRequest>(run(id, "/request"), { at }),
  burn: (id: string) => get<{ points: UsagePoint[] }>(run(id, "/burn")),
  evals: () => get<{ evals: EvalCard[] }>("api/evals"),
  evaluation: (name: string, start: number, limit: number) => get<EvalDetail>(`api/evals/${encodeURIComponent(name)}`, { after: start, limit }),
  approvals: () => get<{ approvals: Pending[] }>("api/approvals"),
  budgets: () => get<{ roots: BudgetNode[] }>("api/budgets"),
  fleet: () => get<Fleet>("api/fleet"),
  start: (order: NewRun) => post<{ run_id: string; session_id: string }>("api/runs", { ...order } as JsonObject),
  act: (id: string, verb: string, body: JsonObject) => post<Answer>(run(id, `/${verb}`), body),
  batch: (verb: string, ids: string[], reason: string) => post<BatchAnswer>(`api/batch/${verb}`, { ids, reason }),
  kill: (body: JsonObject) => post<Partial<Answer>>("api/kill", body),
};
