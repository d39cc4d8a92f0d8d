// Two runs side by side, turn by turn, with the first turn at which they part.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VNode } from "preact";
import { ApiError, api } from "../api";
import { Empty, Failed, Loading, StatePill, Tag } from "../components/bits";
import { GaugeBar } from "../components/gauges";
import { MessageRow } from "../components/message";
import { PhaseTrack } from "../components/phase";
import { amount, count, duration, gaugeName, line, money } from "../format";
import { useKeys } from "../keys";
import { go, places } from "../router";
import { card, cardOf, order } from "../store/runs";
import { exactNow } from "../store/session";
import type { Card, Detail, Message } from "../types";

interface Side {
  detail: Detail;
  messages: Message[];
  total: number;
}

const AT_ONCE = 200;
const TURNS_SHOWN = 40;

async function read(id: string): Promise<Side> {
  const [detail, page] = await Promise.all([api.detail(id), api.messages(id, 0, AT_ONCE)]);
  return { detail, messages: page.messages, total: page.total };
}

export function CompareView({ left, right }: { left: string | null; right: string | null }): VNode {
  useKeys(() => [{ key: "Escape", label: "back", group: "Compare", run: () => go(places.runs()) }]);
  return (
    <section class="page compare" aria-label="Compare two runs">
      <div class="toolbar"><h1>Compare</h1>
        <Picker label="Left" chosen={left} pick={(id) => go(places.compare(id, right))} />
        <Picker label="Right" chosen={right} pick={(id) => go(places.compare(left ?? id, left ? id : null))} />
      </div>
      {left && right ? <Pair left={left} right={right} key={`${left} ${right}`} /> : <Empty title="Pick two runs"><p>On the list, <kbd>c</kbd> marks a run to compare.</p></Empty>}
    </section>
  );
}

function Picker({ label, chosen, pick }: { label: string; chosen: string | null; pick: (id: string) => void }): VNode {
  const known = chosen && !order.value.includes(chosen) ? [chosen, ...order.value] : order.value;
  return (
    <label class="picker">{label} <select value={chosen ?? ""} onChange={(event) => pick(event.currentTarget.value)}>
      <option value="">choose a run</option>
      {known.slice(0, 100).map((id) => <option key={id} value={id}>{line(cardOf(id)?.title || cardOf(id)?.task || id, 60)}</option>)}
    </select></label>
  );
}

function Pair({ left, right }: { left: string; right: string }): VNode {
  const one = useSignal<Side | null>(null);
  const other = useSignal<Side | null>(null);
  const problem = useSignal<ApiError | null>(null);
  const turns = useSignal(TURNS_SHOWN);
  const load = async (): Promise<void> => {
    try {
      const [first, second] = await Promise.all([read(left), read(right)]);
      one.value = first;
      other.value = second;
      problem.value = null;
    } catch (error) {
      problem.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
    }
  };
  const moved = `${card(left)?.value.sequence ?? 0} ${card(right)?.value.sequence ?? 0}`;
  useEffect(() => {
    const timer = window.setTimeout(() => void load(), one.peek() ? 1000 : 0);
    return () => clearTimeout(timer);
  }, [moved]);
  if (problem.value) return <Failed message={problem.value.message} retry={() => void load()} />;
  if (!one.value || !other.value) return <Loading what="both runs" />;
  const rows = byTurn(one.value.messages, other.value.messages);
  const parting = rows.find((row) => !row.same);
  return (
    <>
      <div class="pair pair-head"><Summary side={one.value} against={other.value.detail} /><Summary side={other.value} against={one.value.detail} /></div>
      <p class="parting" role="status">{!parting ? "The two runs are identical." : parting.turn === 0 ? "They differ from the start." : `Identical until turn ${parting.turn}.`}</p>
      {rows.slice(0, turns.value).map((row) => (
        <div class={row === parting ? "pair parted" : "pair"} key={row.turn}>
          <h2 class="pair-turn">Turn {row.turn}{row.same ? <Tag>same</Tag> : row === parting ? <Tag tone="warn">first difference</Tag> : null}</h2>
          <div class="pair-side">{row.left.map((message) => <MessageRow key={message.index} message={message} call={null} repeats={false} />)}{!row.left.length && <p class="muted small">no such turn</p>}</div>
          <div class="pair-side">{row.right.map((message) => <MessageRow key={message.index} message={message} call={null} repeats={false} />)}{!row.right.length && <p class="muted small">no such turn</p>}</div>
        </div>
      ))}
      {rows.length > turns.value && <button type="button" class="button" onClick={() => (turns.value += TURNS_SHOWN)}>Show more turns</button>}
      {[one.value, other.value].some((side) => side.total > AT_ONCE) && <p class="muted">The first {AT_ONCE} messages of each run are compared. Open a run to see all of it.</p>}
    </>
  );
}

interface Row {
  turn: number;
  left: Message[];
  right: Message[];
  same: boolean;
}

function byTurn(left: Message[], right: Message[]): Row[] {
  const rows = new Map<number, Row>();
  const at = (turn: number): Row => {
    const found = rows.get(turn) ?? { turn, left: [], right: [], same: false };
    rows.set(turn, found);
    return found;
  };
  for (const message of left) at(message.turn).left.push(message);
  for (const message of right) at(message.turn).right.push(message);
  const text = (messages: Message[]): string => JSON.stringify(messages.map((message) => [message.role, message.text, message.name, message.tool_calls?.map((call) => [call.name, call.arguments])]));
  return [...rows.values()].sort((one, other) => one.turn - other.turn).map((row) => ({ ...row, same: text(row.left) === text(row.right) }));
}

function Summary({ side, against }: { side: Side; against: Card }): VNode {
  const run = side.detail;
  const took = (each: Card): number => (each.ended ?? exactNow()) - each.started;
  return (
    <div class="pair-side pair-summary">
      <h2><a href={places.run(run.run_id)}>{line(run.title || run.task || run.run_id, 80)}</a></h2>
      <div class="flight-facts"><StatePill card={run} /><span>{run.agent}</span><PhaseTrack card={run} small /></div>
      <dl class="numbers">
        <Figure name="Turns" value={run.turn} other={against.turn} show={count} />
        <Figure name="Tokens" value={run.usage.total} other={against.usage.total} show={count} />
        <Figure name="Cost" value={run.cost === null ? null : Number(run.cost)} other={against.cost === null ? null : Number(against.cost)} show={money} />
        <Figure name="Time" value={took(run)} other={took(against)} show={duration} />
      </dl>
      {run.gauges.filter((gauge) => gauge.limit !== null).map((gauge) => <div class="branch-gauge" key={gauge.kind}><span class="muted">{gaugeName(gauge.kind)}</span><GaugeBar gauge={gauge} /><span class="num">{amount(gauge, gauge.used)} / {amount(gauge, gauge.limit ?? 0)}</span></div>)}
      {run.cause && <p class="muted">{run.cause.reason}</p>}
    </div>
  );
}

function Figure({ name, value, other, show }: { name: string; value: number | null; other: number | null; show: (value: number) => string }): VNode {
  const share = value !== null && other ? value / other : 1;
  const beside = Math.abs(share - 1) < 0.005 ? "" : share >= 2 ? `×${share.toFixed(1)}` : `${share > 1 ? "+" : "−"}${Math.round(Math.abs(share - 1) * 100)} %`;
  return <div><dt>{name}</dt><dd class="num">{value === null ? "unknown" : show(value)}{beside && <span class="muted small"> {beside}</span>}</dd></div>;
}
