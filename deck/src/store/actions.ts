// Taking the controls. What a button did is told from the server's answer, which is told from events: never a guess.

import { signal } from "@preact/signals";
import { ApiError } from "../api";
import { duration } from "../format";
import type { Answer } from "../types";

export interface Report {
  key: number;
  tone: "busy" | "good" | "bad";
  title: string;
  text: string;
}

export const reports = signal<Report[]>([]);
let keys = 0;

function put(report: Report): void {
  const others = reports.peek().filter((each) => each.key !== report.key);
  reports.value = [...others, report].slice(-4);
}

export function dismiss(key: number): void {
  reports.value = reports.peek().filter((each) => each.key !== key);
}

const STAY = 8000;

export type Done<T> = { answer: T } | { error: string };

/** Do something on the server and report what happened. A refusal is the caller's to show. */
export async function perform<T extends Partial<Answer>>(title: string, doing: () => Promise<T>, said?: (answer: T) => string): Promise<Done<T>> {
  const key = ++keys;
  put({ key, tone: "busy", title, text: "asked, waiting for the run" });
  try {
    const answer = await doing();
    const took = typeof answer.took_ms === "number" ? duration(answer.took_ms / 1000) : null;
    const message = said?.(answer) || answer.message || "done";
    put({ key, tone: "good", title, text: took && !/ m?s\b/.test(message) ? `${message} (${took})` : message });
    window.setTimeout(() => dismiss(key), STAY);
    return { answer };
  } catch (error) {
    dismiss(key);
    return { error: error instanceof ApiError ? error.message : String(error) };
  }
}
