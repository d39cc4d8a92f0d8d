// Drives a server with the protocol's own client: a run that is interrupted, its resume, and a message in the thread.
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const [url, token] = process.argv.slice(2);
const kinds = [];
const agent = new HttpAgent({ url, threadId: "thread-1", headers: { Authorization: `Bearer ${token}` } });
agent.subscribe({ onEvent: ({ event }) => void kinds.push(event.type) });
const refused = new HttpAgent({ url, headers: { Authorization: "Bearer nobody" } });
refused.setMessages([{ id: "1", role: "user", content: "hi" }]);
const seen = {};

async function run(name, parameters = {}) {
  kinds.length = 0;
  const { result, outcome } = await agent.runAgent(parameters);
  const said = agent.messages.map(({ role, content }) => [role, content ?? ""]);
  seen[name] = { result, outcome, kinds: [...kinds], said, pending: agent.pendingInterrupts };
}

agent.addMessage({ id: "m1", role: "user", content: "pay them" });
await run("interrupted");
const answers = { [agent.pendingInterrupts[0].id]: { status: "resolved", payload: { approved: true, arguments: { amount: 3 } } } };
await run("resumed", { resume: buildResumeArray(agent.pendingInterrupts, answers) });
agent.addMessage({ id: "m2", role: "user", content: "again" });
await run("again");
seen.refused = await refused.runAgent().then(() => "taken", (error) => String(error.message));
console.log(JSON.stringify(seen));
