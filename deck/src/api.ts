// One door to the server. Every request carries the token in a header; none goes to another host.

import { embedded } from "./embedded";
import { currentToken } from "./token";
import type {
  Answer, BudgetNode, Card, Detail, Fleet, Info, Json, JsonObject, Message, Moment, Pending, RunEvent,
} from "./types";

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly retryAfter: number | null = null) {
    super(message);
  }
}

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
  tag?: string;
  q?: string;
  agent?: string;
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
    get<{ runs: Card[]; cursor: string | null }>("api/runs", { ...filter, cursor, limit }),
  detail: (id: string) => get<Detail>(run(id)),
  events: (id: string, query: { after?: number; before?: number; limit?: number; kind?: string }) =>
    get<{ events: RunEvent[]; total: number }>(run(id, "/events"), query),
  /** Messages from place `start` on. */
  messages: (id: string, start: number, limit: number) =>
    get<{ messages: Message[]; total: number }>(run(id, "/messages"), { after: start, limit }),
  journal: (id: string, start: number, limit: number) =>
    get<{ records: JsonObject[]; total: number }>(run(id, "/journal"), { after: start, limit }),
  at: (id: string, turn: number) => get<Moment>(run(id, "/at"), { turn }),
  approvals: () => get<{ approvals: Pending[] }>("api/approvals"),
  budgets: () => get<{ roots: BudgetNode[] }>("api/budgets"),
  fleet: () => get<Fleet>("api/fleet"),
  start: (order: NewRun) => post<{ run_id: string; session_id: string }>("api/runs", { ...order } as JsonObject),
  act: (id: string, verb: string, body: JsonObject) => post<Answer>(run(id, `/${verb}`), body),
  kill: (body: JsonObject) => post<Partial<Answer>>("api/kill", body),
};
