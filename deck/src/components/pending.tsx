// A call that waits for a person: its exact arguments, why it waits, until when, and the four answers.

import type { VNode } from "preact";
import { answerFor, answerQuestion, approve, deny, editAndApprove } from "../controls";
import { ago, duration, line, moment } from "../format";
import { places } from "../router";
import { mayDecide, now } from "../store/session";
import type { Pending } from "../types";
import { Icon, Tag } from "./bits";
import { ShownCall } from "./shown";

export function PendingCard({ call, chosen = false, where = true, after }: { call: Pending; chosen?: boolean; where?: boolean; after?: () => void }): VNode {
  const left = call.expires === null ? null : call.expires - now.value;
  const expired = left !== null && left <= 0;
  const question = call.kind === "question";
  const able = mayDecide.value && !expired;
  return (
    <article class={chosen ? "pending chosen" : "pending"} data-call={call.id} aria-label={`${call.tool_shown} is waiting for a decision`}>
      <header class="pending-head">
        <Tag tone="warn">{call.kind}</Tag>
        <code class="tool-name">{call.tool_shown}</code>
        <span class="muted">{call.agent}</span>
        <span class="spring" />
        <span class="muted num" title={moment(call.asked)}>asked {ago(now.value - call.asked)}</span>
        {left !== null && <Tag tone={expired ? "bad" : left < 60 ? "warn" : "plain"} title={moment(call.expires ?? 0)}>{expired ? "expired" : `expires in ${duration(Math.round(left))}`}</Tag>}
      </header>
      {where && <p class="pending-where"><a href={places.run(call.run_id)} dir="auto">{line(call.title || call.task || "open the run", 120)}</a> <span class="muted mono">{call.session_id}</span></p>}
      {call.origin && <p class="pending-origin"><Icon name="alert" size={14} /> Influenced by untrusted content: {call.origin}</p>}
      <ShownCall rows={call.shown} />
      <div class="pending-actions">
        {question ? (
          <button type="button" class="button primary" disabled={!able} onClick={() => answerQuestion(call, after)}><Icon name="check" />Answer</button>
        ) : (
          <>
            <button type="button" class="button primary" disabled={!able} onClick={() => approve(call, after)}><Icon name="check" />Approve</button>
            <button type="button" class="button" disabled={!able} onClick={() => editAndApprove(call, after)}><Icon name="edit" />Edit</button>
          </>
        )}
        <button type="button" class="button" disabled={!able} onClick={() => deny(call, after)}><Icon name="cross" />Deny</button>
        {!question && <button type="button" class="link" disabled={!able} onClick={() => answerFor(call, after)}>answer by hand</button>}
        {!mayDecide.value && <span class="muted small">Your token cannot decide: that takes the role approve or control.</span>}
      </div>
    </article>
  );
}
