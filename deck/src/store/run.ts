// One run, watched: what the server says of it, kept true by its events.

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import { ApiError, api, NEWEST } from "../api";
import { sample, type Sample } from "../burn";
import { embedded } from "../embedded";
import { Follower, type LinkState, type Sent } from "../stream";
import type { Detail, Message, Moment, Phase, RunEvent } from "../types";
import { Paged } from "./paged";
import { card } from "./runs";
import { info } from "./session";

export interface Attempt {
  attempt: number;
  landing: boolean;
  text: string;
  thinking: string;
  discarded: string | null;
}

const DETAIL_EVERY = 400; // milliseconds between two looks at the same run
const MESSAGES_EVERY = 200;
const SAMPLES_KEPT = 3000;
const EVENTS_READ = 10_000; // the newest, for attempts that were thrown away

/** Events after which the run's detail is not what it was. */
const TELLING = new Set([
  "RunStarted", "RunEnded", "RunPaused", "ApprovalRequested", "NoticeSent", "LandingStarted", "ChildStarted", "ChildEnded",
  "TurnStarted", "TurnEnded", "ToolStarted", "ToolEnded", "GuardTripped", "ConfigurationChanged", "BudgetReserved", "BudgetSettled", "snapshot",
]);
const SPEAKING = new Set(["MessageAdded", "TurnEnded", "ToolEnded", "AttemptDiscarded", "RunEnded", "snapshot"]);

export class RunStore {
  readonly detail = signal<Detail | null>(null);
  readonly problem = signal<ApiError | null>(null);
  readonly link = signal<LinkState>({ kind: "connecting" });
  readonly attempt = signal<Attempt | null>(null);
  /** What the run and its children had used, over time: what the server remembers, then what the gauges said. */
  readonly samples = signal<readonly Sample[]>([]);
  /** A turn being looked at again; null is the present. */
  readonly replay = signal<{ turn: number; moment: Moment | null } | null>(null);
  /** True for a run whose events nobody kept: it is told from its journal alone. */
  readonly eventless = signal(false);
  /** Attempts that did not count, by the turn they were made in. */
  readonly discarded = signal<ReadonlyMap<number, readonly RunEvent[]>>(new Map());
  readonly events: Paged<RunEvent>;
  readonly messages: Paged<Message>;

