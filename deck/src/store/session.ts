// Who we are to the server, what time it is there, and whether we can hear it.

import { computed, signal } from "@preact/signals";
import { ApiError, api } from "../api";
import { embedded } from "../embedded";
import type { LinkState } from "../stream";
import type { Info, Switch } from "../types";

export const info = signal<Info | null>(null);
export const problem = signal<ApiError | null>(null);
export const link = signal<LinkState>({ kind: "connecting" });
/** When the list was last known to be true, in this machine's milliseconds. */
export const heard = signal(Date.now());

/** The kill switches that are thrown: what they hold back does not start. */
export const switches = signal<Switch[]>([]);

const offset = signal(0);
const tick = signal(Date.now());
/** The server's clock, in seconds, once a second: an exported run stands still. */
export const now = computed(() => (embedded() ? (embedded()?.data.exported ?? tick.value / 1000) : tick.value / 1000 + offset.value));
/** The same, to the millisecond, without following it. */
export const exactNow = (): number => Date.now() / 1000 + offset.peek();

export const offline = computed(() => embedded() !== null);
const may = (right: string): boolean => info.value?.rights?.includes(right) === true && !offline.value;
export const mayControl = computed(() => may("steer"));
export const mayKill = computed(() => may("kill"));
export const mayStop = computed(() => may("stop"));
export const mayDecide = computed(() => may("decide"));
export const mayStart = computed(() => may("start"));
export const needsToken = computed(() => problem.value?.status === 401);

export async function loadInfo(): Promise<boolean> {
  try {
    const found = await api.info();
    info.value = found;
    problem.value = null;
    if (found.now) offset.value = found.now - Date.now() / 1000;
    return true;
  } catch (error) {
    problem.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
    return false;
  }
}

export function startClock(): void {
  window.setInterval(() => {
    if (!document.hidden) tick.value = Date.now();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) tick.value = Date.now();
  });
}
