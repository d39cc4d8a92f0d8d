// A list of any length of which only the rows in view exist. Rows may have any height: they are measured as they come.

import type { ComponentChildren, VNode } from "preact";
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Scroller {
  show: (index: number) => void;
  toEnd: () => void;
}

interface Props {
  count: number;
  estimate: number;
  label: string;
  row: (index: number) => ComponentChildren;
  /** Stay at the end while the list grows, until somebody scrolls up. */
  follow?: boolean;
  handle?: { current: Scroller | null };
  onNearEnd?: () => void;
  onAway?: (away: boolean) => void;
  /** Called with the first row in view and the one behind the last. */
  onView?: (start: number, end: number) => void;
}

const SPARE = 400; // pixels drawn above and below what is in view
const AT_END = 48;

class Heights {
  readonly #known: number[] = [];
  #offsets = new Float64Array(1);
  #fresh = -1;

  constructor(private readonly estimate: number) {}

  offsets(count: number): Float64Array {
    if (this.#fresh !== count) {
      const made = this.#offsets.length > count ? this.#offsets : new Float64Array(count * 2 + 1);
      for (let index = 0; index < count; index += 1) made[index + 1] = made[index]! + (this.#known[index] ?? this.estimate);
      this.#offsets = made;
      this.#fresh = count;
    }
    return this.#offsets;
  }

  /** By how much the row's height has changed. */
  set(index: number, height: number): number {
    const before = this.#known[index] ?? this.estimate;
    if (Math.abs(before - height) < 0.5 && this.#known[index] !== undefined) return 0;
    this.#known[index] = height;
    this.#fresh = -1;
    return height - before;
  }
}

function firstAt(offsets: Float64Array, count: number, top: number): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle + 1]! <= top) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function Virtual({ count, estimate, label, row, follow = false, handle, onNearEnd, onAway, onView }: Props): VNode {
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef<Heights>(null!);
  heights.current ??= new Heights(estimate);
  const stuck = useRef(follow);
  const [, draw] = useState(0);
  const redraw = useCallback(() => draw((old) => old + 1), []);
  const [view, setView] = useState({ top: 0, height: 800 });

  const offsets = heights.current.offsets(count);
  const total = offsets[count] ?? 0;
  const start = Math.max(0, firstAt(offsets, count, view.top - SPARE));
  let end = start;
  while (end < count && offsets[end]! < view.top + view.height + SPARE) end += 1;

  const observer = useRef<ResizeObserver>(null!);
  observer.current ??= new ResizeObserver((entries) => {
    const place = box.current;
    if (!place) return;
    let shift = 0;
    let changed = false;
    const known = heights.current;
    for (const entry of entries) {
      const index = Number((entry.target as HTMLElement).dataset["index"]);
      const top = (entry.target as HTMLElement).offsetTop;
      const difference = known.set(index, (entry.target as HTMLElement).offsetHeight);
      if (difference) changed = true;
      if (difference && top < place.scrollTop) shift += difference;
    }
    if (!changed) return;
    if (shift && !stuck.current) place.scrollTop += shift;
    redraw();
  });

  useLayoutEffect(() => {
    const place = box.current!;
    const measure = (): void => setView((old) => (old.top === place.scrollTop && old.height === place.clientHeight ? old : { top: place.scrollTop, height: place.clientHeight }));
    const onScroll = (): void => {
      const away = place.scrollHeight - place.scrollTop - place.clientHeight > AT_END;
      if (stuck.current === away) {
        stuck.current = !away;
        onAway?.(away);
      }
      measure();
      if (place.scrollHeight - place.scrollTop - place.clientHeight < 800) onNearEnd?.();
    };
    const resized = new ResizeObserver(measure);
    resized.observe(place);
    place.addEventListener("scroll", onScroll, { passive: true });
    measure();
    return () => {
      resized.disconnect();
      place.removeEventListener("scroll", onScroll);
      observer.current.disconnect();
    };
  }, []);

  useLayoutEffect(() => {
    const place = box.current!;
    if (follow && stuck.current && place.scrollHeight - place.scrollTop - place.clientHeight > 1) place.scrollTop = place.scrollHeight;
  });

  const seenFrom = firstAt(offsets, count, view.top);
  const seenTo = Math.min(count, firstAt(offsets, count, view.top + view.height) + 1);
  useLayoutEffect(() => onView?.(seenFrom, seenTo), [seenFrom, seenTo]);

  if (handle) {
    handle.current = {
      show: (index) => {
        const place = box.current;
        if (!place) return;
        const known = heights.current.offsets(count);
        const top = known[index] ?? 0;
        const bottom = known[index + 1] ?? top;
        stuck.current = false;
        if (top < place.scrollTop) place.scrollTop = Math.max(0, top - 8);
        else if (bottom > place.scrollTop + place.clientHeight) place.scrollTop = Math.min(bottom - place.clientHeight + 8, Math.max(0, top - 8));
      },
      toEnd: () => {
        stuck.current = true;
        if (box.current) box.current.scrollTop = box.current.scrollHeight;
        onAway?.(false);
        redraw();
      },
    };
  }

  const rows: VNode[] = [];
  for (let index = start; index < end; index += 1) rows.push(<Row key={index} index={index} count={count} top={offsets[index]!} observer={observer.current}>{row(index)}</Row>);
  return (
    <div class="virtual" ref={box} tabIndex={0} role="region" aria-label={label}>
      <div class="virtual-space" role="list" style={{ height: `${total}px` }}>{rows}</div>
    </div>
  );
}

function Row({ index, count, top, observer, children }: { index: number; count: number; top: number; observer: ResizeObserver; children: ComponentChildren }): VNode {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const place = box.current!;
    observer.observe(place);
    return () => observer.unobserve(place);
  }, []);
  return <div ref={box} class="virtual-row" role="listitem" aria-posinset={index + 1} aria-setsize={count} data-index={index} style={{ top: `${top}px` }}>{children}</div>;
}
