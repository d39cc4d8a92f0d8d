// Every run on the list. A row follows only its own card, so a busy fleet redraws only the rows that changed.

import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, api, type RunFilter } from "../api";
import { embedded } from "../embedded";
import { Follower, type Sent } from "../stream";
import type { Card, Switch } from "../types";
import { refreshApprovals } from "./approvals";
import { heard, link, loadInfo, problem, switches } from "./session";

const PAGE = 60;

const cards = new Map<string, Signal<Card>>();
export const order = signal<string[]>([]);
export const filter = signal<RunFilter>({});
export const loading = signal(true);
export const listProblem = signal<ApiError | null>(null);
export const selected = signal(0);
export const marked = signal<string[]>([]);

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

function matches(found: Card, wanted: RunFilter): boolean {
  if (wanted.state && found.state !== wanted.state) return false;
  if (wanted.agent && found.agent !== wanted.agent) return false;
  if (wanted.tag && !found.tags.includes(wanted.tag)) return false;
  if (!wanted.q) return true;
  const text = `${found.title} ${found.task} ${found.agent} ${found.run_id} ${found.session_id} ${found.tags.join(" ")}`;
  return text.toLowerCase().includes(wanted.q.toLowerCase());
}

export async function reload(): Promise<void> {
  const mine = ++request;
  loading.value = true;
  try {
    const page = await api.runs(filter.peek(), null, PAGE);
    if (mine !== request) return;
    batch(() => {
      for (const found of page.runs) keep(found);
      order.value = page.runs.map((found) => found.run_id);
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
}

export async function loadMore(): Promise<void> {
  if (!more || loading.peek() || cursor === null) return;
  const mine = ++request;
  loading.value = true;
  try {
    const page = await api.runs(filter.peek(), cursor, PAGE);
    if (mine !== request) return;
    batch(() => {
      const known = new Set(order.peek());
      for (const found of page.runs) keep(found);
      order.value = [...order.peek(), ...page.runs.map((found) => found.run_id).filter((id) => !known.has(id))];
      cursor = page.cursor;
      more = page.cursor !== null;
    });
  } catch {
    more = false; // the next reload tries again
  } finally {
    if (mine === request) loading.value = false;
  }
}

export function setFilter(change: RunFilter): void {
  filter.value = { ...filter.peek(), ...change };
  selected.value = 0;
  void reload();
}

function apply(changed: Card[], removed: string[]): void {
  const wanted = filter.peek();
  const listed = new Set(order.peek());
  const fresh: string[] = [];
  const gone = new Set(removed);
  for (const found of changed) {
    keep(found);
    const fits = matches(found, wanted);
    if (fits && !listed.has(found.run_id)) fresh.push(found.run_id);
    if (!fits && listed.has(found.run_id)) gone.add(found.run_id);
  }
  if (!fresh.length && !gone.size) return;
  fresh.sort((one, other) => (cards.get(other)?.peek().started ?? 0) - (cards.get(one)?.peek().started ?? 0));
  const chosen = order.peek()[selected.peek()];
  order.value = [...fresh, ...order.peek().filter((id) => !gone.has(id))];
  const place = chosen ? order.peek().indexOf(chosen) : -1;
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
