// One line for each event, and the family it belongs to.

import { count, duration, line, money, plural, word } from "../format";
import type { Json, RunEvent } from "../types";

export type Family = "life" | "model" | "tool" | "budget" | "verdict" | "child" | "other";

const FAMILIES: Record<string, Family> = {
  RunStarted: "life", RunEnded: "life", RunPaused: "life", ConfigurationChanged: "life", TurnStarted: "life", TurnEnded: "life", SessionSaved: "life",
  StreamStarted: "model", StreamChunk: "model", AttemptDiscarded: "model", RetryScheduled: "model", ModelSwitched: "model", OutputTokensEscalated: "model", MessageAdded: "model", ContextShaped: "model",
  ToolStarted: "tool", ToolEnded: "tool", ToolProgress: "tool", ApprovalRequested: "tool", CallRuled: "tool", ToolsChanged: "tool", BackgroundStarted: "tool", BackgroundEnded: "tool",
  BudgetReserved: "budget", BudgetSettled: "budget",
  ConstraintViolated: "verdict", GuardTripped: "verdict", NoticeSent: "verdict", LandingStarted: "verdict", GateApplied: "verdict", GateConflictResolved: "verdict", HookFailed: "verdict", BreakerChanged: "verdict",
  ChildStarted: "child", ChildEnded: "child",
};

export const EVENT_KINDS = Object.keys(FAMILIES);
export const VERDICT_KINDS = [
  "ConstraintViolated", "GuardTripped", "NoticeSent", "LandingStarted", "GateApplied", "GateConflictResolved", "HookFailed",
  "BreakerChanged", "RetryScheduled", "ModelSwitched", "AttemptDiscarded", "ToolsChanged", "RunPaused",
];

export function family(kind: string): Family {
  return FAMILIES[kind] ?? "other";
}

const text = (value: Json | undefined): string => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
const list = (value: Json | undefined): string => (Array.isArray(value) ? value.map(text).join(", ") : text(value));

function inner(value: Json | undefined, name: string): Json | undefined {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value[name] : undefined;
}

function said(message: Json | undefined): string {
  const content = inner(message, "content") ?? inner(message, "text");
  if (Array.isArray(content)) return content.map((block) => text(inner(block, "text") ?? inner(block, "name"))).filter(Boolean).join(" ");
  return text(content);
}

/** Which text of a skill a call read or whose script it ran: with its digest, and whether a person trusted it. */
function skillOf(event: RunEvent): string {
  const tool = event["tool_name"];
  const about = inner(event["result"], "details");
  const skill = inner(about, "skill");
  if ((tool !== "read_skill" && tool !== "run_skill_script") || typeof skill !== "string") return "";
  const trust = inner(about, "trusted") === true ? "trusted" : "untrusted";
  return `${text(inner(about, "file"))} of the skill ${skill}, ${trust}, ${text(inner(about, "digest"))}. `;
}

const dollars = (pico: Json | undefined): string => (typeof pico === "number" ? money(pico / 1e12) : "");

