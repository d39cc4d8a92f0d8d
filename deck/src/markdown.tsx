// Model text is never HTML. This reads the Markdown that models write and makes nodes of it; whatever it does not
// know stays text. Links and images do nothing until a person has seen where they lead.

import type { ComponentChildren, VNode } from "preact";
import { showAddress } from "./components/address";

const MOST_DEPTH = 6;

interface Item {
  text: string;
  task: boolean | null;
  inner: string[];
}

export function Markdown({ text }: { text: string }): VNode {
  return <div class="md">{blocks(text.split("\n"), 0)}</div>;
}

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>\s?(.*)$/;
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function blocks(lines: string[], depth: number): VNode[] {
  const made: VNode[] = [];
  if (depth > MOST_DEPTH) return [<p dir="auto">{lines.join("\n")}</p>];
  let at = 0;
  while (at < lines.length) {
    const here = lines[at]!;
    if (!here.trim()) {
      at += 1;
      continue;
    }
    const [node, next] = fence(lines, at) ?? heading(here, at) ?? rule(here, at) ?? quote(lines, at, depth) ?? table(lines, at) ?? list(lines, at, depth) ?? paragraph(lines, at);
    made.push(node);
    at = next;
  }
  return made;
}

type Made = [VNode, number] | null;

function fence(lines: string[], at: number): Made {
  const open = FENCE.exec(lines[at]!);
  if (!open) return null;
  const mark = open[1]!;
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end]!.trim();
    if (line.startsWith(mark) && line.replaceAll(mark[0]!, "") === "") break;
    end += 1;
  }
  const language = open[2]!.trim().split(/\s/)[0] ?? "";
  return [
    <pre class="code" tabIndex={0} aria-label={language ? `${language} code` : "code"}>
      {language && <span class="code-language">{language}</span>}
      <code>{lines.slice(at + 1, end).join("\n")}</code>
    </pre>,
    end + 1,
  ];
}

const LONGEST = 1000; // no heading, rule or table is wider: longer lines are text, and no pattern is tried on them

function heading(line: string, at: number): Made {
  const found = line.length < LONGEST ? HEADING.exec(line) : null;
  // Headings of a message are not headings of the page: they look the part and leave the outline alone.
  return found ? [<p dir="auto" class={`md-heading md-h${Math.min(found[1]!.length, 4)}`}>{inline(found[2]!)}</p>, at + 1] : null;
}

function rule(line: string, at: number): Made {
  return line.length < LONGEST && RULE.test(line) ? [<hr />, at + 1] : null;
}

function quote(lines: string[], at: number, depth: number): Made {
  if (!QUOTE.test(lines[at]!)) return null;
  const inner: string[] = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const found = QUOTE.exec(lines[end]!);
    if (!found) break;
    inner.push(found[1]!);
  }
  return [<blockquote dir="auto">{blocks(inner, depth + 1)}</blockquote>, end];
}

