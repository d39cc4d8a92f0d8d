// The glide path: level flight, the notice, the descent, the ground. Where a run is, in a glance.

import type { VNode } from "preact";
import type { Card, Phase } from "../types";
import { tone } from "./bits";

const LABELS: Record<Phase, string> = { cruise: "Cruise", notice: "Notice", landing: "Landing", ground: "Ground" };
const ORDER: Phase[] = ["cruise", "notice", "landing", "ground"];
// One path in four pieces, and where the marker sits on each.
const PIECES: Record<Phase, string> = { cruise: "M4 8H46", notice: "M46 8C58 8 62 9 70 12", landing: "M70 12C86 18 90 28 112 30", ground: "M112 30H148" };
const SPOTS: Record<Phase, [number, number]> = { cruise: [28, 8], notice: [59, 9], landing: [90, 22], ground: [132, 30] };

type Shown = Pick<Card, "state" | "outcome" | "phase">;

export function PhaseTrack({ card, small = false }: { card: Shown; small?: boolean }): VNode {
  const at = ORDER.indexOf(card.phase);
  const [x, y] = SPOTS[card.phase] ?? SPOTS.cruise;
  return (
    <div class={`phase tone-${tone(card)}${small ? " phase-small" : ""}`} role="img" aria-label={`Phase: ${LABELS[card.phase] ?? card.phase}`} data-phase={card.phase}>
      <svg viewBox="0 0 152 38" width={small ? 76 : 152} height={small ? 19 : 38} aria-hidden="true">
        {ORDER.map((phase, place) => <path key={phase} d={PIECES[phase]} class={place <= at ? "flown" : "ahead"} />)}
        <circle cx={x} cy={y} r={small ? 5 : 4} class={card.state === "running" ? "marker moving" : "marker"} />
      </svg>
      {!small && <ol class="phase-labels">{ORDER.map((phase) => <li key={phase} class={phase === card.phase ? "now" : undefined}>{LABELS[phase]}</li>)}</ol>}
    </div>
  );
}
