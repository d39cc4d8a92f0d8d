// What a person can do to a run, each with its question and its reason.

import { api } from "./api";
import { ask, notJson, panel, REASON, type Field, type Values } from "./components/dialog";
import { Arguments, pretty } from "./components/bits";
import { gaugeName, line, plural, short } from "./format";
import { go, places } from "./router";
import { perform } from "./store/actions";
import { info, mayStart } from "./store/session";
import type { Card, Detail, Json, JsonObject, Pending, UnknownEffect } from "./types";

type Target = Pick<Card, "run_id" | "title" | "task" | "state" | "turn">;
type After = () => void;

const name = (run: Target): string => line(run.title || run.task || run.run_id, 60);
const lead = (run: Target): preact.JSX.Element => <p class="muted">{name(run)}</p>;

async function act(run: { run_id: string }, title: string, verb: string, body: JsonObject, after?: After): Promise<string | null> {
  const done = await perform(title, () => api.act(run.run_id, verb, body));
  if ("error" in done) return done.error;
  after?.();
  return null;
}

const optionalReason: Field = { ...REASON, required: false };

export function landRun(run: Target, after?: After): void {
  ask({
    title: "Land this run", confirm: "Land", fields: [REASON],
    lead: <>{lead(run)}<p>Tools are withdrawn and the model writes its final answer from the landing reserve.</p></>,
    submit: (values) => act(run, "Land", "land", { reason: values["reason"] ?? "" }, after),
  });
}

export function stopRun(run: Target, after?: After): void {
  ask({
    title: "Stop this run", confirm: "Stop now", tone: "danger", fields: [REASON],
    lead: <>{lead(run)}<p>The run ends now with the best text it has. Land it instead if you want a last answer.</p></>,
    submit: (values) => act(run, "Stop", "stop", { reason: values["reason"] ?? "" }, after),
  });
}

export function steerRun(run: Target, after?: After): void {
  ask({
    title: "Steer this run", confirm: "Send", lead: lead(run),
    fields: [{ name: "message", label: "Message to the model", kind: "area", required: true, hint: "The model reads it before its next call." }, optionalReason],
    submit: (values) => act(run, "Steer", "steer", { message: values["message"] ?? "", reason: values["reason"] ?? "" }, after),
  });
}

export function resumeRun(run: Target, after?: After): void {
  ask({
    title: "Resume this run", confirm: "Resume", lead: <>{lead(run)}<p>The run continues from its journal, with what it has spent already counted.</p></>,
    fields: [optionalReason],
    submit: (values) => act(run, "Resume", "resume", { reason: values["reason"] ?? "" }, after),
  });
}

const MANY = {
  land: { title: "Land", lead: "Tools are withdrawn and each model writes its final answer from its landing reserve." },
  stop: { title: "Stop", lead: "Each run ends now with the best text it has. Land them instead if you want last answers." },
  resume: { title: "Resume", lead: "Each run continues from its journal, with what it has spent already counted." },
} as const;

/** The same for many runs: each is asked, and what could not be done is told run by run. */
export function actOnMany(verb: keyof typeof MANY, ids: string[], after?: After): void {
  const { title, lead: text } = MANY[verb];
  const runs = plural(ids.length, "run");
  ask({
    title: `${title} ${runs}`, confirm: `${title} ${runs}`, tone: verb === "stop" ? "danger" : "plain", fields: [verb === "resume" ? optionalReason : REASON],
    lead: <p>{text}</p>,
    submit: async (values) => {
      const done = await perform(`${title} ${runs}`, () => api.batch(verb, ids, values["reason"] ?? ""));
      if ("error" in done) return done.error;
      const refused = done.answer.results.filter((each) => each.error !== null);
      if (refused.length) window.setTimeout(() => panel(`${plural(refused.length, "run")} could not be ${PAST[verb]}`, () => <ul class="plain-list">{refused.map((each) => <li key={each.run_id}><a href={places.run(each.run_id)}>{short(each.run_id)}</a> {each.error}</li>)}</ul>));
      after?.();
      return null;
    },
  });
}

const PAST = { land: "landed", stop: "stopped", resume: "resumed" };

const LIMIT_FIELDS: { name: string; gauge: string; step: string }[] = [
  { name: "max_iterations", gauge: "turns", step: "1" },
  { name: "max_tokens", gauge: "tokens", step: "1" },
  { name: "max_cost", gauge: "cost", step: "any" },
  { name: "timeout", gauge: "seconds", step: "any" },
  { name: "max_tool_calls", gauge: "tool_calls", step: "1" },
];

function limitFields(known: Detail | null): Field[] {
  return LIMIT_FIELDS.map(({ name: field, gauge, step }) => {
    const now = known?.gauges.find((each) => each.kind === gauge)?.limit ?? null;
    return {
      name: field, label: gauge === "cost" ? "Cost in dollars" : gauge === "seconds" ? "Time in seconds" : gaugeName(gauge), kind: "number", step, min: 0,
      placeholder: now === null ? "no limit" : `now ${now}`,
    };
  });
}

