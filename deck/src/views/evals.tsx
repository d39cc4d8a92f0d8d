// Evaluations: what share of a dataset an agent passes, what that costs, and what a smaller budget would buy.

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VNode } from "preact";
import { ApiError, api } from "../api";
import { Empty, Failed, LongText, Loading, Tag } from "../components/bits";
import { EvalCurve } from "../components/evalcurve";
import { ago, count, duration, money, plural } from "../format";
import { useKeys } from "../keys";
import { go, places } from "../router";
import { now } from "../store/session";
import type { EvalCard, EvalDetail, EvalResult } from "../types";

const EVERY = 3000;
const AT_ONCE = 100;
const TONES: Record<string, string> = { completed: "good", running: "live", stopped: "bad", incomplete: "warn" };

export function share(value: number | null): string {
  return value === null ? "none" : `${(value * 100).toFixed(value > 0 && value < 1 ? 1 : 0)} %`;
}

function broken(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
}

const listed = signal<EvalCard[] | null>(null);

export function EvalsView(): VNode {
  const trouble = useSignal<ApiError | null>(null);
  const chosen = useSignal(0);
  const load = async (): Promise<void> => {
    try {
      listed.value = (await api.evals()).evals;
      trouble.value = null;
    } catch (error) {
      trouble.value = broken(error);
    }
  };
  useEffect(() => {
    void load();
    const timer = window.setInterval(() => { if (!document.hidden) void load(); }, EVERY);
    return () => clearInterval(timer);
  }, []);
  const found = listed.value ?? [];
  useKeys(() => [
    { key: "j", label: "next evaluation", group: "Evaluations", run: () => (chosen.value = Math.min(found.length - 1, chosen.peek() + 1)) },
    { key: "k", label: "previous evaluation", group: "Evaluations", run: () => (chosen.value = Math.max(0, chosen.peek() - 1)) },
    { key: "Enter", label: "open it", group: "Evaluations", when: () => found.length > 0, run: () => go(places.evals(found[chosen.peek()]!.name)) },
  ]);
  return (
    <section class="page" aria-label="Evaluations">
      <div class="toolbar"><h1>Evaluations</h1>{found.length > 0 && <span class="muted">{plural(found.length, "evaluation")}, the last written first</span>}</div>
      {trouble.value && <Failed message={trouble.value.message} retry={() => void load()} />}
      {!listed.value && !trouble.value && <Loading what="evaluations" />}
      {listed.value && !found.length && <Empty title="No evaluations in this store"><p><code>glidepath eval cases.csv --agent app:agent --store …</code> makes one.</p></Empty>}
      <ul class="evals">
        {found.map((each, place) => (
          <li key={each.name} class={place === chosen.value ? "eval-row chosen" : "eval-row"} data-eval={each.name}>
            <a href={places.evals(each.name)}><strong>{each.name}</strong></a>
            <Tag tone={TONES[each.status] ?? "plain"}>{each.status}</Tag>
            <span class="eval-what muted">{each.agent} on {each.dataset}</span>
            <RateBar passed={each.passed} covered={each.covered} planned={each.planned} />
            <span class="num eval-rate">{share(each.pass_rate)}</span>
            <span class="num muted">{count(each.passed)} of {count(each.covered)} passed{each.covered < each.planned ? `, ${count(each.planned - each.covered)} open` : ""}</span>
            <span class="num muted">{each.cost === null ? plural(each.tokens, "token") : money(each.cost)}</span>
            <span class="num muted eval-when">{ago(now.value - each.updated)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function RateBar({ passed, covered, planned }: { passed: number; covered: number; planned: number }): VNode {
  const most = Math.max(1, planned);
  return (
    <span class="rate-bar" role="img" aria-label={`${passed} passed, ${covered - passed} failed, ${planned - covered} not covered`}>
      <span class="rate-good" style={{ width: `${(passed / most) * 100}%` }} /><span class="rate-bad" style={{ width: `${((covered - passed) / most) * 100}%` }} />
    </span>
  );
}

export function EvalView({ name }: { name: string }): VNode {
  const report = useSignal<EvalDetail | null>(null);
  const rows = useSignal<EvalResult[]>([]);
  const trouble = useSignal<ApiError | null>(null);
  const load = async (): Promise<void> => {
    try {
      const found = await api.evaluation(name, 0, Math.min(1000, Math.max(AT_ONCE, rows.peek().length)));
      report.value = found;
      rows.value = found.results;
      trouble.value = null;
    } catch (error) {
      trouble.value = broken(error);
    }
  };
  useEffect(() => {
    void load();
    const timer = window.setInterval(() => { if (!document.hidden && report.peek()?.card.status === "running") void load(); }, EVERY);
    return () => clearInterval(timer);
  }, [name]);
  useKeys(() => [{ key: "Escape", label: "back", group: "Evaluations", run: () => go(places.evals()) }]);
  const more = async (): Promise<void> => {
    const page = await api.evaluation(name, rows.peek().length, AT_ONCE).catch(() => null);
    if (page) rows.value = [...rows.peek(), ...page.results];
  };
  const found = report.value;
  if (!found) return trouble.value ? <Failed message={trouble.value.message} retry={() => void load()} /> : <Loading what="the evaluation" />;
  const { card, curve } = found;
  const gaps = Object.entries(found.uncovered);
  return (
    <section class="page" aria-label={`Evaluation ${name}`}>
      <div class="toolbar"><a class="back" href={places.evals()}>Evaluations</a><h1>{name}</h1><Tag tone={TONES[card.status] ?? "plain"}>{card.status}</Tag><span class="muted">{card.agent} on {card.dataset}, {plural(found.cases, "case")}{found.repeat > 1 ? `, ${found.repeat} times each` : ""}</span></div>
      <div class="panels">
        <section class="panel-card"><h2>Pass rate</h2>
          <p class="big num" data-rate>{share(found.pass_rate)}</p>
          {found.pass_rate !== null && <Interval rate={found.pass_rate} low={found.interval[0]} high={found.interval[1]} />}
          <p class="muted">{count(card.passed)} of {plural(card.covered, "run")} passed; 95 % interval {share(found.interval[0])} to {share(found.interval[1])}.{found.repeat > 1 ? ` ${plural(found.always, "case")} passed every time.` : ""}</p>
        </section>
        <section class="panel-card"><h2>Cost</h2>
          <p class="big num">{found.cost === null ? "no price" : money(found.cost)}</p>
          <dl class="facts">
            <div><dt>Tokens</dt><dd class="num">{count(found.tokens)}</dd></div>
            {found.judge_cost !== null && <div><dt>Judges</dt><dd class="num">{money(found.judge_cost)}</dd></div>}
            <div><dt>Time</dt><dd class="num">{duration(found.seconds)}</dd></div>
            {Object.entries(found.limits).map(([limit, value]) => <div key={limit}><dt>Budget</dt><dd class="num">{limit} {value}</dd></div>)}
            <div><dt>Ended</dt><dd>{Object.entries(found.endings).map(([ending, number]) => `${count(number)} ${ending}`).join(", ")}</dd></div>
          </dl>
        </section>
        {gaps.length > 0 && <section class="panel-card wide-card"><h2>Not covered</h2><p class="muted">The pass rate says nothing about these.</p><ul class="plain-list">{gaps.map(([why, number]) => <li key={why}><span class="num">{count(number)}</span> {why}</li>)}</ul></section>}
        {curve && curve.points.length > 0 && (
          <section class="panel-card wide-card"><h2>What a smaller {curve.by} for each run would buy</h2>
            <EvalCurve curve={curve} />
            <p class="muted">{curve.says}</p>
            <CurveTable curve={curve} />
          </section>
        )}
        <section class="panel-card wide-card"><h2>Every case, failures first</h2>
          <div class="results" role="list">{rows.value.map((each) => <Result key={`${each.case_id} ${each.repeat}`} result={each} repeats={found.repeat > 1} />)}</div>
          {rows.value.length < found.total && <p><button type="button" class="button" onClick={() => void more()}>Show more of {count(found.total)}</button></p>}
        </section>
      </div>
    </section>
  );
}

function Interval({ rate, low, high }: { rate: number; low: number; high: number }): VNode {
  return (
    <div class="interval" role="img" aria-label={`pass rate ${share(rate)}, between ${share(low)} and ${share(high)}`}>
      <span class="interval-range" style={{ left: `${low * 100}%`, width: `${(high - low) * 100}%` }} /><span class="interval-dot" style={{ left: `${rate * 100}%` }} />
    </div>
  );
}

function CurveTable({ curve }: { curve: NonNullable<EvalDetail["curve"]> }): VNode {
  const tried = curve.points.some((point) => (point.real_passed ?? null) !== null);
  const paid = (cost: string | null | undefined, tokens: number): string => (cost ? money(cost) : plural(tokens, "token"));
  return (
    <details class="fold"><summary>The figures</summary>
      <div class="md-table" tabIndex={0} role="group" aria-label="Figures of the curve">
        <table class="plain-table"><thead><tr><th scope="col">{curve.by}</th><th scope="col" class="right">passed</th><th scope="col" class="right">landed</th><th scope="col" class="right">cost</th>{tried && <><th scope="col" class="right">really passed</th><th scope="col" class="right">landed</th><th scope="col" class="right">cost</th></>}</tr></thead>
          <tbody>{curve.points.map((point) => (
            <tr key={point.limit}><td class="num">{point.limit}</td><td class="num right">{point.passed} of {point.covered}</td><td class="num right">{point.landed ?? 0}</td><td class="num right">{paid(point.cost, point.tokens)}</td>
              {tried && <><td class="num right">{point.real_passed ?? ""}</td><td class="num right">{point.real_landed ?? ""}</td><td class="num right">{paid(point.real_cost, point.real_tokens ?? 0)}</td></>}</tr>
          ))}</tbody></table>
      </div>
    </details>
  );
}

const WORDS = new Map<boolean | null, [string, string]>([[true, ["passed", "good"]], [false, ["failed", "bad"]], [null, ["not covered", "warn"]]]);

function Result({ result, repeats }: { result: EvalResult; repeats: boolean }): VNode {
  const [word, tone] = WORDS.get(result.passed)!;
  const name = `${result.case_id}${repeats ? ` #${result.repeat}` : ""}`;
  return (
    <div role="listitem" class="result" data-case={result.case_id} data-passed={String(result.passed)}>
      <div class="result-head">
        <Tag tone={tone}>{word}</Tag>
        {result.session_id ? <a href={places.run(result.session_id)}>{name}</a> : <strong>{name}</strong>}
        <span class="result-why" dir="auto">{result.why || result.cause || result.ended}</span>
        <span class="num muted">{plural(result.turns, "turn")}</span>
        <span class="num muted">{result.cost === null ? plural(result.tokens, "token") : money(result.cost)}</span>
        <span class="num muted">{duration(result.seconds)}</span>
      </div>
      <details class="fold"><summary>Prompt, expected, answer</summary>
        {([["Prompt", result.prompt], ["Expected", result.expected], ["Answer", result.text]] as [string, string][]).filter(([, text]) => text).map(([label, text]) => (
          <div key={label}><h3>{label}</h3><LongText text={text} render={(shown) => <pre class="code wrap" tabIndex={0} dir="auto">{shown}</pre>} /></div>
        ))}
        {result.scores.length > 0 && <ul class="plain-list">{result.scores.map((score) => <li key={score.name}>{score.name}: {WORDS.get(score.passed)![0]} ({score.value}) {score.why}</li>)}</ul>}
      </details>
    </div>
  );
}