function cells(line: string): string[] {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(lines: string[], at: number): Made {
  const next = lines[at + 1];
  if (!lines[at]!.includes("|") || next === undefined || next.length > LONGEST || !next.includes("-") || !TABLE_LINE.test(next.trim())) return null;
  const head = cells(lines[at]!);
  let end = at + 2;
  const rows: string[][] = [];
  for (; end < lines.length && lines[end]!.includes("|"); end += 1) rows.push(cells(lines[end]!));
  return [
    <div class="md-table" tabIndex={0} role="group" aria-label="table">
      <table dir="auto">
        <thead><tr>{head.map((cell) => <th scope="col" dir="auto">{inline(cell)}</th>)}</tr></thead>
        <tbody>{rows.map((row) => <tr>{head.map((_, place) => <td dir="auto">{inline(row[place] ?? "")}</td>)}</tr>)}</tbody>
      </table>
    </div>,
    end,
  ];
}

function list(lines: string[], at: number, depth: number): Made {
  const first = BULLET.exec(lines[at]!);
  if (!first) return null;
  const indent = first[1]!.length;
  const ordered = /\d/.test(first[2]!);
  const items: Item[] = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const line = lines[end]!;
    const found = BULLET.exec(line);
    if (found && found[1]!.length <= indent + 1) {
      if (found[1]!.length < indent || /\d/.test(found[2]!) !== ordered) break;
      const task = /^\[([ xX])\]\s+(.*)$/.exec(found[3]!);
      items.push({ text: task ? task[2]! : found[3]!, task: task ? task[1] !== " " : null, inner: [] });
    } else if (!line.trim()) {
      const following = lines[end + 1];
      if (following === undefined || !/^\s+\S/.test(following) && !BULLET.test(following)) break;
      items.at(-1)!.inner.push("");
    } else if (/^\s/.test(line) || found) items.at(-1)!.inner.push(line.replace(/^\s{1,4}/, ""));
    else break;
  }
  const children = items.map((item) => (
    <li dir="auto" class={item.task === null ? undefined : "md-task"}>
      {item.task !== null && <span class="md-check" aria-label={item.task ? "done" : "open"}>{item.task ? "☑" : "☐"}</span>}
      {inline(item.text)}
      {item.inner.some((line) => line.trim()) && blocks(item.inner, depth + 1)}
    </li>
  ));
  const start = Number.parseInt(first[2]!, 10);
  return [ordered ? <ol dir="auto" start={Number.isFinite(start) ? start : 1}>{children}</ol> : <ul dir="auto">{children}</ul>, end];
}

/** True for a line that ends a paragraph by opening something else. */
function opens(line: string): boolean {
  return FENCE.test(line) || QUOTE.test(line) || BULLET.test(line) || (line.length < LONGEST && (HEADING.test(line) || RULE.test(line)));
}

function paragraph(lines: string[], at: number): [VNode, number] {
  let end = at + 1;
  while (end < lines.length && lines[end]!.trim() && !opens(lines[end]!)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim());
  return [<p dir="auto">{text.flatMap((line, place) => (place ? [<br />, ...inline(line)] : inline(line)))}</p>, end];
}

// Code first, then pictures, links, bare addresses, strong, emphasis. Every piece is bounded, so no text makes it slow.
const INLINE = new RegExp(
  [
    "(?<!`)(`{1,8})(?!`)([^`]{1,2000}?)\\1(?!`)",
    "(!?)\\[([^\\[\\]]{0,500})\\]\\(\\s*<?([^\\s()<>]{1,2000})>?(?:\\s+[\"'][^\"']{0,200}[\"'])?\\s*\\)",
    "\\*\\*([^*]{1,1000})\\*\\*",
    "__([^_]{1,1000})__",
    "\\*([^*\\s][^*]{0,1000})\\*",
    "(?<![\\w])_([^_\\s][^_]{0,1000})_(?![\\w])",
    "~~([^~]{1,1000})~~",
    "(https?:\\/\\/[^\\s<>()\"'`]{1,2000})",
    "\\\\([\\\\`*_{}\\[\\]()#+.!~|>-])",
  ].join("|"),
  "g",
);

export function inline(text: string, depth = 0): ComponentChildren[] {
  if (depth > MOST_DEPTH) return [text];
  const made: ComponentChildren[] = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) made.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const [, ticks, code, bang, label, target, strong, strong2, weak, weak2, gone, bare, escaped] = found;
    if (ticks) made.push(<code>{code}</code>);
    else if (target !== undefined) made.push(<Inert image={bang === "!"} label={label || target} target={target} />);
    else if (strong ?? strong2) made.push(<strong>{inline((strong ?? strong2)!, depth + 1)}</strong>);
    else if (weak ?? weak2) made.push(<em>{inline((weak ?? weak2)!, depth + 1)}</em>);
    else if (gone) made.push(<del>{inline(gone, depth + 1)}</del>);
    else if (bare) made.push(<Inert image={false} label={bare} target={bare} />);
    else if (escaped) made.push(escaped);
  }
  if (last < text.length) made.push(text.slice(last));
  return made;
}

function Inert({ image, label, target }: { image: boolean; label: string; target: string }): VNode {
  return (
    <button type="button" class={image ? "inert inert-image" : "inert"} title={`Show where this leads: ${target.slice(0, 200)}`} onClick={() => showAddress(target, image)}>
      {image ? `Image: ${label}` : label}
    </button>
  );
}
