// The inbox: everything that waits for a person, oldest first.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VNode } from "preact";
import { Empty, Failed, Loading } from "../components/bits";
import { PendingCard } from "../components/pending";
import { answerQuestion, approve, deny, editAndApprove } from "../controls";
import { useKeys } from "../keys";
import { go, places } from "../router";
import { approvals, approvalsKnown, approvalsProblem, refreshApprovals } from "../store/approvals";
import { mayDecide } from "../store/session";
import type { Pending } from "../types";

const chosen = signal(0);

export function ApprovalsView(): VNode {
  useEffect(() => void refreshApprovals(), []);
  const calls = [...approvals.value].sort((one, other) => one.asked - other.asked);
  const at = Math.min(chosen.value, Math.max(0, calls.length - 1));
  const here = calls[at];
  const after = (): void => void refreshApprovals();
  const move = (by: number): void => {
    chosen.value = Math.max(0, Math.min(calls.length - 1, at + by));
    document.querySelector(`[data-call="${CSS.escape(calls[chosen.peek()]?.id ?? "")}"]`)?.scrollIntoView({ block: "nearest" });
  };
  const able = (): boolean => mayDecide.peek() && here !== undefined;
  const yes = (call: Pending): void => (call.kind === "question" ? answerQuestion : approve)(call, after);
  useKeys(() => [
    { key: "j", label: "next", group: "Approvals", run: () => move(1) },
    { key: "k", label: "previous", group: "Approvals", run: () => move(-1) },
    { key: "a", label: "approve or answer", group: "Approvals", when: able, run: () => yes(here!) },
    { key: "e", label: "edit, then approve", group: "Approvals", when: () => able() && here?.kind !== "question", run: () => editAndApprove(here!, after) },
    { key: "d", label: "deny", group: "Approvals", when: able, run: () => deny(here!, after) },
    { key: "Enter", label: "open the run", group: "Approvals", when: () => here !== undefined, run: () => go(places.run(here!.run_id)) },
  ]);
  return (
    <section class="page" aria-label="Approvals">
      <div class="toolbar"><h1>Approvals</h1>{calls.length > 0 && <span class="muted">{calls.length} waiting, oldest first</span>}</div>
      {approvalsProblem.value && <Failed message={approvalsProblem.value.message} retry={after} />}
      {!approvalsKnown.value && !approvalsProblem.value && <Loading what="approvals" />}
      {approvalsKnown.value && !calls.length && <Empty title="Nothing is waiting for you"><p>Calls that need a person appear here with their exact arguments.</p></Empty>}
      <div class="inbox">{calls.map((call, place) => <div key={`${call.run_id} ${call.id}`} onFocusCapture={() => (chosen.value = place)}><PendingCard call={call} chosen={place === at} after={after} /></div>)}</div>
    </section>
  );
}
