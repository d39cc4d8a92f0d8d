// Every run on the list. A row follows only its own card, so a busy fleet redraws only the rows that changed.

import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, api, type RunFilter } from "../api";
import { embedded } from "../embedded";
import { Follower, type Sent } from "../stream";
import type { Card, Switch } from "../types";
import { refreshApprovals } from "./approvals";
import { exactNow, heard, link, loadInfo, problem, switches } from "./session";

const PAGE = 60;

const cards = new Map<string, Signal<Card>>();
export const order = signal<string[]>([]);
/** What the list shows: what the server is asked for, and `last` for the last so many seconds. */
export interface ListFilter extends RunFilter {
  last?: number;
}

export const filter = signal<ListFilter>({});
/** By run: where the text that was searched for stands in its transcript. */
export const excerpts = signal<ReadonlyMap<string, string>>(new Map());
/** How many transcripts were searched so far. */
export const searched = signal(0);
export const loading = signal(true);
export const listProblem = signal<ApiError | null>(null);
export const selected = signal(0);
export const marked = signal<string[]>([]);
/** Runs that were picked to do something to all of them. */
export const picked = signal<ReadonlySet<string>>(new Set());

let cursor: string | null = null;
let more = true;
let request = 0;

export function card(id: string): Signal<Card> | undefined {
  return cards.get(id);
}

/** The card of a run or of a session's latest run, if the list has it. */
export function cardOf(id: string): Card | undefined {
  const found = cards.get(id);
  if (found) return found.value;
  for (const each of cards.values()) if (each.value.session_id === id) return each.value;
  return undefined;
}

function keep(found: Card): void {
  const known = cards.get(found.run_id);
  if (!known) cards.set(found.run_id, signal(found));
  else if (found.sequence >= known.peek().sequence || found.state !== known.peek().state) known.value = found;
}

/** True where the list as it is filtered shows this run, as far as its card tells: transcripts are searched by the server. */
function matches(found: Card, wanted: ListFilter): boolean {
  if (wanted.state && found.state !== wanted.state) return false;
  if (wanted.outcome && !wanted.outcome.split(",").includes(found.outcome ?? "")) return false;
  if (wanted.agent && found.agent !== wanted.agent) return false;
  if (wanted.tag && !found.tags.includes(wanted.tag)) return false;
  const { since, until } = times(wanted);
  if (since !== null && found.listed < since) return false;
  if (until !== null && found.listed >= until) return false;
  if (wanted.text && !excerpts.peek().has(found.run_id)) return false;
  if (!wanted.q) return true;
  const text = `${found.title} ${found.task} ${found.agent} ${found.run_id} ${found.session_id} ${found.tags.join(" ")}`;
  return text.toLowerCase().includes(wanted.q.toLowerCase());
}

/** The times between which runs are shown; `last` seconds count back from now. */
export function times(wanted: ListFilter): { since: number | null; until: number | null } {
  if (wanted.last) return { since: Math.floor(exactNow() - wanted.last), until: null };
  return { since: wanted.since ?? null, until: wanted.until ?? null };
}

function asked(wanted: ListFilter): RunFilter {
  const { last: _, ...rest } = wanted;
  const { since, until } = times(wanted);
  return { ...rest, since: since ?? undefined, until: until ?? undefined };
}

export async function reload(): Promise<void> {
  const mine = ++request;
  loading.value = true;
  try {
    const page = await api.runs(asked(filter.peek()), null, PAGE);
    if (mine !== request) return;
    batch(() => {
      for (const found of page.runs) keep(found);
      order.value = page.runs.map((found) => found.run_id);
      excerpts.value = new Map(Object.entries(page.excerpts ?? {}));
      searched.value = page.searched ?? 0;
      const there = new Set(order.peek());
      if (picked.peek().size) picked.value = new Set([...picked.peek()].filter((id) => there.has(id)));
      selected.value = Math.min(selected.peek(), Math.max(0, page.runs.length - 1));
      cursor = page.cursor;
      more = page.cursor !== null;
      listProblem.value = null;
      heard.value = Date.now();
    });
  } catch (error) {
    if (mine === request) listProblem.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
  } finally {
    if (mine === request) loading.value = false;
  }
  searchOn();
}

/** A search in transcripts answers with what it has found within a second: ask on until the page is full. */
function searchOn(): void {
  if (filter.peek().text && more && order.peek().length < PAGE && !loading.peek() && !listProblem.peek()) void loadMore();
}

