// Questions to the person. One dialog at a time, the browser's own: it holds the focus and closes with Escape.

import { signal } from "@preact/signals";
import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ShownCall, useRead } from "./shown";

export interface Field {
  name: string;
  label: string;
  kind?: "text" | "area" | "number" | "select" | "check" | "json";
  value?: string;
  required?: boolean;
  hint?: string;
  placeholder?: string;
  options?: { value: string; label: string }[];
  step?: string;
  min?: number;
}

export type Values = Record<string, string>;

export interface Question {
  title: string;
  lead?: ComponentChildren;
  fields: Field[];
  confirm: string;
  tone?: "plain" | "danger";
  wide?: boolean;
  /** The rows of a call: the button works when their end was shown, and not before they can have been read. */
  call?: string[];
  /** Shown below the fields, from what they hold now. */
  preview?: (values: Values) => ComponentChildren;
  /** Null closes the dialog; a sentence is shown and keeps it open. */
  submit: (values: Values) => Promise<string | null>;
}

export const REASON: Field = { name: "reason", label: "Reason", required: true, placeholder: "Recorded in the journal with your name" };

type Shown = { kind: "question"; question: Question } | { kind: "panel"; title: string; body: () => VNode; wide?: boolean };

const shown = signal<Shown | null>(null);

export function ask(question: Question): void {
  shown.value = { kind: "question", question };
}

export function panel(title: string, body: () => VNode, wide = false): void {
  shown.value = { kind: "panel", title, body, wide };
}

export function closeDialog(): void {
  shown.value = null;
}

export function DialogHost(): VNode | null {
  const now = shown.value;
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key arrives: a dialog that is drawn but not yet open would leave Escape to the page behind it.
  useLayoutEffect(() => {
    if (!now || !box.current) return undefined;
    const before = document.activeElement;
    if (!box.current.open) box.current.showModal();
    const first = box.current.querySelector<HTMLElement>("[data-first]");
    first?.focus();
    if (first instanceof HTMLInputElement && first.type === "text") first.select();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, [now]);
  if (!now) return null;
  const wide = now.kind === "panel" ? now.wide : now.question.wide;
  return (
    <dialog ref={box} class={wide ? "dialog wide" : "dialog"} aria-labelledby="dialog-title" onClose={closeDialog} key={now.kind === "question" ? now.question.title : now.title}
      onClick={(event) => { if (event.target === box.current) closeDialog(); }}>
      {now.kind === "question" ? <Form question={now.question} /> : (
        <div class="dialog-body">
          <h2 id="dialog-title">{now.title}</h2>
          {now.body()}
          <div class="dialog-actions"><button type="button" class="button" data-first onClick={closeDialog}>Close</button></div>
        </div>
      )}
    </dialog>
  );
}

function initial(fields: Field[]): Values {
  return Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
}

function Form({ question }: { question: Question }): VNode {
  const [ripe, ended, atEnd] = useRead(question.title);
  const held = question.call !== undefined && (!ripe || (question.tone !== "danger" && !ended));
  const [values, setValues] = useState<Values>(() => initial(question.fields));
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event?: Event): Promise<void> => {
    event?.preventDefault();
    if (held) return;
    const missing = question.fields.find((field) => field.required && !values[field.name]?.trim());
    if (missing) return setError(`${missing.label} is needed.`);
    for (const field of question.fields.filter((each) => each.kind === "json")) {
      const wrong = notJson(values[field.name] ?? "");
      if (wrong) return setError(`${field.label}: ${wrong}`);
    }
    setBusy(true);
    setError(null);
    const refused = await question.submit(values).catch((caught: unknown) => String(caught));
    setBusy(false);
    if (refused === null) closeDialog();
    else setError(refused);
  };
  return (
    <form class="dialog-body" onSubmit={submit} noValidate onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit(event); }}>
      <h2 id="dialog-title">{question.title}</h2>
      {question.lead && <div class="dialog-lead">{question.lead}</div>}
      {question.call && <ShownCall rows={question.call} onEnd={atEnd} />}
      {question.fields.map((field, place) => (
        <FieldRow key={field.name} field={field} first={place === 0} value={values[field.name] ?? ""} set={(value) => setValues((old) => ({ ...old, [field.name]: value }))} />
      ))}
      {question.preview?.(values)}
      {error && <p class="dialog-error" role="alert">{error}</p>}
      <div class="dialog-actions">
        <button type="button" class="button" onClick={closeDialog}>Cancel</button>
        <button type="submit" class={question.tone === "danger" ? "button danger" : "button primary"} disabled={busy || held}
          data-first={question.fields.length ? undefined : true}>{busy ? "Asking the server…" : question.confirm}</button>
      </div>
    </form>
  );
}

function FieldRow({ field, value, set, first }: { field: Field; value: string; set: (value: string) => void; first: boolean }): VNode {
  const id = `field-${field.name}`;
  const common = { id, name: field.name, "data-first": first || undefined, "aria-describedby": field.hint ? `${id}-hint` : undefined, required: field.required, placeholder: field.placeholder };
  const change = (event: Event): void => set((event.currentTarget as HTMLInputElement).value);
  if (field.kind === "check") {
    return (
      <label class="field-check"><input type="checkbox" id={id} name={field.name} data-first={first || undefined} checked={value === "yes"} onChange={(event) => set(event.currentTarget.checked ? "yes" : "")} /> {field.label}</label>
    );
  }
  return (
    <div class="field">
      <label for={id}>{field.label}{!field.required && field.kind !== "select" && <span class="optional"> optional</span>}</label>
      {field.kind === "area" || field.kind === "json"
        ? <textarea {...common} class={field.kind === "json" ? "mono" : undefined} rows={field.kind === "json" ? Math.min(16, value.split("\n").length + 1) : 4} value={value} onInput={change} spellcheck={field.kind !== "json"} />
        : field.kind === "select"
          ? <select {...common} value={value} onChange={change}>{field.options?.map((option) => <option value={option.value}>{option.label}</option>)}</select>
          : field.kind === "number"
            ? <input {...common} type="number" inputMode="decimal" step={field.step} min={field.min} value={value} onInput={change} autocomplete="off" />
            : <input {...common} type="text" value={value} onInput={change} autocomplete="off" />}
      {field.hint && <p class="hint" id={`${id}-hint`}>{field.hint}</p>}
    </div>
  );
}

export function notJson(text: string): string | null {
  try {
    const found = JSON.parse(text) as unknown;
    return found !== null && typeof found === "object" && !Array.isArray(found) ? null : "must be a JSON object";
  } catch (error) {
    return error instanceof Error ? error.message : "is not JSON";
  }
}
