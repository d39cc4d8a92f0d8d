// The glide path: level flight, the notice, the descent, the ground. Where a run is, in a glance.

import type { VNode } from "preact";
import type { Card, Phase } from "../types";
import { tone } from "./bits";

const LABELS: Record<Phase, string> = { cruise: "Cruise", notice: "Notice", landing: "Landing", ground: "Ground" };
const ORDER: Phase[] = ["cruise", "notice", "landing", "ground"];
// One path in four pieces, and where the marker sits on each.
const PIECES: Record<Phase, string> = { cruise: "M4 8H52", notice: "M52 8C72 8 84 9 100 13", landing: "M100 13C122 19 126 30 152 30", ground: "M152 30H204" };
const SPOTS: Record<Phase, [number, number]> = { cruise: [26, 8], notice: [78, 9.2], landing: [127, 23], ground: [180, 30] };

type Shown = Pick<Card, "state" | "outcome" | "phase">;

export function PhaseTrack({ card, small = false }: { card: Shown; small?: boolean }): VNode {
  const at = ORDER.indexOf(card.phase);
  const [x, y] = SPOTS[card.phase] ?? SPOTS.cruise;
  return (
    <div class={`phase tone-${tone(card)}${small ? " phase-small" : ""}`} role="img" aria-label={`Phase: ${LABELS[card.phase] ?? card.phase}`} data-phase={card.phase}>
      <svg viewBox="0 0 208 38" width={small ? 88 : 208} height={small ? 16 : 38} aria-hidden="true">
        {ORDER.map((phase, place) => <path key={phase} d={PIECES[phase]} class={place <= at ? "flown" : "ahead"} />)}
        <circle cx={x} cy={y} r={small ? 8 : 4.5} class={card.state === "running" ? "marker moving" : "marker"} />
      </svg>
      {!small && <ol class="phase-labels">{ORDER.map((phase) => <li key={phase} class={phase === card.phase ? "now" : undefined}>{LABELS[phase]}</li>)}</ol>}
    </div>
  );
}
