// Light, dark, or as the system has it.

import { signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const KEY = "glidepath.theme";

function kept(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto"; // storage is switched off, as in some exported files
  }
}

export const theme = signal<Theme>("auto");
/** Goes up when colors change: canvases draw again. */
export const themeVersion = signal(0);
export const narrow = signal(false);

function show(chosen: Theme): void {
  theme.value = chosen;
  if (chosen === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  themeVersion.value += 1;
}

export function nextTheme(): void {
  const chosen: Theme = theme.peek() === "auto" ? "light" : theme.peek() === "light" ? "dark" : "auto";
  show(chosen);
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // It holds for this page only.
  }
}

export function startTheme(): void {
  show(kept());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (themeVersion.value += 1));
  const small = matchMedia("(max-width: 860px)");
  narrow.value = small.matches;
  small.addEventListener("change", () => (narrow.value = small.matches));
}
