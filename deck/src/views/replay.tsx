// The slider over the journal: any turn again, as it stood when it ended.

import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { Icon } from "../components/bits";
import type { RunStore } from "../store/run";

const A_TURN = 700; // milliseconds, when played

export function Replay({ store, turns }: { store: RunStore; turns: number }): VNode {
  const replay = store.replay.value;
  const playing = useSignal(false);
  const timer = useRef(0);
  const at = replay?.turn ?? turns;
  useEffect(() => {
    if (!playing.value) return undefined;
    timer.current = window.setInterval(() => {
      const next = (store.replay.peek()?.turn ?? -1) + 1;
      if (next >= turns) {
        playing.value = false;
        void store.showTurn(null);
      } else void store.showTurn(next);
    }, A_TURN);
    return () => clearInterval(timer.current);
  }, [playing.value, turns]);
  const play = (): void => {
    if (!playing.peek() && !store.replay.peek()) void store.showTurn(0);
    playing.value = !playing.peek();
  };
  return (
    <div class={replay ? "replay on" : "replay"}>
      <button type="button" class="button icon-only" aria-label={playing.value ? "Pause the replay" : "Replay the run"} onClick={play}><Icon name={playing.value ? "pause" : "resume"} /></button>
      <input type="range" min={0} max={turns} step={1} value={at} aria-label="Turn" aria-valuetext={replay ? `turn ${at} of ${turns}` : `turn ${turns}, the present`}
        onInput={(event) => {
          const turn = Number(event.currentTarget.value);
          void store.showTurn(turn >= turns ? null : turn);
        }} />
      <span class="num replay-turn">{at} / {turns}</span>
      {replay && <button type="button" class="button small" onClick={() => { playing.value = false; void store.showTurn(null); }}>Back to now</button>}
    </div>
  );
}