const LINES: Record<string, (event: RunEvent) => string> = {
  RunStarted: (event) => `${text(event["agent_name"])} on ${text(event["model"])}${event["resumed"] ? ", resumed" : ""}`,
  RunEnded: (event) => `${word(text(inner(event["result"], "outcome")))} · ${word(text(inner(event["result"], "state")))}`,
  RunPaused: (event) => `waiting for ${list(event["call_ids"])}`,
  TurnStarted: (event) => `turn ${text(event["iteration"])}`,
  TurnEnded: (event) => `turn ${text(event["iteration"])}`,
  MessageAdded: (event) => `${text(inner(event["message"], "role"))}: ${said(event["message"])}`,
  StreamStarted: (event) => `${text(event["model"])}, attempt ${text(event["attempt"])}${event["landing"] ? ", landing" : ""}`,
  StreamChunk: (event) => (event["finished"] ? "end of the reply" : text(event["text"])),
  AttemptDiscarded: (event) => `attempt ${text(event["attempt"])}: ${text(event["reason"])}`,
  RetryScheduled: (event) => `attempt ${text(event["attempt"])} in ${duration(Number(event["delay"]))}: ${text(event["error"])}`,
  ModelSwitched: (event) => `${text(event["previous"])} to ${text(event["model"])}: ${text(event["reason"])}`,
  ToolStarted: (event) => `${text(event["tool_name"])} ${text(event["arguments"])}`,
  ToolEnded: (event) => `${text(event["tool_name"])} in ${duration(Number(event["seconds"]))}: ${skillOf(event)}${said(event["result"])}`,
  ToolProgress: (event) => `${text(event["tool_name"])}: ${text(event["progress"])}`,
  ApprovalRequested: (event) => `${text(event["tool_name"])} ${text(event["arguments"])} ${text(event["reason"])}`,
  CallRuled: (event) => `${text(event["tool_name"])}: ${word(text(event["verdict"]))}. ${text(event["rule"])}`,
  BackgroundStarted: (event) => `${text(event["tool_name"])} runs on as ${text(event["id"])}`,
  BackgroundEnded: (event) => `${text(event["tool_name"])} as ${text(event["id"])} in ${duration(Number(event["seconds"]))}: ${event["kind"] ? word(text(event["kind"])) : "done"}`,
  BudgetReserved: (event) => `${plural(Number(event["tokens"]), "token")} ${dollars(event["picodollars"])}`,
  BudgetSettled: (event) => `${count(Number(inner(event["usage"], "input") ?? 0))} in, ${count(Number(inner(event["usage"], "output") ?? 0))} out ${dollars(event["picodollars"])}, ${count(Number(event["refunded"] ?? 0))} refunded`,
  ConstraintViolated: (event) => `${text(event["constraint"])} at ${word(text(event["checkpoint"]))}: ${word(text(event["action"]))}${event["skipped"] ? " (skipped)" : ""}. ${text(event["reason"])}`,
  GuardTripped: (event) => `${text(event["guard"])}: ${word(text(event["action"]))}. ${text(event["reason"])}`,
  NoticeSent: (event) => `${text(event["source"])}: ${text(event["text"])}`,
  LandingStarted: (event) => `${text(event["source"])}: ${text(event["reason"])}`,
  GateApplied: (event) => `${list(event["gates"])} left ${list(event["allowed"]) || "no tools"}`,
  GateConflictResolved: (event) => `${text(event["winner"])} overrules ${list(event["overruled"])}`,
  HookFailed: (event) => `${text(event["plugin"])}.${text(event["hook"])}: ${text(event["error"])}; ${text(event["effect"])}`,
  BreakerChanged: (event) => `${text(event["target"])} is ${word(text(event["state"]))}`,
  ContextShaped: (event) => `${text(event["strategy"])}: ${count(Number(event["before_tokens"]))} to ${count(Number(event["after_tokens"]))} tokens, ${count(Number(event["resent_tokens"] ?? 0))} sent again ${dollars(event["picodollars"])}`,
  ChildStarted: (event) => `${text(event["agent_name"])} ${text(event["child_id"])}`,
  ChildEnded: (event) => `${text(event["agent_name"])}: ${word(text(event["outcome"]))}`,
  ToolsChanged: (event) => `${text(event["server"])}: ${text(event["effect"])}. ${text(event["reason"])}`,
  SessionSaved: (event) => `record ${text(event["record"])}`,
  OutputTokensEscalated: (event) => `${text(event["previous_cap"])} to ${text(event["next_cap"])}`,
};

const known = new WeakMap<RunEvent, string>();

export function summary(event: RunEvent): string {
  let found = known.get(event);
  if (found === undefined) {
    const made = LINES[event.event];
    found = line(made ? made(event) : "", 240);
    known.set(event, found);
  }
  return found;
}

/** What a constraint or guard asked for: its word and its tone. */
export function verdictWord(event: RunEvent): { word: string; tone: string } {
  switch (event.event) {
    case "ConstraintViolated": {
      const action = text(event["action"]);
      return { word: event["skipped"] ? "skipped" : word(action), tone: event["skipped"] ? "plain" : /emergency|stop|halt/i.test(action) ? "bad" : /wind|land|grace/i.test(action) ? "landing" : "warn" };
    }
    case "GuardTripped": return { word: word(text(event["action"])), tone: event["action"] === "land" ? "landing" : "warn" };
    case "NoticeSent": return { word: "notice", tone: "warn" };
    case "LandingStarted": return { word: "landing", tone: "landing" };
    case "HookFailed": return { word: "hook failed", tone: "bad" };
    case "BreakerChanged": return { word: word(text(event["state"])), tone: event["state"] === "open" ? "bad" : "plain" };
    case "RetryScheduled": return { word: "retry", tone: "warn" };
    case "AttemptDiscarded": return { word: "discarded", tone: "bad" };
    case "RunPaused": return { word: "paused", tone: "warn" };
    case "GateApplied": return { word: "narrowed", tone: "plain" };
    default: return { word: word(event.event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()), tone: "plain" };
  }
}

