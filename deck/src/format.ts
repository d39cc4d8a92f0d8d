// Numbers and times as people read them.

import type { Gauge } from "./types";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export function count(value: number): string {
  return Math.abs(value) >= 100_000 ? compact.format(value) : whole.format(value);
}

export function money(value: number | string | null): string {
  if (value === null || value === "") return "unknown";
  const amount = Number(value);
  if (!Number.isFinite(amount)) return String(value);
  if (amount === 0) return "$0";
  const digits = Math.abs(amount) >= 1 ? 2 : Math.abs(amount) >= 0.001 ? 4 : 6;
  return `$${amount.toFixed(digits)}`;
}

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "";
  const past = Math.max(0, seconds);
  if (past < 1) return `${Math.round(past * 1000)} ms`;
  if (past < 10) return `${past.toFixed(1)} s`;
  if (past < 60) return `${Math.round(past)} s`;
  if (past < 3600) return `${Math.floor(past / 60)} min ${String(Math.floor(past % 60)).padStart(2, "0")} s`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h ${String(Math.floor((past % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(past / 86_400)} d ${Math.floor((past % 86_400) / 3600)} h`;
}

export function ago(seconds: number): string {
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

export function clock(epoch: number): string {
  return new Date(epoch * 1000).toLocaleTimeString("en-GB");
}

export function moment(epoch: number): string {
  return new Date(epoch * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

const NAMES: Record<string, string> = {
  turns: "Turns", tokens: "Tokens", input_tokens: "Input tokens", output_tokens: "Output tokens",
  cost: "Cost", seconds: "Time", tool_calls: "Tool calls",
};

export function gaugeName(kind: string): string {
  return NAMES[kind] ?? kind.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());
}

export function amount(gauge: Pick<Gauge, "kind" | "unit">, value: number): string {
  if (gauge.unit === "USD" || gauge.kind === "cost") return money(value).replace(/(\.\d\d\d*?)0+$/, "$1");
  if (gauge.unit === "s" || gauge.kind === "seconds") return value === 0 ? "0 s" : duration(value);
  return count(value);
}

/** The first characters of an id: enough to tell runs apart, short enough to read. */
export function short(id: string): string {
  return id.length > 12 ? `${id.slice(0, 10)}…` : id;
}

/** One line of a text of any length. */
export function line(text: string, length = 160): string {
  const flat = text.slice(0, length * 4).replace(/\s+/g, " ").trim();
  return flat.length > length ? `${flat.slice(0, length - 1)}…` : flat;
}

/** The same without the marks of Markdown, for places that show one line of a reply. */
export function plainLine(text: string, length = 160): string {
  return line(text.slice(0, length * 4).replace(/^[#>\s]+/gm, "").replace(/\|?[\s:-]*-{2,}[\s:|-]*/g, " ").replace(/[*`|]+/g, " "), length);
}

export function word(value: string): string {
  return value.replaceAll("_", " ");
}
