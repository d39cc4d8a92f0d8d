// The fleet: the kill switch, who flies, what is tripped, how fast, and where the budget goes.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VNode } from "preact";
import { ApiError, api } from "../api";
import { Empty, Failed, Icon, Loading, Tag } from "../components/bits";
import { BudgetTree } from "../components/budget";
import { killSwitch } from "../controls";
import { ago, clock, count, duration, plural } from "../format";
import { useKeys } from "../keys";
import { mayControl, now } from "../store/session";
import type { BudgetNode, Fleet } from "../types";

const fleet = signal<Fleet | null>(null);
const roots = signal<BudgetNode[]>([]);
const trouble = signal<ApiError | null>(null);
const EVERY = 2000;
const PERIODS: Record<number, string> = { 1: "a second", 60: "a minute", 3600: "an hour", 86400: "a day" };

/** Host and process of a worker; its whole name tells it from one that had them before. */
function workerName(name: string): string {
  const [host, process] = name.split("|");
  return process ? `${host?.split("/")[0]}, process ${process}` : name;
}

export async function refreshFleet(): Promise<void> {
  try {
    const [found, budgets] = await Promise.all([api.fleet(), api.budgets()]);
    fleet.value = found;
    roots.value = budgets.roots;
    trouble.value = null;
  } catch (error) {
    trouble.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
  }
}

export function FleetView(): VNode {
  useEffect(() => {
    void refreshFleet();
    const timer = window.setInterval(() => { if (!document.hidden) void refreshFleet(); }, EVERY);
    return () => clearInterval(timer);
  }, []);
  useKeys(() => [{ key: "x", label: "kill switch for the fleet", group: "Fleet", when: () => mayControl.peek(), run: () => killSwitch("fleet", !fleet.peek()?.kill.active, null, () => void refreshFleet()) }]);
  const found = fleet.value;
  if (!found) return trouble.value ? <Failed message={trouble.value.message} retry={() => void refreshFleet()} /> : <Loading what="the fleet" />;
  return (
    <section class="page" aria-label="Fleet">
      <div class="toolbar"><h1>Fleet</h1><span class="muted">{plural(found.queue.running, "run")} in flight, {count(found.queue.waiting)} waiting</span></div>
      {trouble.value && <Failed message={trouble.value.message} retry={() => void refreshFleet()} />}
      <div class="panels">
        <KillPanel kill={found.kill} />
        <Workers workers={found.workers} />
        <section class="panel-card"><h2>Breakers</h2>
          {found.breakers.length ? (
            <table class="plain-table"><thead><tr><th scope="col">Protects</th><th scope="col">State</th><th scope="col" class="right">Since</th></tr></thead>
              <tbody>{found.breakers.map((each) => <tr key={each.name}><td>{each.name}</td><td><Tag tone={each.state === "open" ? "bad" : each.state === "half_open" ? "warn" : "good"}>{each.state.replace("_", " ")}</Tag></td><td class="num right">{each.since ? ago(now.value - each.since) : ""}</td></tr>)}</tbody></table>
          ) : <p class="muted">No breaker has tripped.</p>}
        </section>
        <section class="panel-card"><h2>Rates</h2>
          {found.rates.length ? found.rates.map((each) => (
            <div class="rate" key={each.name}><span>{each.name}</span>
              <div class="bar level-ok" role="meter" aria-label={each.name} aria-valuemin={0} aria-valuemax={each.limit} aria-valuenow={Math.min(each.used, each.limit)} aria-valuetext={`${count(each.used)} of ${count(each.limit)} in the last ${duration(each.per)}`}><span class="bar-used" style={{ width: `${Math.min(100, (each.used / each.limit) * 100)}%` }} /></div>
              <span class="num">{count(each.used)} / {count(each.limit)} {PERIODS[each.per] ?? `in ${duration(each.per)}`}</span></div>
          )) : <p class="muted">No rate limit is set.</p>}
        </section>
        <section class="panel-card wide-card"><h2>Budget tree</h2>
          {roots.value.length ? roots.value.map((root) => <BudgetTree key={root.name} node={root} />) : <Empty title="No budgets are open" />}
        </section>
      </div>
    </section>
  );
}

function KillPanel({ kill }: { kill: Fleet["kill"] }): VNode {
  const after = (): void => void refreshFleet();
  const fleet = kill.switches.find((each) => each.scope === "fleet");
  const tenants = kill.switches.filter((each) => each.scope === "tenant");
  return (
    <section class={kill.active ? "panel-card kill on" : "panel-card kill"}>
      <h2>Kill switch</h2>
      <p data-switch={fleet ? "fleet" : undefined}>{fleet ? <><Tag tone="bad">on</Tag> {fleet.reason}, <span class="muted">{ago(now.value - fleet.since)}</span></> : <><Tag tone="good">off</Tag> The fleet may spend.</>}</p>
      {tenants.length > 0 && (
        <ul class="switches" aria-label="Stopped tenants">
          {tenants.map((each) => (
            <li key={each.id} data-switch={each.id}>
              <span><Tag tone="bad">on</Tag> <strong>tenant {each.id}</strong> {each.reason}, <span class="muted">{ago(now.value - each.since)}</span></span>
              <button type="button" class="button small" disabled={!mayControl.value} onClick={() => killSwitch("tenant", false, each.id, after)}>Release</button>
            </li>
          ))}
        </ul>
      )}
      <div class="row">
        {kill.active
          ? <button type="button" class="button" disabled={!mayControl.value} onClick={() => killSwitch("fleet", false, null, after)}><Icon name="resume" />Release the fleet</button>
          : <button type="button" class="button danger" disabled={!mayControl.value} onClick={() => killSwitch("fleet", true, null, after)}><Icon name="kill" />Stop the fleet</button>}
        <button type="button" class="button" disabled={!mayControl.value} onClick={() => killSwitch("tenant", true, null, after)}>Stop a tenant</button>
      </div>
    </section>
  );
}

function Workers({ workers }: { workers: Fleet["workers"] }): VNode {
  return (
    <section class="panel-card"><h2>Workers and leases</h2>
      {workers.length ? (
        <table class="plain-table"><thead><tr><th scope="col">Worker</th><th scope="col" class="right">Runs</th><th scope="col" class="right">Started</th><th scope="col" class="right">Lease until</th></tr></thead>
          <tbody>{workers.map((each) => {
            const over = each.lease_until !== null && each.lease_until < now.value;
            return <tr key={each.name}><td title={each.name}>{workerName(each.name)}</td><td class="num right">{each.runs}</td><td class="num right">{ago(now.value - each.started)}</td><td class="num right">{each.lease_until === null ? "none" : over ? <Tag tone="bad">expired</Tag> : clock(each.lease_until)}</td></tr>;
          })}</tbody></table>
      ) : <p class="muted">No other worker shares this store.</p>}
    </section>
  );
}
