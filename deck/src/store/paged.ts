// A long list of which only the pages in view are here.

import { signal } from "@preact/signals";

export interface Page<T> {
  items: T[];
  total: number;
}

export class Paged<T> {
  readonly total = signal(0);
  /** Goes up when a page came in or was thrown away: what shows items reads it. */
  readonly version = signal(0);
  readonly failed = signal(false);
  #pages = new Map<number, T[]>();
  #asked = new Set<number>();

  constructor(private readonly load: (start: number, limit: number) => Promise<Page<T>>, readonly size = 100) {}

  /** The item, or undefined while its page is on its way. */
  get(index: number): T | undefined {
    const number = Math.floor(index / this.size);
    const found = this.#pages.get(number)?.[index - number * this.size];
    if (found === undefined && index < this.total.peek()) this.want(number);
    return found;
  }

  has(index: number): boolean {
    return this.#pages.get(Math.floor(index / this.size))?.[index % this.size] !== undefined;
  }

  want(number: number): void {
    if (this.#asked.has(number)) return;
    this.#asked.add(number);
    void this.#fetch(number);
  }

  async #fetch(number: number): Promise<void> {
    try {
      const page = await this.load(number * this.size, this.size);
      this.#pages.set(number, page.items);
      this.failed.value = false;
      if (page.total > this.total.peek()) this.total.value = page.total;
      this.version.value += 1;
    } catch {
      this.failed.value = true;
    } finally {
      this.#asked.delete(number);
    }
  }

  /** The list has grown: its last page is read again, without a gap in what is shown. */
  async grow(total?: number): Promise<void> {
    if (total !== undefined && total > this.total.peek()) this.total.value = total;
    await this.#fetch(Math.floor(Math.max(0, (total ?? this.total.peek()) - 1) / this.size));
    const last = Math.floor(Math.max(0, this.total.peek() - 1) / this.size);
    if (!this.#pages.has(last)) await this.#fetch(last);
  }

  /** Items that came by themselves, in order, from `start` on. */
  put(start: number, items: readonly T[]): void {
    items.forEach((item, offset) => {
      const index = start + offset;
      const number = Math.floor(index / this.size);
      const place = index - number * this.size;
      const page = this.#pages.get(number);
      if (page) page[place] = item;
      else if (place === 0) this.#pages.set(number, [item]);
    });
    if (start + items.length > this.total.peek()) this.total.value = start + items.length;
    this.version.value += 1;
  }
}
