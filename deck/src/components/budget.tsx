// The budget tree: fleet, tenant, run, child, each with what it has used and what is reserved under it.

import type { VNode } from "preact";
import { amount, gaugeName } from "../format";
import { places } from "../router";
import type { BudgetNode } from "../types";
import { GaugeBar } from "./gauges";

export function BudgetTree({ node, here = null }: { node: BudgetNode; here?: string | null }): VNode {
  return <ul class="tree" aria-label="Budget tree"><Branch node={node} here={here} depth={0} /></ul>;
}

const MOST_CHILDREN = 40;

function Branch({ node, here, depth }: { node: BudgetNode; here: string | null; depth: number }): VNode {
  const limited = node.gauges.filter((gauge) => gauge.limit !== null);
  const shown = limited.length ? limited : node.gauges.filter((gauge) => gauge.used + gauge.reserved > 0).slice(0, 2);
  return (
    <li class={node.run_id && node.run_id === here ? "branch here" : "branch"} data-kind={node.kind}>
      <div class="branch-head">
        <span class="branch-kind">{node.kind}</span>
        {node.run_id && node.run_id !== here ? <a href={places.run(node.run_id)} class="branch-name">{node.name}</a> : <span class="branch-name">{node.name}</span>}
      </div>
      <div class="branch-gauges">
        {shown.map((gauge) => (
          <div class="branch-gauge" key={gauge.kind}>
            <span class="muted">{gaugeName(gauge.kind)}</span>
            <GaugeBar gauge={gauge} />
            <span class="num">{amount(gauge, gauge.used)}{gauge.reserved > 0 && <span class="reserved-text"> + {amount(gauge, gauge.reserved)}</span>}{gauge.limit !== null && <span class="muted"> / {amount(gauge, gauge.limit)}</span>}</span>
          </div>
        ))}
        {!shown.length && <span class="muted small">nothing used</span>}
      </div>
      {node.children.length > 0 && depth < 12 && (
        <ul>
          {node.children.slice(0, MOST_CHILDREN).map((child) => <Branch key={child.run_id ?? child.name} node={child} here={here} depth={depth + 1} />)}
          {node.children.length > MOST_CHILDREN && <li class="muted small">and {node.children.length - MOST_CHILDREN} more</li>}
        </ul>
      )}
    </li>
  );
}
