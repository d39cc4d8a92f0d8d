// One gauge per limit: what is used, what calls in flight have reserved, what is kept for the landing, and the limit.

import type { VNode } from "preact";
import { curve, timeToLimit, type Sample } from "../burn";
import { amount, duration, gaugeName } from "../format";
import type { Card, Gauge } from "../types";
import { BurnChart } from "./burnchart";

export function share(gauge: Gauge): number {
  return gauge.limit ? Math.min(1, (gauge.used + gauge.reserved) / gauge.limit) : 0;
}

/** The gauge that runs out first. */
export function tightest(gauges: Gauge[]): Gauge | null {
  return gauges.reduce<Gauge | null>((found, gauge) => (gauge.limit && (!found || share(gauge) > share(found)) ? gauge : found), null);
}

function part(value: number, limit: number): string {
  return `${Math.max(0, Math.min(100, (value / limit) * 100))}%`;
}

function level(gauge: Gauge): string {
  if (!gauge.limit) return "ok";
  const taken = gauge.used + gauge.reserved;
  if (gauge.used > gauge.limit) return "over";
  return taken > gauge.limit - gauge.reserve || taken / gauge.limit > 0.9 ? "near" : "ok";
}

export function GaugeBar({ gauge }: { gauge: Gauge }): VNode {
  const { limit } = gauge;
  const parts = [`${amount(gauge, gauge.used)} used`];
  if (gauge.reserved) parts.push(`${amount(gauge, gauge.reserved)} reserved`);
  if (gauge.reserve) parts.push(`${amount(gauge, gauge.reserve)} kept for the landing`);
  parts.push(limit ? `limit ${amount(gauge, limit)}` : "no limit");
  return (
    <div class={`bar level-${level(gauge)}`} role="meter" aria-label={gaugeName(gauge.kind)} aria-valuemin={0} aria-valuemax={limit ?? undefined} aria-valuenow={limit ? Math.min(gauge.used, limit) : gauge.used} aria-valuetext={parts.join(", ")} title={parts.join(", ")}>
      {limit ? (
        <>
          {gauge.reserve > 0 && <span class="bar-reserve" style={{ width: part(gauge.reserve, limit) }} />}
          <span class="bar-reserved" style={{ width: part(gauge.used + gauge.reserved, limit) }} />
          <span class="bar-used" style={{ width: part(gauge.used, limit) }} />
        </>
      ) : null}
    </div>
  );
}

interface Props {
  card: Pick<Card, "gauges" | "started" | "ended" | "state" | "updated">;
  samples: readonly Sample[];
  now: number;
  chosen: string | null;
  choose: (kind: string) => void;
}

export function GaugePanel({ card, samples, now, chosen, choose }: Props): VNode {
  const limited = card.gauges.filter((gauge) => gauge.limit !== null);
  const free = card.gauges.filter((gauge) => gauge.limit === null);
  const shown = limited.find((gauge) => gauge.kind === chosen) ?? tightest(limited);
  const end = card.ended ?? (card.state === "running" ? now : card.updated);
  const line = shown ? curve(shown, samples, card.started, end) : null;
  return (
    <div class="gauges">
      {limited.map((gauge) => (
        <GaugeRow key={gauge.kind} gauge={gauge} live={card.state === "running"} left={card.state === "running" ? timeToLimit(gauge, samples, now) : null} on={gauge.kind === shown?.kind} choose={() => choose(gauge.kind)} />
      ))}
      {free.length > 0 && <p class="muted small">No limit on {free.map((gauge) => `${gaugeName(gauge.kind).toLowerCase()} (${amount(gauge, gauge.used)} used)`).join(", ")}.</p>}
      {limited.length > 0 && (
        <ul class="legend" aria-label="What the bars show">
          <li><i class="swatch used" />used</li><li><i class="swatch reserved" />reserved by calls in flight</li><li><i class="swatch reserve" />kept for the landing</li>
        </ul>
      )}
      {!card.gauges.length && <p class="muted small">This run has no limits.</p>}
      {shown && line && line.times.length > 1 && <BurnChart gauge={shown} line={line} />}
    </div>
  );
}

function GaugeRow({ gauge, left, live, on, choose }: { gauge: Gauge; left: number | null; live: boolean; on: boolean; choose: () => void }): VNode {
  const name = gaugeName(gauge.kind);
  const parts = [gauge.reserved > 0 && `${amount(gauge, gauge.reserved)} reserved`, gauge.reserve > 0 && `${amount(gauge, gauge.reserve)} for landing`].filter(Boolean).join(" · ");
  const eta = !live || left === null ? "" : left <= 0 ? "landing is due" : left < 1 ? "under 1 s to limit" : `${left < 60 ? `${Math.round(left)} s` : duration(left)} to limit`;
  return (
    <div class={on ? "gauge on" : "gauge"} data-gauge={gauge.kind}>
      <div class="gauge-head">
        <button type="button" class="gauge-name" aria-pressed={on} title={`Show the burn-down of ${name.toLowerCase()}`} onClick={choose}>{name}</button>
        <span class="gauge-value num">{amount(gauge, gauge.used)}<span class="muted"> / {amount(gauge, gauge.limit ?? 0)}</span></span>
      </div>
      <GaugeBar gauge={gauge} />
      {(parts || eta) && <div class="gauge-foot num"><span>{parts}</span><span data-eta>{eta}</span></div>}
    </div>
  );
}
