// one generateText with a client-side tool, and one that fails; AI SDK against /v1
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText, tool, stepCountIs, jsonSchema } from 'ai';
const [url, token] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: 'glidepath', baseURL: `${url}/v1`, apiKey: token });
const show = [];
const tools = { show_map: tool({ description: 'Show a map.', inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }), execute: async (given) => { show.push(given.city); return 'a map of ' + given.city; } }) };
const out = {};
const one = await generateText({ model: provider('mapper'), tools, stopWhen: stepCountIs(5), prompt: 'Where is Oslo?' });
out.text = one.text; out.steps = one.steps.length;
const two = streamText({ model: provider('mapper'), tools, stopWhen: stepCountIs(5), prompt: 'Where is Oslo?' });
let text = ''; for await (const part of two.textStream) text += part; out.streamed = text; out.shown = show;
try { await generateText({ model: provider('broken'), prompt: 'x' }); out.failed = 'no'; } catch (error) { out.failed = String(error.statusCode ?? error.name) + ' ' + String(error.message).slice(0, 80); }
console.log(JSON.stringify(out));
