// What a limit has left over time, told from a run's own events, and when it runs out at this rate.

import type { Gauge, Json, RunEvent } from "./types";

export const BURN_KINDS = ["BudgetSettled", "TurnStarted", "ToolStarted", "ChildEnded"];

export interface Step {
  time: number;
  turns: number;
  tokens: number;
  input_tokens: number;
  output_tokens: number;
  cost: number;
  tool_calls: number;
}

type Measure = Exclude<keyof Step, "time">;
const MEASURES = new Set<string>(["turns", "tokens", "input_tokens", "output_tokens", "cost", "tool_calls"]);

function usage(value: Json | undefined): { input: number; output: number } {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { input: 0, output: 0 };
  return { input: Number(value["input"] ?? 0), output: Number(value["output"] ?? 0) };
}

/** What one event adds to each measure; null when it adds to none. */
export function step(event: RunEvent): Step | null {
  const made: Step = { time: event.time, turns: 0, tokens: 0, input_tokens: 0, output_tokens: 0, cost: 0, tool_calls: 0 };
  if (event.event === "TurnStarted") made.turns = 1;
  else if (event.event === "ToolStarted") made.tool_calls = 1;
  else if (event.event === "BudgetSettled" || event.event === "ChildEnded") {
    const { input, output } = usage(event["usage"]);
    made.input_tokens = input;
    made.output_tokens = output;
    made.tokens = input + output;
    made.cost = event.event === "ChildEnded" ? Number(event["cost"] ?? 0) : Number(event["picodollars"] ?? 0) / 1e12;
  } else return null;
  return made;
}

export interface Curve {
  times: number[];
  left: number[];
}

const MOST_POINTS = 600;

/** What the gauge had left after each step. Told backwards from what the server says is used now. */
export function curve(gauge: Gauge, steps: readonly Step[], started: number, now: number): Curve | null {
  if (gauge.limit === null) return null;
  if (gauge.kind === "seconds") {
    const times = [started, now];
    return { times, left: [gauge.limit, Math.max(0, gauge.limit - gauge.used)] };
  }
  if (!MEASURES.has(gauge.kind)) return null;
  const measure = gauge.kind as Measure;
  const points: [number, number][] = [[now, gauge.limit - gauge.used]];
  let used = gauge.used;
  for (let index = steps.length - 1; index >= 0; index -= 1) {
    const made = steps[index]!;
    if (made[measure] === 0) continue;
    points.push([Math.min(made.time, now), gauge.limit - used]);
    used = Math.max(0, used - made[measure]);
  }
  points.push([Math.min(started, points.at(-1)![0]), gauge.limit - used]);
  points.reverse();
  const stride = Math.max(1, Math.ceil(points.length / MOST_POINTS));
  const kept = points.filter((_, index) => index % stride === 0 || index === points.length - 1);
  return { times: kept.map(([time]) => time), left: kept.map(([, left]) => left) };
}

const WINDOW = 12;

/** Seconds until the landing must begin at the present rate: what is left above the landing reserve. Null: no telling. */
export function timeToLimit(gauge: Gauge, steps: readonly Step[], now: number): number | null {
  if (gauge.limit === null) return null;
  const free = Math.max(0, gauge.limit - gauge.reserve - gauge.used - (gauge.kind === "seconds" ? 0 : gauge.reserved));
  if (gauge.kind === "seconds") return free;
  if (!MEASURES.has(gauge.kind)) return null;
  const measure = gauge.kind as Measure;
  const recent: Step[] = [];
  for (let index = steps.length - 1; index >= 0 && recent.length < WINDOW; index -= 1) {
    const made = steps[index]!;
    if (made[measure] > 0) recent.push(made);
  }
  if (recent.length < 2) return null;
  const since = recent.at(-1)!.time;
  const spent = recent.slice(0, -1).reduce((sum, made) => sum + made[measure], 0);
  const rate = spent / Math.max(0.001, now - since);
  return rate > 0 ? free / rate : null;
}
