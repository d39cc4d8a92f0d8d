// The frame: where to go, who is listening, what just happened.

import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { Icon, Loading } from "../components/bits";
import { DialogHost, panel } from "../components/dialog";
import { count, duration } from "../format";
import { currentKeys, useKeys } from "../keys";
import { go, places, route } from "../router";
import { dismiss, reports } from "../store/actions";
import { refreshApprovals, waiting } from "../store/approvals";
import { reload, restartFeed, retryFeed } from "../store/runs";
import { heard, info, link, loadInfo, needsToken, now, offline, problem, switches } from "../store/session";
import { nextTheme, theme } from "../theme";
import { keepToken } from "../token";
import { ApprovalsView } from "./approvals";
import { CompareView } from "./compare";
import { EvalsView, EvalView } from "./evals";
import { FleetView } from "./fleet";
import { RunView } from "./run";
import { RunsView } from "./runs";

export function Shell(): VNode {
  useKeys(() => [
    { key: "?", label: "this help", group: "Everywhere", run: help },
    { key: "g r", label: "runs", group: "Everywhere", run: () => go(places.runs()) },
    { key: "g a", label: "approvals", group: "Everywhere", run: () => go(places.approvals()) },
    { key: "g f", label: "fleet", group: "Everywhere", run: () => go(places.fleet()) },
    { key: "g e", label: "evaluations", group: "Everywhere", run: () => go(places.evals()) },
    { key: "g c", label: "compare", group: "Everywhere", run: () => go(places.compare()) },
    { key: "t", label: "light or dark", group: "Everywhere", run: nextTheme },
  ]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <TopBar />
      <Trouble />
      <Held />
      <main id="main" tabIndex={-1}>{needsToken.value ? <TokenNeeded /> : info.value ? <Here /> : problem.value ? <NoServer /> : <Loading what="the flight deck" />}</main>
      <Reports />
      <DialogHost />
    </>
  );
}

function Here(): VNode {
  const at = route.value;
  switch (at.view) {
    case "run": return <RunView key={at.id} id={at.id} tab={at.tab} />;
    case "approvals": return <ApprovalsView />;
    case "evals": return at.name ? <EvalView key={at.name} name={at.name} /> : <EvalsView />;
    case "fleet": return <FleetView />;
    case "compare": return <CompareView left={at.left} right={at.right} />;
    default: return <RunsView />;
  }
}

function TopBar(): VNode {
  const at = route.value.view;
  const item = (view: string, place: string, label: string, badge = 0): VNode => (
    <a href={place} aria-current={at === view || (view === "runs" && at === "run") ? "page" : undefined}>{label}{badge > 0 && <span class="badge num" aria-label={`${badge} waiting`}>{count(badge)}</span>}</a>
  );
  return (
    <header class="top">
      <a class="brand" href={places.runs()} aria-label="glidepath flight deck">
        <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" class="brand-box" /><path d="M5 10h7c7 0 7 12 15 12" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" /><circle cx="15.4" cy="13" r="3" fill="#fff" /></svg>
        <span class="brand-name">glidepath</span>
      </a>
      {offline.value ? <span class="muted">exported run</span> : (
        <nav aria-label="Places">{item("runs", places.runs(), "Runs")}{item("approvals", places.approvals(), "Approvals", waiting.value)}{item("fleet", places.fleet(), "Fleet")}{item("evals", places.evals(), "Evals")}{item("compare", places.compare(), "Compare")}</nav>
      )}
      <span class="spring" />
      {info.value?.demo && <span class="tag tone-plain top-extra">demo</span>}
      {info.value?.role === "view" && !offline.value && <span class="tag tone-plain top-extra">view only</span>}
      {!offline.value && <LinkLight />}
      <button type="button" class="button icon-only quiet" aria-label={`Colors: ${theme.value}`} title="Light, dark, or follow the system (t)" onClick={nextTheme}><Icon name={theme.value === "auto" ? "auto" : theme.value === "dark" ? "moon" : "sun"} /></button>
      <button type="button" class="button icon-only quiet" aria-label="Keyboard help" title="Keyboard help (?)" onClick={help}>?</button>
    </header>
  );
}

