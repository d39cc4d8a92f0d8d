// Server-sent events over fetch: EventSource cannot send a header, and this one says honestly what it knows.

import { ApiError, address, failure, headers } from "./api";

export interface Sent {
  id: string | null;
  event: string;
  data: string;
}

/** Turns pieces of text into whole messages, wherever the pieces were cut. */
export class EventReader {
  #rest = "";
  #id: string | null = null;
  #event = "";
  #data: string[] = [];

  push(piece: string): Sent[] {
    const found: Sent[] = [];
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) found.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
        this.#event = "";
        this.#data = [];
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "data") this.#data.push(value);
        else if (field === "event") this.#event = value;
        else if (field === "id") this.#id = value;
      }
    }
    return found;
  }
}

export type LinkState =
  | { kind: "connecting" }
  | { kind: "open" }
  | { kind: "waiting"; until: number; error: ApiError }
  | { kind: "resting" }
  | { kind: "refused"; error: ApiError }
  | { kind: "closed" };

export interface Following {
  path: string;
  after?: number | null;
  onMessages: (messages: Sent[]) => void;
  onState: (state: LinkState) => void;
  /** True when the server closing the stream is the end, as after a run's last event. */
  finished?: () => boolean;
  /** True when nobody reading would be taken for nobody caring: the stream stays open in a background tab. */
  needed?: () => boolean;
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
const SILENCE = 45_000; // three heartbeats
const LINES = 4; // of the six connections that a browser opens to one server, in all its tabs: the rest is for requests
const TURN = 700; // how long a stream without a line of its own listens
const BETWEEN = 1000; // and how long it lets others do so
const AWAY = 5000; // how long a tab is in the background before it hangs up

/** One of the lines that all tabs share, until it is given back; null while all are taken. */
async function line(): Promise<(() => void) | null> {
  if (!("locks" in navigator)) return () => undefined; // only on a secure origin, which loopback is
  for (let number = 0; number < LINES; number += 1) {
    const held = await new Promise<(() => void) | null>((answer) => {
      void navigator.locks.request(`glidepath-line-${number}`, { ifAvailable: true }, (lock) =>
        lock ? new Promise<void>((release) => answer(() => release())) : answer(null))
        .catch(() => answer(() => undefined)); // where a browser forbids locks, a tab is on its own
    });
    if (held) return held;
  }
  return null;
}

/**
 * Follow a stream and take it up again where it was cut. `stop` ends it, `retry` skips the wait.
 *
 * Streams take turns when there are more of them than lines, and a tab in the background hangs up until it is seen
 * again, so that a button works however many tabs are open.
 */
export class Follower {
  #ended = false;
  #away = 0;
  #resting = false;
  #abort: AbortController | null = null;
  #wake: (() => void) | null = null;
  #last: string | null;

  constructor(private readonly what: Following) {
    this.#last = what.after === null || what.after === undefined ? null : String(what.after);
    document.addEventListener("visibilitychange", this.#seen);
    if (document.hidden) this.#seen();
    void this.#run();
  }

  stop(): void {
    this.#ended = true;
    clearTimeout(this.#away);
    document.removeEventListener("visibilitychange", this.#seen);
    this.#abort?.abort();
    this.#wake?.();
  }

  retry(): void {
    this.#wake?.();
  }

  /** The tab came to the front, or went to the background. */
  #seen = (): void => {
    clearTimeout(this.#away);
    if (!document.hidden) {
      if (this.#resting) this.#wake?.();
      this.#resting = false;
    } else if (!this.what.needed?.()) {
      this.#away = window.setTimeout(() => {
        this.#resting = true;
        this.#abort?.abort();
      }, AWAY);
    }
  };

  async #run(): Promise<void> {
    let wait = FIRST_WAIT;
    let turns = false;
    while (!this.#ended) {
      if (this.#resting) {
        this.what.onState({ kind: "resting" });
        await this.#sleep(null);
        continue;
      }
      if (!turns) this.what.onState({ kind: "connecting" });
      let error = new ApiError(0, "unreachable", "The server cannot be reached.");
      const held = await line();
      turns = held === null;
      try {
        if (await this.#read(turns)) wait = FIRST_WAIT;
        error = new ApiError(0, "closed", "The server closed the connection.");
      } catch (caught) {
        turns = false;
        if (caught instanceof ApiError) error = caught;
      } finally {
        held?.();
      }
      if (this.#ended || this.what.finished?.()) break;
      if (this.#resting) continue;
      if (turns) {
        await this.#sleep(BETWEEN);
        continue;
      }
      if (error.status >= 400 && error.status < 500 && error.status !== 429) {
        this.stop();
        this.what.onState({ kind: "refused", error });
        return;
      }
      const pause = wait * (0.75 + Math.random() / 2);
      this.what.onState({ kind: "waiting", until: Date.now() + pause, error });
      await this.#sleep(pause);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
    this.stop();
    this.what.onState({ kind: "closed" });
  }

  /** Read to the end, or for a turn; true when the server answered. */
  async #read(turn: boolean): Promise<boolean> {
    if (this.#ended || this.#resting) return false;
    this.#abort = new AbortController();
    const sent = headers("text/event-stream");
    if (this.#last !== null) sent["Last-Event-ID"] = this.#last;
    const response = await fetch(address(this.what.path), {
      headers: sent, signal: this.#abort.signal, cache: "no-store", credentials: "omit", redirect: "error",
    });
    if (!response.ok || !response.body) throw await failure(response);
    this.what.onState({ kind: "open" });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const lines = new EventReader();
    let silence = this.#watch();
    let over = false;
    const end = turn ? window.setTimeout(() => { over = true; void reader.cancel(); }, TURN) : 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done || over) return true;
        clearTimeout(silence);
        silence = this.#watch();
        const messages = lines.push(value);
        const last = messages.findLast((message) => message.id !== null);
        if (last) this.#last = last.id;
        if (messages.length && !this.#ended) this.what.onMessages(messages);
      }
    } finally {
      clearTimeout(silence);
      clearTimeout(end);
      this.#abort.abort(); // a line that is given back is free
    }
  }

  #watch(): number {
    return window.setTimeout(() => this.#abort?.abort(), SILENCE);
  }

  /** Wait so long, or until something wakes us. */
  #sleep(milliseconds: number | null): Promise<void> {
    return new Promise((resolve) => {
      const timer = milliseconds === null ? 0 : window.setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