  /** What is shown: the present, or the turn being replayed. */
  readonly shown = computed<Detail | null>(() => {
    const detail = this.detail.value;
    if (!detail) return null;
    const then = this.replay.value?.moment;
    if (then) return asOf(detail, then, this.#landing.value);
    const live = card(detail.run_id)?.value;
    return live && (live.sequence > detail.sequence || (live.sequence === detail.sequence && live.state !== detail.state && live.updated >= detail.updated))
      ? { ...detail, state: live.state, agent_state: live.agent_state, phase: live.phase, turn: live.turn, gauges: live.gauges, usage: live.usage, cost: live.cost, last: live.last, outcome: live.outcome, cause: live.cause, ended: live.ended, resumable: live.resumable, guard: live.guard, updated: live.updated }
      : detail;
  });

  readonly #landing = signal<readonly RunEvent[]>([]);
  #follower: Follower | null = null;
  #closed = false;
  #waiting: RunEvent[] = [];
  #frame = 0;
  #detailTimer = 0;
  #messagesTimer = 0;
  #ended = false;
  #known = 0;
  #unwatch: () => void;

  constructor(readonly id: string) {
    this.events = new Paged(async (start, limit) => {
      const page = await api.events(id, { after: start, limit }); // the first event is number 1
      return { items: page.events, total: page.total };
    }, 200);
    this.messages = new Paged(async (start, limit) => {
      const page = await api.messages(id, start, limit);
      return { items: page.messages, total: page.total };
    });
    // Somebody else may resume a run whose stream has ended: the list hears of it.
    const unwatch = effect(() => {
      const live = card(this.detail.value?.run_id ?? id)?.value;
      // It may have ended again by then: what counts is that there is more than was read.
      if (!live || this.link.value.kind !== "closed" || !this.#ended || live.sequence <= Math.max(this.#known, this.events.total.peek())) return;
      this.#known = live.sequence;
      void this.renew();
    });
    // Its process may have died without a word: only the list tells.
    const unlook = effect(() => {
      const live = card(this.detail.value?.run_id ?? id)?.value;
      const state = this.detail.peek()?.state;
      if (live && state && live.state !== state) this.#look(0);
    });
    const unsample = effect(() => {
      this.shown.value;
      untracked(() => this.#sample());
    });
    this.#unwatch = (): void => {
      unwatch();
      unlook();
      unsample();
    };
    void this.#open();
  }

  close(): void {
    this.#closed = true;
    this.#unwatch();
    this.#follower?.stop();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#detailTimer);
    clearTimeout(this.#messagesTimer);
  }

  retry(): void {
    if (this.detail.peek()) this.#follower?.retry();
    else void this.#open();
  }

  async #open(): Promise<void> {
    this.problem.value = null;
    try {
      const [detail, tail, head] = await Promise.all([
        api.detail(this.id),
        api.events(this.id, { before: NEWEST, limit: 1 }).catch(noEvents),
        api.messages(this.id, 0, this.messages.size),
      ]);
      if (this.#closed) return;
      batch(() => {
        this.detail.value = detail;
        this.attempt.value = writing(detail);
        this.eventless.value = tail === null;
        this.events.total.value = tail?.total ?? 0;
        this.messages.put(0, head.messages);
        this.messages.total.value = head.total;
      });
      this.#ended = detail.state === "ended" || detail.state === "paused";
      if (tail) {
        this.#follow(writing(detail) ? detail.sequence : tail.total); // what it has of the reply is as of there
        void this.#readPast(tail.total);
      } else this.link.value = { kind: "closed" };
    } catch (error) {
      this.problem.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
    }
  }

  async #readPast(last: number): Promise<void> {
    const [burnt, page] = await Promise.all([
      api.burn(this.id).catch(() => null),
      api.events(this.id, { kind: "TurnStarted,AttemptDiscarded", after: Math.max(0, last - EVENTS_READ), before: NEWEST, limit: 2000 }).catch(() => null),
    ]);
    if (this.#closed) return;
    if (burnt) {
      const end = burnt.points.at(-1)?.time ?? 0;
      this.samples.value = [...burnt.points, ...this.samples.peek().filter((each) => each.time > end)];
    }
    if (page) this.discarded.value = byTurn(page.events);
  }

  /** Remember what the gauges say while the run goes on. */
  #sample(): void {
    const now = this.shown.peek();
    if (now?.state !== "running" || this.replay.peek()) return;
    const made = sample(now.gauges, Math.max(now.updated, this.samples.peek().at(-1)?.time ?? 0));
    const last = this.samples.peek().at(-1);
    if (last && now.gauges.every((gauge) => (last as Record<string, number | undefined>)[gauge.kind] === undefined || (last as Record<string, number | undefined>)[gauge.kind] === gauge.used)) return;
    this.samples.value = [...this.samples.peek(), made].slice(-SAMPLES_KEPT);
  }

  #follow(after: number): void {
    if (embedded()) {
      this.link.value = { kind: "closed" };
      return;
    }
    this.#follower?.stop();
    this.#follower = new Follower({
      path: `api/runs/${encodeURIComponent(this.id)}/events`,
      after,
      onMessages: (messages) => this.#receive(messages),
      onState: (state) => {
        const before = this.link.peek().kind;
        this.link.value = state;
        if (state.kind === "closed" || (state.kind === "open" && before !== "open")) this.#look(0);
      },
      finished: () => this.#ended,
      needed: () => info.peek()?.store === "memory", // such a run lands without a reader
    });
  }

  /** Take the stream up again, for a run that went on after it had ended or paused. */
  async renew(): Promise<void> {
    this.#ended = false;
    await this.#open();
  }

  #receive(messages: Sent[]): void {
    for (const message of messages) {
      if (message.event === "snapshot") {
        const found = JSON.parse(message.data) as Detail;
        batch(() => {
          this.detail.value = found;
          this.events.total.value = Math.max(this.events.total.peek(), found.sequence);
          this.attempt.value = writing(found);
        });
        this.#look(MESSAGES_EVERY);
        this.#read(0);
      } else this.#waiting.push(JSON.parse(message.data) as RunEvent);
    }
    // A hidden page gets no frames: it still has to keep up.
    if (!this.#frame) this.#frame = document.hidden ? window.setTimeout(() => this.#fold(), 500) : requestAnimationFrame(() => this.#fold());
  }

  #fold(): void {
    this.#frame = 0;
    const fresh = this.#waiting;
    this.#waiting = [];
    if (!fresh.length || this.#closed) return;
    batch(() => {
      this.events.put(fresh[0]!.sequence - 1, fresh);
      this.#speak(fresh);
      if (fresh.some((event) => event.event === "RunEnded")) this.#ended = true;
    });
    if (fresh.some((event) => TELLING.has(event.event))) this.#look(DETAIL_EVERY);
    if (fresh.some((event) => SPEAKING.has(event.event))) this.#read(MESSAGES_EVERY);
  }

  #speak(fresh: readonly RunEvent[]): void {
    let now = this.attempt.peek();
    for (const event of fresh) {
      if (event.event === "StreamStarted") {
        now = { attempt: Number(event["attempt"]), landing: event["landing"] === true, text: "", thinking: "", discarded: null };
      } else if (event.event === "StreamChunk" && now) {
        const text = String(event["text"] ?? "");
        now = event["thinking"] ? { ...now, thinking: now.thinking + text } : { ...now, text: now.text + text };
      } else if (event.event === "AttemptDiscarded" && now) now = { ...now, discarded: String(event["reason"] ?? "") };
      else if (event.event === "TurnEnded" || event.event === "RunEnded") now = null;
      else if (event.event === "MessageAdded" && roleOf(event) === "assistant") now = null;
    }
    this.attempt.value = now;
  }

  /** Look at the run again soon, once for all that happens meanwhile. */
  #look(within: number): void {
    if (this.#detailTimer || this.#closed) return;
    this.#detailTimer = window.setTimeout(async () => {
      try {
        const found = await api.detail(this.id);
        if (!this.#closed) this.detail.value = found;
      } catch {
        // The stream's state tells that the server is away.
      } finally {
        this.#detailTimer = 0;
      }
    }, within);
  }

  #read(within: number): void {
    if (this.#messagesTimer || this.#closed) return;
    this.#messagesTimer = window.setTimeout(async () => {
      await this.messages.grow();
      this.#messagesTimer = 0;
    }, within);
  }

  async showTurn(turn: number | null): Promise<void> {
    if (turn === null) {
      this.replay.value = null;
      return;
    }
    this.replay.value = { turn, moment: this.replay.peek()?.moment ?? null };
    try {
      if (!this.#landing.peek().length && !this.eventless.peek()) {
        this.#landing.value = (await api.events(this.id, { kind: "NoticeSent,LandingStarted", limit: 50 })).events;
      }
      const moment = await api.at(this.id, turn);
      if (this.replay.peek()?.turn === turn) this.replay.value = { turn, moment };
    } catch (error) {
      if (this.replay.peek()?.turn === turn) this.problem.value = error instanceof ApiError ? error : null;
    }
  }
}