function LinkLight(): VNode {
  const state = link.value.kind;
  const words = { open: "live", connecting: "connecting", waiting: "offline", resting: "resting", refused: "refused", closed: "closed" }[state];
  return <span class={`link-light link-${state}`} role="status"><i class="dot" aria-hidden="true" /><span class="link-word">{words}</span></span>;
}

const PATIENCE = 1500;

function Trouble(): VNode | null {
  const state = link.value;
  now.value; // ticks, so that the count below goes down
  if (state.kind !== "waiting" || !info.value || Date.now() - heard.value < PATIENCE) return null;
  const left = Math.max(0, (state.until - Date.now()) / 1000);
  return (
    <div class="trouble" role="alert">
      <Icon name="alert" />
      <span>{state.error.message} You see what it said at {new Date(heard.value).toLocaleTimeString("en-GB")}. If it is only out of reach, its runs continue; if it has died, they stand still until somebody resumes them. Retrying {left < 1 ? "now" : `in ${duration(Math.ceil(left))}`}.</span>
      <button type="button" class="button small" onClick={retryFeed}>Try now</button>
    </div>
  );
}

/** A thrown kill switch is seen from everywhere. */
function Held(): VNode | null {
  const thrown = switches.value;
  if (!thrown.length) return null;
  const fleet = thrown.find((each) => each.scope === "fleet");
  const whose = fleet ? "No run starts" : `No run starts for ${thrown.length === 1 ? `tenant ${thrown[0]?.id}` : `${count(thrown.length)} tenants`}`;
  return (
    <div class="trouble held" role="status">
      <Icon name="kill" />
      <span><strong>Kill switch on.</strong> {whose} until somebody releases it: {(fleet ?? thrown[0])?.reason}</span>
      {route.value.view !== "fleet" && <a class="button small" href={places.fleet()}>Open the fleet</a>}
    </div>
  );
}

const typed = signal("");

function TokenNeeded(): VNode {
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    keepToken(typed.peek());
    typed.value = "";
    if (await loadInfo()) begin();
  };
  return (
    <form class="gate" onSubmit={submit}>
      <h1>This page needs a token</h1>
      <p class="muted">Open the address that <code>glidepath serve</code> or <code>glidepath deck</code> printed, or paste the token here. It stays in this tab.</p>
      <div class="field"><label for="token">Token</label><input id="token" type="password" autocomplete="off" value={typed.value} onInput={(event) => (typed.value = event.currentTarget.value)} /></div>
      <button type="submit" class="button primary">Open the deck</button>
    </form>
  );
}

function NoServer(): VNode {
  return (
    <div class="gate">
      <h1>No answer from the server</h1>
      <p class="muted">{problem.value?.message} Is <code>glidepath serve</code> still running?</p>
      <button type="button" class="button primary" onClick={() => void loadInfo().then((found) => { if (found) begin(); })}>Try again</button>
    </div>
  );
}

function Reports(): VNode {
  return (
    <div class="reports" role="log" aria-live="polite" aria-label="What happened">
      {reports.value.map((report) => (
        <div key={report.key} class={`report report-${report.tone}`}>
          {report.tone === "busy" ? <span class="spinner" aria-hidden="true" /> : <Icon name={report.tone === "good" ? "check" : "alert"} />}
          <span><strong>{report.title}</strong> {report.text}</span>
          {report.tone !== "busy" && <button type="button" class="button icon-only quiet small" aria-label="Dismiss" onClick={() => dismiss(report.key)}><Icon name="cross" size={12} /></button>}
        </div>
      ))}
    </div>
  );
}

function help(): void {
  const groups = Map.groupBy(currentKeys().filter((key) => key.label), (key) => key.group);
  panel("Keyboard", () => (
    <div class="help">
      {[...groups].map(([group, keys]) => (
        <section key={group}><h3>{group}</h3><dl>{keys.map((key) => <div key={key.key}><dt><kbd>{key.key === "Escape" ? "esc" : key.key === "Enter" ? "enter" : key.key}</kbd></dt><dd>{key.label}</dd></div>)}</dl></section>
      ))}
    </div>
  ), true);
}

/** Everything that starts once the server has let us in. */
export function begin(): void {
  restartFeed();
  void reload();
  void refreshApprovals();
}
