// Keyboard first. A view lends its keys while it is shown; the newest view's keys win.

import { useEffect } from "preact/hooks";

export interface Key {
  key: string;
  label: string;
  group: string;
  run: () => void;
  /** False hides it and passes the key on. */
  when?: () => boolean;
}

const stack: { keys: () => Key[] }[] = [];

export function useKeys(keys: () => Key[]): void {
  useEffect(() => {
    const entry = { keys };
    stack.push(entry);
    return () => {
      stack.splice(stack.indexOf(entry), 1);
    };
  });
}

export function currentKeys(): Key[] {
  const seen = new Set<string>();
  return [...stack].reverse().flatMap((entry) => entry.keys()).filter((key) => {
    if (seen.has(key.key) || key.when?.() === false) return false;
    seen.add(key.key);
    return true;
  });
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

let prefix = "";
let prefixTimer = 0;

export function startKeys(): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    if (document.querySelector("dialog[open]") || typing(event.target)) return;
    const onControl = event.target instanceof HTMLElement && event.target.closest("button, a, summary, [role=slider]");
    if (onControl && (event.key === "Enter" || event.key === " ")) return;
    const pressed = prefix ? `${prefix} ${event.key}` : event.key;
    prefix = "";
    clearTimeout(prefixTimer);
    const found = currentKeys().find((key) => key.key === pressed);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (pressed === "g") {
      prefix = "g";
      prefixTimer = window.setTimeout(() => (prefix = ""), 1200);
    }
  });
}