let early: RunStore | null = null;

/** Begin to read a run before the page has been let in: its first rows come a round trip sooner. */
export function expectRun(id: string): void {
  early = new RunStore(id);
}

/** A store for the run; the one that was begun early, unless that failed. */
export function openRun(id: string): RunStore {
  const begun = early;
  early = null;
  if (begun && begun.id === id && !begun.problem.peek()) return begun;
  begun?.close();
  return new RunStore(id);
}

/** The run as it stood at the end of a turn. Limits are the present ones; reservations are over by then. */
function asOf(detail: Detail, then: Moment, turns: readonly RunEvent[]): Detail {
  const used: Record<string, number> = { turns: then.turn, tokens: then.usage.total, input_tokens: then.usage.input, output_tokens: then.usage.output, cost: Number(then.cost ?? 0), seconds: Math.max(0, then.at - detail.started) };
  const ended = then.state === "ended";
  const passed = (kind: string): boolean => turns.some((event) => event.event === kind && event.time <= then.at);
  const phase: Phase = ended ? "ground" : passed("LandingStarted") ? "landing" : passed("NoticeSent") ? "notice" : "cruise";
  return {
    ...detail, state: then.state, agent_state: then.agent_state, outcome: then.outcome, cause: ended ? detail.cause : null, phase, turn: then.turn, usage: then.usage, cost: then.cost,
    gauges: detail.gauges.map((gauge) => ({ ...gauge, used: Math.min(used[gauge.kind] ?? gauge.used, gauge.used), reserved: 0 })),
    ended: ended ? detail.ended : null, updated: then.at, pending: then.state === "paused" ? detail.pending : [], last: "",
  };
}

function byTurn(events: readonly RunEvent[]): Map<number, RunEvent[]> {
  const found = new Map<number, RunEvent[]>();
  let turn = 0;
  for (const event of events) {
    if (event.event === "TurnStarted") turn = Number(event["iteration"]);
    else if (event.event === "AttemptDiscarded") found.set(turn, [...(found.get(turn) ?? []), event]);
  }
  return found;
}

/** The reply that was being written when the server told of the run: its beginning is not sent again. */
function writing(run: Detail): Attempt | null {
  if (run.state !== "running" || run.reply === null || run.reply === undefined) return null;
  return { attempt: 1, landing: run.phase === "landing", text: run.reply, thinking: "", discarded: null };
}

function noEvents(error: unknown): null {
  if (error instanceof ApiError && error.code === "no_events") return null;
  throw error;
}

function roleOf(event: RunEvent): string {
  const message = event["message"];
  return message !== null && typeof message === "object" && !Array.isArray(message) ? String(message["role"] ?? "") : "";
}

export const PHASES: readonly Phase[] = ["cruise", "notice", "landing", "ground"];
