// One message of a transcript.

import type { VNode } from "preact";
import { line, word } from "../format";
import { Markdown } from "../markdown";
import type { Attempt } from "../store/run";
import type { Message, ToolCall, UsedSkill } from "../types";
import { Arguments, Icon, LongText, Tag } from "./bits";

const MARKS: Record<string, { text: string; tone: string; title: string }> = {
  cut: { text: "cut off", tone: "warn", title: "This reply was cut off; none of its tool calls ran" },
  discarded: { text: "discarded", tone: "bad", title: "This attempt was discarded; another one followed" },
  landing: { text: "landing", tone: "landing", title: "Written while landing, without tools" },
  notice: { text: "notice", tone: "warn", title: "A message from the runtime to the model" },
};

const ROLES: Record<string, string> = { user: "Task", assistant: "Model", system: "System", tool: "Tool", custom: "Runtime" };

interface Props {
  message: Message;
  call: ToolCall | null;
  repeats: boolean;
}

export function MessageRow({ message, call, repeats }: Props): VNode {
  if (message.role.startsWith("tool")) return <ToolCard message={message} call={call} repeats={repeats} />;
  const mark = message.mark ? MARKS[message.mark] : null;
  const calls = message.tool_calls ?? [];
  return (
    <article class={`message role-${message.role}${message.mark ? ` mark-${message.mark}` : ""}`}>
      <header class="message-head">
        <span class="message-role">{message.role === "user" && message.turn > 0 ? "Person" : (ROLES[message.role] ?? word(message.role))}</span>
        {message.agent && <Tag tone="plain" title="The agent that has the conversation">{message.agent}</Tag>}
        {mark && <Tag tone={mark.tone} title={mark.title}>{mark.text}</Tag>}
        {message.origin && <Tag tone="warn" title="Written by a third party">{message.origin}</Tag>}
      </header>
      {message.reasoning && <Reasoning text={message.reasoning} />}
      {message.text ? <LongText text={message.text} render={(text) => <Markdown text={text} />} /> : !calls.length && !message.reasoning && <p class="muted small">no text</p>}
      {calls.length > 0 && (
        <ul class="calls" aria-label="Tool calls">
          {calls.map((each) => <li key={each.id}><Icon name="tool" size={14} /><code>{each.name}</code><span class="muted">{line(JSON.stringify(each.arguments ?? {}), 140)}</span></li>)}
        </ul>
      )}
    </article>
  );
}

function Reasoning({ text }: { text: string }): VNode {
  return (
    <details class="reasoning">
      <summary>Reasoning <span class="muted">{line(text, 80)}</span></summary>
      <LongText text={text} render={(shown) => <div class="reasoning-text" dir="auto">{shown}</div>} />
    </details>
  );
}

const SHORT = 600;

function ToolCard({ message, call, repeats }: Props): VNode {
  const name = message.name ?? call?.name ?? "tool";
  const failed = message.is_error === true;
  const long = message.text.length > SHORT || message.text.split("\n").length > 10;
  return (
    <article class={`tool-card${failed ? " failed-card" : ""}${repeats ? " repeats" : ""}`} data-tool={name}>
      <header class="message-head">
        <Icon name="tool" size={14} /><code class="tool-name">{name}</code>
        <Tag tone={failed ? "bad" : "good"}>{failed ? "error" : "ok"}</Tag>
        {message.mark && <Tag tone={MARKS[message.mark]?.tone ?? "plain"} title={MARKS[message.mark]?.title}>{MARKS[message.mark]?.text}</Tag>}
        {message.origin && <Tag tone="warn" title="Written by a third party, not trusted">{message.origin}</Tag>}
        {repeats && <Tag tone="warn" title="The guard saw this call repeat">repeats</Tag>}
      </header>
      {message.handoff && <p class="handoff-row" data-handoff={message.handoff.to}><code>{message.handoff.from}</code> handed the conversation over to <code>{message.handoff.to}</code></p>}
      {message.skill && <SkillRow skill={message.skill} turn={message.turn} ran={name === "run_skill_script"} />}
      {call && (
        <details class="fold"><summary>Arguments <span class="muted mono">{line(JSON.stringify(call.arguments ?? {}), 100)}</span></summary><Arguments value={call.arguments} /></details>
      )}
      <details class="fold" open={!long}>
        <summary>Result {long && <span class="muted">{line(message.text, 100)}</span>}</summary>
        <LongText text={message.text} render={(text) => <pre class="code wrap" tabIndex={0} dir="auto">{text || "(empty)"}</pre>} />
      </details>
    </article>
  );
}

/** Which text of a skill the model read, or whose script it ran, and at which turn. */
function SkillRow({ skill, turn, ran }: { skill: UsedSkill; turn: number; ran: boolean }): VNode {
  return (
    <p class="skill-row" data-skill={skill.name}>
      {ran ? "Ran" : "Read"} <code>{skill.file}</code> of the skill <code>{skill.name}</code> at turn {turn}
      <Tag tone={skill.trusted ? "good" : "warn"} title={skill.trusted ? "A person trusted the folder of this skill" : "Nobody trusted the folder of this skill: its text does not count as yours"}>{skill.trusted ? "trusted" : "untrusted"}</Tag>
      <code class="skill-digest">{skill.digest}</code>
    </p>
  );
}

/** What the model is writing now. */
export function LiveRow({ attempt }: { attempt: Attempt }): VNode {
  const gone = attempt.discarded !== null;
  return (
    <article class={`message role-assistant live${gone ? " mark-discarded" : ""}`} aria-busy={!gone}>
      <header class="message-head">
        <span class="message-role">Model</span>
        {gone ? <Tag tone="bad" title={attempt.discarded ?? ""}>discarded</Tag> : <Tag tone="live">writing</Tag>}
        {attempt.landing && <Tag tone="landing">landing</Tag>}
        {attempt.attempt > 1 && <Tag>attempt {attempt.attempt}</Tag>}
      </header>
      {gone && <p class="muted small">{attempt.discarded}</p>}
      {attempt.thinking && <Reasoning text={attempt.thinking} />}
      {attempt.text ? <Markdown text={attempt.text.slice(-8000)} /> : !gone && <p class="muted small">thinking<span class="ellipsis" aria-hidden="true">…</span></p>}
    </article>
  );
}
