// A tool-using agent of the Vercel AI SDK: node use_vercel_ai.mjs chat|responses|anthropic|compatible TASK.
// With AS_SHIPPED it stops after 20 steps, as the SDK's own agent does.
// AI_SDK_HOME is the folder whose node_modules has the packages.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const find = createRequire(`${process.env.AI_SDK_HOME}/package.json`);
const load = (name) => import(pathToFileURL(find.resolve(name)).href);
const { generateText, tool } = await load("ai");
const { z } = await load("zod");
const [dialect, task] = process.argv.slice(2);

async function makeModel() {
  if (dialect === "anthropic") {
    const { createAnthropic } = await load("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` })("claude-sonnet-4-5");
  }
  if (dialect === "compatible") {
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey } = process.env;
    return createOpenAICompatible({ name: "own", baseURL, apiKey })("gpt-4o-mini");
  }
  const { openai } = await load("@ai-sdk/openai");
  return dialect === "responses" ? openai.responses("gpt-4o-mini") : openai.chat("gpt-4o-mini");
}

const look = tool({
  description: "Look at a place and report what is there.",
  inputSchema: z.object({ place: z.string() }),
  execute: async ({ place }) => `nothing at ${place}`,
});
const stopWhen = ({ steps }) => "AS_SHIPPED" in process.env && steps.length >= 20;
const result = await generateText({ model: await makeModel(), tools: { look }, prompt: task, stopWhen });
console.log(result.text);