export async function loadMore(): Promise<void> {
  if (!more || loading.peek() || cursor === null) return;
  const mine = ++request;
  loading.value = true;
  try {
    const page = await api.runs(asked(filter.peek()), cursor, PAGE);
    if (mine !== request) return;
    batch(() => {
      const known = new Set(order.peek());
      for (const found of page.runs) keep(found);
      order.value = [...order.peek(), ...page.runs.map((found) => found.run_id).filter((id) => !known.has(id))];
      if (page.excerpts) excerpts.value = new Map([...excerpts.peek(), ...Object.entries(page.excerpts)]);
      searched.value += page.searched ?? 0;
      cursor = page.cursor;
      more = page.cursor !== null;
    });
  } catch {
    more = false; // the next reload tries again
  } finally {
    if (mine === request) loading.value = false;
  }
  searchOn();
}

const MOST_PICKED = 500; // what the server takes at once

export function pick(id: string): void {
  const next = new Set(picked.peek());
  if (!next.delete(id) && next.size < MOST_PICKED) next.add(id);
  picked.value = next;
}

/** Pick everything that the list can show as it is filtered, page after page. */
export async function pickAll(): Promise<void> {
  const mine = request;
  while (more && order.peek().length < MOST_PICKED && mine <= request) {
    const before = order.peek().length;
    await loadMore();
    if (order.peek().length === before) break;
  }
  picked.value = new Set(order.peek().slice(0, MOST_PICKED));
}

export function setFilter(change: ListFilter): void {
  filter.value = { ...filter.peek(), ...change };
  selected.value = 0;
  void reload();
}

/** Where a run belongs on the list: behind the last one that is newer. Null where that is beyond what was loaded. */
function placeOf(found: Card, rows: readonly string[]): number | null {
  let place = rows.length;
  while (place > 0 && (cards.get(rows[place - 1]!)?.peek().listed ?? 0) < found.listed) place -= 1;
  return place === rows.length && more && rows.length > 0 ? null : place;
}

function apply(changed: Card[], removed: string[]): void {
  const wanted = filter.peek();
  const rows = order.peek();
  const moved = new Set(removed);
  const fresh: Card[] = [];
  const listed = new Set(rows);
  for (const found of changed) {
    const before = cards.get(found.run_id)?.peek();
    const fits = matches(found, wanted);
    keep(found);
    const here = listed.has(found.run_id);
    if (here && !fits) moved.add(found.run_id);
    else if (fits && (!here || before?.listed !== found.listed)) {
      moved.add(found.run_id); // it began again, or has ended: it is the newest now
      fresh.push(found);
    }
  }
  if (!moved.size) return;
  const chosen = rows[selected.peek()];
  const next = rows.filter((id) => !moved.has(id));
  for (const found of fresh.sort((one, other) => one.listed - other.listed)) {
    const place = placeOf(found, next);
    if (place !== null) next.splice(place, 0, found.run_id);
  }
  order.value = next;
  const place = chosen ? next.indexOf(chosen) : -1;
  if (place >= 0) selected.value = place;
}

function receive(messages: Sent[]): void {
  batch(() => {
    for (const message of messages) {
      if (message.event === "cards") {
        const { runs, removed } = JSON.parse(message.data) as { runs: Card[]; removed?: string[] };
        apply(runs, removed ?? []);
      } else if (message.event === "approvals") void refreshApprovals();
      else if (message.event === "switches") switches.value = (JSON.parse(message.data) as { switches: Switch[] }).switches;
    }
    heard.value = Date.now();
  });
}

let feed: Follower | null = null;

/** Follow the list for as long as the page is open. */
export function startFeed(): void {
  if (embedded() || feed) return;
  let lost = false;
  feed = new Follower({
    path: "api/feed",
    onMessages: receive,
    onState: (state) => {
      link.value = state;
      if (state.kind === "waiting" || state.kind === "resting") lost = true;
      if (state.kind === "refused") problem.value = state.error;
      if (state.kind === "open" && lost) {
        lost = false; // what changed in between was not sent
        void loadInfo();
        void reload();
        void refreshApprovals();
      }
    },
  });
}

export function retryFeed(): void {
  feed?.retry();
}

/** Begin anew, with another token for example. */
export function restartFeed(): void {
  feed?.stop();
  feed = null;
  startFeed();
}
