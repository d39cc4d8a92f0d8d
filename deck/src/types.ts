// What the server says, as its contract has it. Nothing here is made up by the page.

export type RunState = "queued" | "running" | "paused" | "ended" | "lost";
export type Phase = "cruise" | "notice" | "landing" | "ground";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Gauge {
  kind: string;
  unit: string;
  used: number;
  reserved: number;
  reserve: number;
  limit: number | null;
}

export interface AgentInfo {
  name: string;
  model: string;
  tools: string[];
  limits: JsonObject;
}

export interface Info {
  version: string;
  role: "view" | "run" | "approve" | "control";
  /** What the role may do, by the names of the server's table; absent in exported files. */
  rights?: string[];
  agents: AgentInfo[];
  store: string;
  demo: boolean;
  now: number;
  max_runs: number | null;
}

export interface Card {
  run_id: string;
  session_id: string;
  agent: string;
  task: string;
  title: string;
  state: RunState;
  agent_state: string | null;
  outcome: string | null;
  cause: { source: string; reason: string } | null;
  phase: Phase;
  turn: number;
  usage: { input: number; output: number; total: number };
  cost: string | null;
  started: number;
  updated: number;
  ended: number | null;
  tags: string[];
  pending_count: number;
  parent: string | null;
  forked_from: { session: string; turn: number } | null;
  owner: string | null;
  resumable: boolean;
  /** Another program runs it, through the gate. */
  foreign: boolean;
  gauges: Gauge[];
  guard: { guard: string; reason: string; period: number | null } | null;
  last: string;
  sequence: number;
  /** When its last leg began or ended: the list has the newest first. */
  listed: number;
}

export interface Pending {
  id: string;
  kind: string;
  run_id: string;
  session_id: string;
  /** What its run was asked, and its title if it has one. */
  task: string;
  title: string;
  agent: string;
  tool: string;
  arguments: JsonObject;
  reason: string;
  origin: string | null;
  asked: number;
  expires: number | null;
  message: string;
  form?: JsonObject | null;
  tool_shown: string;
  /** The question as every door shows it, made by the server: nothing in it is hidden. */
  shown: string[];
  /** Of the tool and the arguments; goes back with the decision. */
  digest: string;
}

export interface UnknownEffect {
  call_id: string;
  tool: string;
  arguments: JsonObject;
  since: number | null;
}

export interface BudgetNode {
  name: string;
  kind: string;
  run_id: string | null;
  gauges: Gauge[];
  children: BudgetNode[];
}

/** What a run and its children had used at a time. */
export interface UsagePoint {
  time: number;
  turns: number;
  tokens: number;
  input_tokens: number;
  output_tokens: number;
  cost: number;
  tool_calls: number;
}

/** Something that took time. What is left out is empty. */
export interface Span {
  kind: "model" | "tool" | "child" | "wait";
  name: string;
  started: number;
  sequence: number;
  ended?: number | null;
  turn?: number;
  attempt?: number;
  failed?: boolean;
  landing?: boolean;
  note?: string;
  call_id?: string;
  child?: string;
  input?: number;
  output?: number;
  cost?: number | null;
}

/** One evaluation at a glance. */
export interface EvalCard {
  name: string;
  dataset: string;
  agent: string;
  status: string;
  passed: number;
  covered: number;
  planned: number;
  pass_rate: number | null;
  cost: string | null;
  tokens: number;
  began: string;
  updated: number;
}

export interface EvalResult {
  case_id: string;
  repeat: number;
  passed: boolean | null;
  why: string;
  ended: string;
  cause: string;
  prompt: string;
  expected: string;
  text: string;
  turns: number;
  tokens: number;
  cost: string | null;
  seconds: number;
  session_id: string | null;
  scores: { name: string; passed: boolean | null; value: number; why: string }[];
}

export interface EvalDetail {
  card: EvalCard;
  repeat: number;
  cases: number;
  seconds: number;
  limits: { [name: string]: string };
  pass_rate: number | null;
  interval: [number, number];
  always: number;
  uncovered: { [why: string]: number };
  endings: { [ending: string]: number };
  cost: string | null;
  judge_cost: string | null;
  tokens: number;
  curve: {
    by: string;
    says: string;
    points: {
      limit: string; passed: number; covered: number; tokens: number; cost?: string | null; landed?: number;
      real_passed?: number | null; real_tokens?: number | null; real_cost?: string | null; real_landed?: number | null;
    }[];
  } | null;
  results: EvalResult[];
  total: number;
}

/** One call of a model, as it was asked. */
export interface ModelRequest {
  model: string;
  system: string;
  tools: { name: string; description: string; parameters: Json }[];
  /** Names of the tools that might be called; null is all of them. */
  allowed: string[] | null;
  parameters: JsonObject;
  messages: Message[];
  /** What is not as it was sent, if anything. */
  note: string;
}

/** What a person did to a run, as its journal has it. */
export interface Remark {
  action: string;
  reason: string;
  who: string;
  time: number;
}

export interface Detail extends Card {
  text: string | null;
  text_origin?: string | null;
  /** What the model has written of the reply that it is at; null between two replies. */
  reply?: string | null;
  pending: Pending[];
  unknown_effects: UnknownEffect[];
  abandoned: string[];
  children: Card[];
  budget: BudgetNode | null;
  limits: JsonObject;
  notices: Json[];
  /** Where its trace is shown. */
  trace?: string | null;
  controls?: Remark[];
}

/** The state of a run at the end of one of its turns. */
export interface Moment {
  turn: number;
  at: number;
  usage: Card["usage"];
  cost: string | null;
  state: RunState;
  agent_state: string | null;
  outcome: string | null;
  messages: number;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: Json;
}

export type Mark = "cut" | "discarded" | "landing" | "notice";

export interface Message {
  index: number;
  turn: number;
  role: string;
  text: string;
  reasoning?: string | null;
  tool_calls?: ToolCall[] | null;
  call_id?: string | null;
  name?: string | null;
  is_error?: boolean | null;
  origin?: string | null;
  /** What a result read or ran of a skill. */
  skill?: UsedSkill | null;
  /** Who speaks, once the conversation was handed over. */
  agent?: string | null;
  handoff?: { from: string; to: string } | null;
  mark: Mark | null;
}

export interface UsedSkill {
  name: string;
  digest: string;
  file: string;
  trusted: boolean;
}

export interface RunEvent {
  event: string;
  run_id: string;
  sequence: number;
  time: number;
  [field: string]: Json;
}

export interface Fleet {
  workers: { name: string; runs: number; lease_until: number | null; started: number }[];
  queue: { waiting: number; running: number };
  breakers: { name: string; state: string; since: number | null }[];
  rates: { name: string; used: number; limit: number; per: number }[];
  kill: { active: boolean; reason: string; switches: Switch[] };
}

/** A kill switch that is thrown: of the fleet, or of one tenant. */
export interface Switch {
  scope: "fleet" | "tenant";
  id: string | null;
  reason: string;
  who: string;
  since: number;
}

export interface Answer {
  run_id: string;
  session_id?: string;
  state: string;
  sequence: number;
  took_ms: number | null;
  message: string;
}
