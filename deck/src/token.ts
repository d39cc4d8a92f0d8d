// A one-time code or the token comes in the address's fragment, which no server ever sees, and leaves the address at once.

const KEY = "glidepath.token";

function fromFragment(fragment: string): { code: string | null; token: string | null; rest: string } {
  const body = fragment.replace(/^#/, "");
  const mark = body.indexOf("?");
  const path = mark >= 0 ? body.slice(0, mark) : body.includes("=") ? "" : body;
  const query = mark >= 0 ? body.slice(mark + 1) : body.includes("=") ? body : "";
  const fields = new URLSearchParams(query);
  const token = fields.get("token");
  const code = fields.get("code");
  if (token === null && code === null) return { code, token, rest: body };
  fields.delete("token");
  fields.delete("code");
  const left = fields.toString();
  return { code, token, rest: path + (left ? `?${left}` : "") };
}

/** Take the secret out of the address, if there is one, and keep the token for this tab only. */
export async function adoptToken(): Promise<void> {
  const { code, token, rest } = fromFragment(location.hash);
  if (token === null && code === null) return;
  history.replaceState(null, "", `${location.pathname}${location.search}#${rest || "/runs"}`);
  if (token !== null) keepToken(token);
  else if (code !== null) await redeem(code);
}

/** Exchange a one-time code for the token. One that was used before leaves what this tab has. */
async function redeem(code: string): Promise<void> {
  try {
    const answer = await fetch("api/unlock", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code }),
    });
    if (answer.ok) keepToken(((await answer.json()) as { token: string }).token);
  } catch {
    // The server is gone: the page says so when it asks for what it shows.
  }
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