/** The limits that were filled in; the cost stays a text so that no digit is lost. */
function readLimits(values: Values): JsonObject {
  const limits: JsonObject = {};
  for (const { name: field } of LIMIT_FIELDS) {
    const text = values[field]?.trim();
    if (text) limits[field] = field === "max_cost" ? text : Number(text);
  }
  return limits;
}

export function changeLimits(run: Detail, after?: After): void {
  ask({
    title: "Change the limits", confirm: "Change and continue", lead: <>{lead(run)}<p>The run continues under the new limits{run.state === "running" ? ", after a short stop" : ""}. Empty fields stay as they are.</p></>,
    fields: [...limitFields(run), REASON],
    submit: (values) => {
      const limits = readLimits(values);
      if (!Object.keys(limits).length) return Promise.resolve("Change at least one limit.");
      return act(run, "Limits", "limits", { limits, resume: true, reason: values["reason"] ?? "" }, after);
    },
  });
}

export function forkRun(run: Target, at: number | null = null): void {
  ask({
    title: "Fork from a turn", confirm: "Fork", lead: <>{lead(run)}<p>A new session starts with everything up to the end of that turn. This run stays as it is.</p></>,
    fields: [
      { name: "at", label: "Turn", kind: "number", required: true, min: 0, step: "1", value: String(at ?? run.turn) },
      { name: "prompt", label: "What to do from there", kind: "area", hint: "Without it the new session continues as this one did." },
      optionalReason,
    ],
    submit: async (values) => {
      const body: JsonObject = { at: Number(values["at"]), reason: values["reason"] ?? "" };
      if (values["prompt"]?.trim()) body["prompt"] = values["prompt"];
      const done = await perform("Fork", () => api.act(run.run_id, "fork", body));
      if ("error" in done) return done.error;
      go(places.run(done.answer.session_id ?? done.answer.run_id));
      return null;
    },
  });
}

export function killSwitch(scope: "run" | "tenant" | "fleet", active: boolean, id: string | null, after?: After): void {
  const what = scope === "run" ? "this run" : scope === "fleet" ? "the whole fleet" : "one tenant";
  ask({
    title: active ? `Kill switch: ${what}` : `Release ${what}`, confirm: active ? "Throw the switch" : "Release", tone: active ? "danger" : "plain",
    lead: <p>{active ? "No new spend starts while the switch is on. Runs under it end now with the best text they have." : "Runs may start and spend again."}</p>,
    fields: [...(scope === "tenant" ? [{ name: "id", label: "Tenant", required: true, value: id ?? "" }] : []), REASON],
    submit: async (values) => {
      const body: JsonObject = { scope, active, reason: values["reason"] ?? "" };
      const target = scope === "tenant" ? values["id"] : id;
      if (target) body["id"] = target;
      const done = await perform(active ? "Kill switch" : "Release", () => api.kill(body));
      if ("error" in done) return done.error;
      after?.();
      return null;
    },
  });
}

// --- decisions --------------------------------------------------------------------------------------------------

function decide(call: Pending, title: string, body: JsonObject, after?: After): Promise<string | null> {
  return act(call, title, "decide", { id: call.id, digest: call.digest, ...body }, after);
}

export function approve(call: Pending, after?: After): void {
  ask({
    title: `Approve ${call.tool_shown}`, confirm: "Approve", wide: true, call: call.shown, fields: [optionalReason],
    submit: (values) => decide(call, "Approve", { decision: "approve", reason: values["reason"] ?? "" }, after),
  });
}

export function deny(call: Pending, after?: After): void {
  ask({
    title: `Deny ${call.tool_shown}`, confirm: "Deny", tone: "danger", wide: true, call: call.shown,
    fields: [{ ...REASON, hint: "The model reads it as the result of the call." }],
    submit: (values) => decide(call, "Deny", { decision: "deny", message: values["reason"] ?? "", reason: values["reason"] ?? "" }, after),
  });
}

export function editAndApprove(call: Pending, after?: After): void {
  ask({
    title: `Edit and approve ${call.tool_shown}`, confirm: "Approve as edited", wide: true, call: call.shown,
    lead: <p class="muted">The call runs with what you write here; the journal keeps both.</p>,
    fields: [{ name: "arguments", label: "Arguments", kind: "json", required: true, value: pretty(call.arguments) }, optionalReason],
    submit: (values) => decide(call, "Approve as edited", { decision: "edit", arguments: JSON.parse(values["arguments"] ?? "{}") as Json, reason: values["reason"] ?? "" }, after),
    preview: (values) => <Changes before={call.arguments} after={values["arguments"] ?? ""} />,
  });
}

