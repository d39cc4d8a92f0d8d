// The exact request of a model call: parameters, system prompt, tools, messages.

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { ApiError, api } from "../api";
import { LongText, Tag } from "../components/bits";
import { panel } from "../components/dialog";
import { MessageRow } from "../components/message";
import { count, line, plural } from "../format";
import type { ModelRequest, Span } from "../types";

export async function showRequest(id: string, span: Span): Promise<void> {
  let found: ModelRequest | null = null;
  let problem = "";
  try {
    found = await api.request(id, span.started);
  } catch (error) {
    problem = error instanceof ApiError ? error.message : String(error);
  }
  panel(`Request of turn ${span.turn ?? 0}${span.attempt && span.attempt > 1 ? `, attempt ${span.attempt}` : ""}`, () => (found ? <Request request={found} /> : <p>{problem}</p>), true);
}

const SHOWN = 20; // messages at the end that are drawn at once

function Request({ request }: { request: ModelRequest }): VNode {
  const [all, setAll] = useState(false);
  const { messages } = request;
  const hidden = all ? 0 : Math.max(0, messages.length - SHOWN);
  const allowed = new Set(request.allowed ?? request.tools.map((tool) => tool.name));
  return (
    <div class="request" data-request>
      <dl class="facts">
        <div><dt>Model</dt><dd class="mono">{request.model}</dd></div>
        {Object.entries(request.parameters).map(([name, value]) => <div key={name}><dt>{name.replaceAll("_", " ")}</dt><dd class="mono">{typeof value === "string" ? value : JSON.stringify(value)}</dd></div>)}
      </dl>
      {request.note && <p class="muted" role="note">{request.note}</p>}
      <h3>System prompt</h3>
      {request.system ? <LongText text={request.system} render={(text) => <pre class="code wrap" tabIndex={0} dir="auto" data-system>{text}</pre>} /> : <p class="muted">None.</p>}
      <h3>{plural(request.tools.length, "tool")}</h3>
      {request.tools.map((tool) => (
        <details class="fold" key={tool.name}>
          <summary><code>{tool.name}</code> {!allowed.has(tool.name) && <Tag tone="warn" title="Defined, so that the prompt cache holds, and not allowed in this call">not allowed</Tag>} <span class="muted">{line(tool.description, 90)}</span></summary>
          <p>{tool.description}</p>
          <pre class="code wrap" tabIndex={0}>{JSON.stringify(tool.parameters, null, 2)}</pre>
        </details>
      ))}
      <h3>{plural(messages.length, "message")}</h3>
      {hidden > 0 && <p><button type="button" class="button small" onClick={() => setAll(true)}>Show the first {count(hidden)} as well</button></p>}
      {messages.slice(hidden).map((message) => <MessageRow key={message.index} message={message} call={null} repeats={false} />)}
    </div>
  );
}
