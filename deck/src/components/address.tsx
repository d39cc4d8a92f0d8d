// Where a link leads, before anything follows it.

import type { VNode } from "preact";
import { panel } from "./dialog";

const SAFE = new Set(["http:", "https:", "mailto:"]);

export function safeAddress(target: string): URL | null {
  try {
    const url = new URL(target);
    return SAFE.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

export function showAddress(target: string, image: boolean): void {
  panel(image ? "An image the model named" : "A link the model wrote", () => <Address target={target} image={image} />);
}

function Address({ target, image }: { target: string; image: boolean }): VNode {
  const url = safeAddress(target);
  return (
    <>
      <p class="muted">
        {image ? "Images are not fetched: the request itself could carry data out of this page." : "This page never opens a model's links by itself. Check the address first."}
      </p>
      <pre class="code wrap" tabIndex={0}>{target.slice(0, 4000)}</pre>
      {url
        ? <p><a href={url.href} target="_blank" rel="noopener noreferrer nofollow">Open {url.protocol === "mailto:" ? "the mail" : url.host} in a new tab</a></p>
        : <p class="muted">This address cannot be opened from here: only http, https and mailto can.</p>}
    </>
  );
}