/** What an edit changes, argument by argument. */
function Changes({ before, after }: { before: JsonObject; after: string }): preact.JSX.Element | null {
  if (notJson(after)) return null;
  const edited = JSON.parse(after) as JsonObject;
  const names = [...new Set([...Object.keys(before), ...Object.keys(edited)])].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(edited[key]));
  if (!names.length) return <p class="muted small">No changes yet.</p>;
  return (
    <ul class="changes" aria-label="Changes">
      {names.map((key) => <li key={key}><code>{key}</code> <del>{key in before ? line(pretty(before[key] ?? null), 80) : "not set"}</del> <ins>{key in edited ? line(pretty(edited[key] ?? null), 80) : "removed"}</ins></li>)}
    </ul>
  );
}

/** Give the result of a call by hand: nothing runs. */
export function answerFor(call: Pending, after?: After): void {
  ask({
    title: `Answer for ${call.tool_shown}`, confirm: "Answer", wide: true, call: call.shown,
    fields: [{ name: "message", label: "The result, in your words", kind: "area", required: true, hint: "Nothing runs. The model reads this as the result of the call." }, optionalReason],
    submit: (values) => decide(call, "Answer", { decision: "answer", message: values["message"] ?? "", reason: values["reason"] ?? "" }, after),
  });
}

export function answerQuestion(call: Pending, after?: After): void {
  const form = formFields(call.form ?? null);
  ask({
    title: "Answer", confirm: "Answer", wide: true, call: call.shown,
    fields: form ? form.map(({ field }) => field) : [{ name: "message", label: "Your answer", kind: "area", required: true }],
    submit: (values) => {
      const body: JsonObject = { decision: "answer", reason: "answered on the deck" };
      if (form) body["arguments"] = readForm(form, values);
      else body["message"] = values["message"] ?? "";
      return decide(call, "Answer", body, after);
    },
  });
}

interface FormField {
  field: Field;
  type: string;
}

/** The fields of an answer's JSON Schema; null where it is not a flat object. */
function formFields(schema: JsonObject | null): FormField[] | null {
  const properties = schema?.["properties"];
  if (!properties || typeof properties !== "object" || Array.isArray(properties)) return null;
  const needed = Array.isArray(schema?.["required"]) ? schema["required"] : [];
  return Object.entries(properties).map(([key, value]) => {
    const shape = value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
    const type = String(shape["type"] ?? "string");
    const choices = Array.isArray(shape["enum"]) ? shape["enum"].map(String) : null;
    const field: Field = { name: key, label: String(shape["title"] ?? key), required: needed.includes(key) && type !== "boolean", hint: shape["description"] ? String(shape["description"]) : undefined };
    if (choices) Object.assign(field, { kind: "select", value: choices[0], options: choices.map((choice) => ({ value: choice, label: choice })) });
    else if (type === "boolean") field.kind = "check";
    else if (type === "number" || type === "integer") Object.assign(field, { kind: "number", step: type === "integer" ? "1" : "any" });
    return { field, type };
  });
}

function readForm(form: FormField[], values: Values): JsonObject {
  const made: JsonObject = {};
  for (const { field, type } of form) {
    const text = values[field.name] ?? "";
    if (type === "boolean") made[field.name] = text === "yes";
    else if (text !== "") made[field.name] = type === "number" || type === "integer" ? Number(text) : text;
  }
  return made;
}

export function settle(run: Target, effect: UnknownEffect, outcome: "done" | "not_done", after?: After): void {
  ask({
    title: outcome === "done" ? `${effect.tool} did happen` : `${effect.tool} did not happen`, confirm: "Settle", wide: true,
    lead: <><p class="muted">The process died between starting this call and recording its result. Say what you found out.</p><Arguments value={effect.arguments} /></>,
    fields: [...(outcome === "done" ? [{ name: "result", label: "Its result, for the model", kind: "area" } as Field] : []), REASON],
    submit: (values) => {
      const body: JsonObject = { call_id: effect.call_id, outcome, reason: values["reason"] ?? "" };
      if (values["result"]?.trim()) body["result"] = values["result"];
      return act(run, "Settle", "settle", body, after);
    },
  });
}

// --- a new run --------------------------------------------------------------------------------------------------

export function newRun(): void {
  const agents = info.peek()?.agents ?? [];
  if (!mayStart.peek() || !agents.length) return;
  ask({
    title: "Start a run", confirm: "Start", wide: true,
    fields: [
      { name: "prompt", label: "Task", kind: "area", required: true },
      { name: "agent", label: "Agent", kind: "select", value: agents[0]?.name ?? "", options: agents.map((each) => ({ value: each.name, label: `${each.name} (${each.model})` })) },
      ...limitFields(null).slice(0, 3),
      { name: "tags", label: "Tags", placeholder: "comma separated" },
    ],
    submit: async (values) => {
      const limits = readLimits(values);
      const tags = (values["tags"] ?? "").split(",").map((tag) => tag.trim()).filter(Boolean);
      const done = await perform("Start", () => api.start({
        agent: values["agent"] ?? "", prompt: values["prompt"] ?? "",
        ...(Object.keys(limits).length ? { limits } : {}), ...(tags.length ? { tags } : {}),
      }), (answer) => `started ${short(answer.run_id)}`);
      if ("error" in done) return done.error;
      go(places.run(done.answer.run_id));
      return null;
    },
  });
}
