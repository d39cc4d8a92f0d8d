// Which calls repeat: the shortest period whose laps reach the end of the list.

export interface Repeat {
  period: number;
  laps: number;
  /** Index of the first call of the first lap. */
  start: number;
}

const LONGEST = 8;

export function repeating(signatures: string[], known: number | null = null): Repeat | null {
  const total = signatures.length;
  const periods = known && known > 0 ? [known] : Array.from({ length: Math.min(LONGEST, total >> 1) }, (_, index) => index + 1);
  for (const period of periods) {
    let equal = 0;
    while (equal + period < total && signatures[total - 1 - equal] === signatures[total - 1 - equal - period]) equal += 1;
    const laps = 1 + Math.floor(equal / period);
    if (laps >= 2) return { period, laps, start: total - laps * period };
  }
  return null;
}
