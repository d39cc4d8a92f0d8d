// What a limit has left, falling over time; the dashed line is the landing reserve.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Curve } from "../burn";
import { amount, gaugeName } from "../format";
import { themeVersion } from "../theme";
import type { Gauge } from "../types";

const HEIGHT = 128;

/** A figure beside an axis: short, because there is little room. */
function tick(gauge: Gauge, value: number): string {
  return gauge.unit === "s" ? shortTime(value) : amount(gauge, value);
}

function shortTime(seconds: number): string {
  if (seconds < 1 && seconds > 0) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  return seconds < 7200 ? `${Number((seconds / 60).toFixed(1))} min` : `${Number((seconds / 3600).toFixed(1))} h`;
}

function ink(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

function options(gauge: Gauge, width: number): uPlot.Options {
  const grid = ink("--line");
  const text = ink("--muted");
  const axis = { stroke: text, font: `11px ${ink("--sans")}`, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width, height: HEIGHT, padding: [8, 6, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false }, y: { range: (_, __, top) => [0, Math.max(top, gauge.limit ?? 1)] } },
    axes: [
      { ...axis, size: 22, space: 60, values: (_, values) => values.map((value) => (value === 0 ? "start" : shortTime(value))) },
      { ...axis, size: 52, space: 34, values: (_, values) => values.map((value) => tick(gauge, value)) },
    ],
    series: [
      {},
      { label: "left", stroke: ink("--live"), width: 2, fill: ink("--live-wash"), paths: gauge.kind === "seconds" ? undefined : uPlot.paths.stepped?.({ align: 1 }), points: { show: false } },
      { label: "landing reserve", stroke: ink("--landing"), width: 1.5, dash: [4, 4], points: { show: false } },
    ],
  };
}

export function BurnChart({ gauge, line }: { gauge: Gauge; line: Curve }): VNode {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const start = line.times[0] ?? 0;
  const data: uPlot.AlignedData = [line.times.map((time) => time - start), line.left, line.times.map(() => gauge.reserve)];
  const themed = themeVersion.value;
  useEffect(() => {
    const place = box.current;
    if (!place) return undefined;
    plot.current = new uPlot(options(gauge, place.clientWidth || 300), data, place);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: place.clientWidth || 300, height: HEIGHT }));
    watch.observe(place);
    return () => {
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [gauge.kind, gauge.limit, themed]);
  useLayoutEffect(() => {
    plot.current?.setData(data);
  }, [line.times.length, line.times.at(-1), line.left.at(-1), gauge.reserve]);
  const left = line.left.at(-1) ?? 0;
  return (
    <figure class="burn" aria-label={`Burn-down of ${gaugeName(gauge.kind).toLowerCase()}: ${amount(gauge, left)} left of ${amount(gauge, gauge.limit ?? 0)}`}>
      <figcaption><span>{gaugeName(gauge.kind)} left</span><span class="num">{amount(gauge, left)}</span></figcaption>
      <div ref={box} class="burn-plot" aria-hidden="true" />
    </figure>
  );
}
