// Pass rate by the budget of a run: as predicted from one evaluation, and where it was tried, as it was.

import type { VNode } from "preact";
import { narrow } from "../theme";
import type { EvalDetail } from "../types";

type Curve = NonNullable<EvalDetail["curve"]>;
type Point = Curve["points"][number];

const HIGH = 240;
const LEFT = 46;
const TOP = 12;
const RIGHT = 34;
const LINES = [0, 0.25, 0.5, 0.75, 1];
const APART = 70; // pixels between two labels

export function EvalCurve({ curve }: { curve: Curve }): VNode {
  const full = narrow.value ? 330 : 720;
  const { points } = curve;
  const values = points.map((point) => Math.max(1e-12, Number(point.limit)));
  const low = Math.log10(Math.min(...values));
  const span = Math.log10(Math.max(...values)) - low || 1;
  const wide = full - LEFT - RIGHT;
  const x = (place: number): number => LEFT + (wide * (Math.log10(values[place]!) - low)) / span;
  const y = (part: number): number => TOP + HIGH * (1 - part);
  const predicted = points.map((point) => (point.covered ? point.passed / point.covered : 0));
  const real = points.map((point) => ((point.real_passed ?? null) === null || !point.covered ? null : point.real_passed! / point.covered));
  const tried = real.some((part) => part !== null);
  const best = Math.max(...predicted);
  const label = `Pass rate by ${curve.by}: ${Math.round(predicted[0]! * 100)} % at ${points[0]!.limit}, ${Math.round(predicted.at(-1)! * 100)} % at ${points.at(-1)!.limit}; the best is reached from ${points[predicted.indexOf(best)]!.limit}`;
  const labels = points.map((_, place) => place).reduceRight<number[]>((found, place) => (found.length === 0 || x(found[0]!) - x(place) >= APART ? [place, ...found] : found), []);
  return (
    <figure class="eval-curve">
      <div class="eval-plot" tabIndex={0} role="group" aria-label="Curve">
        <svg viewBox={`0 0 ${full} ${TOP + HIGH + 26}`} width={full} role="img" aria-label={label}>
          {LINES.map((part) => <g key={part}><line x1={LEFT} x2={full - RIGHT} y1={y(part)} y2={y(part)} class="curve-grid" /><text x={LEFT - 6} y={y(part) + 4} text-anchor="end">{part * 100} %</text></g>)}
          {labels.map((place) => <text key={place} x={x(place)} y={TOP + HIGH + 18} text-anchor="middle">{points[place]!.limit}</text>)}
          <Line parts={predicted} x={x} y={y} points={points} name="predicted" />
          {tried && <Line parts={real} x={x} y={y} points={points} name="real" />}
        </svg>
      </div>
      <figcaption><span class="curve-key curve-predicted">predicted from one evaluation{points.some(isAssumed) && "; hollow: most runs land"}</span>{tried && <span class="curve-key curve-real">run again with that budget</span>}</figcaption>
    </figure>
  );
}

/** Most runs land there: what they would say is assumed. */
function isAssumed(point: Point): boolean {
  return 2 * (point.landed ?? 0) > point.covered;
}

interface LineProps {
  parts: (number | null)[];
  x: (place: number) => number;
  y: (part: number) => number;
  points: Point[];
  name: string;
}

function Line({ parts, x, y, points, name }: LineProps): VNode {
  const known = parts.map((part, place) => (part === null ? null : { place, part })).filter((each) => each !== null);
  return (
    <g class={`curve-${name}`} data-curve={name}>
      <polyline points={known.map(({ place, part }) => `${x(place).toFixed(1)},${y(part).toFixed(1)}`).join(" ")} />
      {known.map(({ place, part }) => <circle key={place} cx={x(place)} cy={y(part)} r={name === "predicted" ? 5 : 2.5} class={name === "predicted" && isAssumed(points[place]!) ? "curve-assumed" : undefined}><title>{`${points[place]!.limit}: ${Math.round(part * 100)} %${isAssumed(points[place]!) ? ", most runs land" : ""}`}</title></circle>)}
    </g>
  );
}
