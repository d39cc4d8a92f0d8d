// A question of the server, row by row and as text: bidirectional text keeps the order in which it runs.

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Seconds after a question is drawn within which nobody can have read it. */
const UNREAD = 0.7;

export function ShownCall({ rows, onEnd }: { rows: string[]; onEnd?: () => void }): VNode {
  const box = useRef<HTMLDivElement>(null);
  const [left, setLeft] = useState(0);
  const look = (): void => {
    const element = box.current;
    if (!element) return;
    const bottom = element.getBoundingClientRect().top + element.clientHeight;
    const below = Array.from(element.children).filter((row) => row.getBoundingClientRect().bottom > bottom + 2).length;
    setLeft(below);
    if (!below) onEnd?.();
  };
  useEffect(() => {
    look();
    const watch = new ResizeObserver(look);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, [rows]);
  return (
    <>
      <div class="shown-call" ref={box} tabIndex={0} role="group" aria-label="The whole call" dir="ltr" onScroll={look}>
        {rows.map((row, place) => <div class="shown-row" key={place}>{row}</div>)}
      </div>
      {left > 0 && <p class="shown-left" role="status">{left} of {rows.length} rows are below: scroll to the end to approve.</p>}
    </>
  );
}

/** Whether a person can have read what was just drawn, whether they have seen its end, and what to call when they have. */
export function useRead(key: string): [boolean, boolean, () => void] {
  const [seen, setSeen] = useState<string | null>(null);
  const [ripe, setRipe] = useState<string | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => setRipe(key), UNREAD * 1000);
    return () => window.clearTimeout(timer);
  }, [key]);
  return [ripe === key, seen === key, () => setSeen(key)];
}
