// The page's places live in the fragment: no server route is needed, and an exported file works from the disk.

import { signal } from "@preact/signals";

export type Route =
  | { view: "runs" }
  | { view: "run"; id: string; tab: string }
  | { view: "approvals" }
  | { view: "fleet" }
  | { view: "evals"; name: string | null }
  | { view: "compare"; left: string | null; right: string | null };

export function parse(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("?")[0]!.split("/").filter(Boolean).map(decode);
  const [first, second, third] = parts;
  if (first === "runs" && second) return { view: "run", id: second, tab: third ?? "transcript" };
  if (first === "approvals") return { view: "approvals" };
  if (first === "evals") return { view: "evals", name: second ?? null };
  if (first === "fleet") return { view: "fleet" };
  if (first === "compare") return { view: "compare", left: second ?? null, right: third ?? null };
  return { view: "runs" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(parse(location.hash));

export const places = {
  runs: () => "#/runs",
  run: (id: string, tab?: string) => `#/runs/${encodeURIComponent(id)}${tab && tab !== "transcript" ? `/${tab}` : ""}`,
  approvals: () => "#/approvals",
  fleet: () => "#/fleet",
  evals: (name?: string) => `#/evals${name ? `/${encodeURIComponent(name)}` : ""}`,
  compare: (left?: string | null, right?: string | null) =>
    `#/compare${left ? `/${encodeURIComponent(left)}${right ? `/${encodeURIComponent(right)}` : ""}` : ""}`,
};

export function go(place: string): void {
  location.hash = place.slice(1);
}

export function startRouter(): void {
  route.value = parse(location.hash);
  window.addEventListener("hashchange", () => {
    route.value = parse(location.hash);
  });
}
