// The token comes in the address's fragment, which no server ever sees, and leaves the address at once.

const KEY = "glidepath.token";

function fromFragment(fragment: string): { token: string | null; rest: string } {
  const body = fragment.replace(/^#/, "");
  const mark = body.indexOf("?");
  const path = mark >= 0 ? body.slice(0, mark) : body.includes("=") ? "" : body;
  const query = mark >= 0 ? body.slice(mark + 1) : body.includes("=") ? body : "";
  const fields = new URLSearchParams(query);
  const token = fields.get("token");
  if (token === null) return { token: null, rest: body };
  fields.delete("token");
  const left = fields.toString();
  return { token, rest: path + (left ? `?${left}` : "") };
}

/** Take the token out of the address, if there is one, and keep it for this tab only. */
export function adoptToken(): void {
  const { token, rest } = fromFragment(location.hash);
  if (token === null) return;
  keepToken(token);
  history.replaceState(null, "", `${location.pathname}${location.search}#${rest || "/runs"}`);
}

let held = "";

export function keepToken(token: string): void {
  held = token.trim();
  try {
    sessionStorage.setItem(KEY, held);
  } catch {
    // Storage is switched off: the token lives as long as the page.
  }
}

export function currentToken(): string {
  if (held) return held;
  try {
    held = sessionStorage.getItem(KEY) ?? "";
  } catch {
    // As above.
  }
  return held;
}
