// What a limit has left over time, and when it runs out at this rate. All figures are of the run with its children, as its limits are.

import type { UsagePoint, Gauge } from "./types";

type Measure = Exclude<keyof UsagePoint, "time">;
const MEASURES = new Set<string>(["turns", "tokens", "input_tokens", "output_tokens", "cost", "tool_calls"]);

/** What the gauges say now, as a point; figures that have no gauge are not in it. */
export function sample(gauges: readonly Gauge[], time: number): Partial<UsagePoint> & { time: number } {
  const made: Partial<UsagePoint> & { time: number } = { time };
  for (const gauge of gauges) if (MEASURES.has(gauge.kind)) made[gauge.kind as Measure] = gauge.used;
  return made;
}

export type Sample = ReturnType<typeof sample>;

export interface Curve {
  times: number[];
  left: number[];
}

const MOST_POINTS = 600;

/** What the gauge had left at each point, and now. */
export function curve(gauge: Gauge, points: readonly Sample[], started: number, now: number): Curve | null {
  const { limit } = gauge;
  if (limit === null) return null;
  if (gauge.kind === "seconds") return { times: [started, now], left: [limit, Math.max(0, limit - gauge.used)] };
  if (!MEASURES.has(gauge.kind)) return null;
  const known = points.filter((point) => point[gauge.kind as Measure] !== undefined && point.time <= now);
  // Attempts that came to nothing and the like may be charged outside of calls: the gauge has the last word.
  const made: [number, number][] = [[Math.min(started, known[0]?.time ?? started), limit]];
  for (const point of known) made.push([point.time, limit - Math.min(point[gauge.kind as Measure]!, gauge.used)]);
  made.push([now, limit - gauge.used]);
  const stride = Math.max(1, Math.ceil(made.length / MOST_POINTS));
  const kept = made.filter((_, index) => index % stride === 0 || index === made.length - 1);
  return { times: kept.map(([time]) => time), left: kept.map(([, left]) => left) };
}

const SPAN = 30; // seconds that tell the present rate
const LEAST = 6; // points in it at least, where there are so many
const SHORTEST = 1; // seconds: a shorter time tells no rate

/** Seconds until the landing must begin at the present rate: what is left above the landing reserve. Null: no telling. */
export function timeToLimit(gauge: Gauge, points: readonly Sample[], now: number): number | null {
  if (gauge.limit === null) return null;
  const free = Math.max(0, gauge.limit - gauge.reserve - gauge.used - (gauge.kind === "seconds" ? 0 : gauge.reserved));
  if (gauge.kind === "seconds") return free;
  if (!MEASURES.has(gauge.kind)) return null;
  let first: { time: number; used: number } | null = null;
  let seen = 0;
  for (let index = points.length - 1; index >= 0; index -= 1) {
    const point = points[index]!;
    const used = point[gauge.kind as Measure];
    if (used === undefined || point.time > now) continue;
    if (first && now - point.time > SPAN && seen >= LEAST) break;
    first = { time: point.time, used };
    seen += 1;
  }
  if (!first || seen < 2 || now - first.time < SHORTEST) return null;
  const rate = (gauge.used - first.used) / (now - first.time);
  return rate > 0 ? free / rate : null;
}
