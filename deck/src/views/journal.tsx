// The journal, record by record: what a resumed run is made from.

import { useEffect, useMemo } from "preact/hooks";
import type { VNode } from "preact";
import { api } from "../api";
import { Empty, Failed, Loading } from "../components/bits";
import { Virtual } from "../components/virtual";
import { line } from "../format";
import { Paged } from "../store/paged";
import type { JsonObject } from "../types";

export function JournalTab({ id, sequence }: { id: string; sequence: number }): VNode {
  const records = useMemo(() => new Paged<JsonObject>(async (start, limit) => {
    const page = await api.journal(id, start, limit);
    return { items: page.records, total: page.total };
  }), [id]);
  useEffect(() => {
    const timer = window.setTimeout(() => void records.grow(), records.total.peek() ? 1000 : 0);
    return () => clearTimeout(timer);
  }, [records, sequence]);
  const version = records.version.value;
  if (records.failed.value) return <Failed message="The journal cannot be read." retry={() => void records.grow()} />;
  if (!version) return <Loading what="the journal" />;
  if (!records.total.value) return <Empty title="This run keeps no journal"><p>Start the server with <code>--store</code> to keep one.</p></Empty>;
  return (
    <div class="scroll journal">
      <Virtual count={records.total.value} estimate={40} label="Journal" row={(index) => <Entry record={records.get(index)} index={index} />} />
    </div>
  );
}

function Entry({ record, index }: { record: JsonObject | undefined; index: number }): VNode {
  if (!record) return <div class="record skeleton"><span /></div>;
  const kind = String(record["kind"] ?? record["record"] ?? record["type"] ?? "record");
  return (
    <details class="record">
      <summary><span class="num muted record-seq">{String(record["sequence"] ?? index + 1)}</span><strong>{kind}</strong><span class="muted record-line">{line(JSON.stringify(record["payload"] ?? record), 160)}</span></summary>
      <pre class="code wrap" tabIndex={0}>{JSON.stringify(record, null, 2).slice(0, 20_000)}</pre>
    </details>
  );
}
