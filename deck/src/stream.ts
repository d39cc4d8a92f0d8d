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
  | { kind: "refused"; error: ApiError }
  | { kind: "closed" };

export interface Following {
  path: string;
  after?: number | null;
  onMessages: (messages: Sent[]) => void;
  onState: (state: LinkState) => void;
  /** True when the server closing the stream is the end, as after a run's last event. */
  finished?: () => boolean;
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
const SILENCE = 45_000; // three heartbeats

/** Follow a stream and take it up again where it was cut. `stop` ends it, `retry` skips the wait. */
export class Follower {
  #ended = false;
  #abort: AbortController | null = null;
  #wake: (() => void) | null = null;
  #last: string | null;

  constructor(private readonly what: Following) {
    this.#last = what.after === null || what.after === undefined ? null : String(what.after);
    void this.#run();
  }

  stop(): void {
    this.#ended = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  retry(): void {
    this.#wake?.();
  }

  async #run(): Promise<void> {
    let wait = FIRST_WAIT;
    while (!this.#ended) {
      this.what.onState({ kind: "connecting" });
      let error = new ApiError(0, "unreachable", "The server cannot be reached.");
      try {
        if (await this.#read()) wait = FIRST_WAIT;
        error = new ApiError(0, "closed", "The server closed the connection.");
      } catch (caught) {
        if (caught instanceof ApiError) error = caught;
      }
      if (this.#ended || this.what.finished?.()) break;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) {
        this.what.onState({ kind: "refused", error });
        return;
      }
      const pause = wait * (0.75 + Math.random() / 2);
      this.what.onState({ kind: "waiting", until: Date.now() + pause, error });
      await this.#sleep(pause);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
    this.what.onState({ kind: "closed" });
  }

  async #read(): Promise<boolean> {
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
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return true;
        clearTimeout(silence);
        silence = this.#watch();
        const messages = lines.push(value);
        const last = messages.findLast((message) => message.id !== null);
        if (last) this.#last = last.id;
        if (messages.length && !this.#ended) this.what.onMessages(messages);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  #watch(): number {
    return window.setTimeout(() => this.#abort?.abort(), SILENCE);
  }

  #sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = window.setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
