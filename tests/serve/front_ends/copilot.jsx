import React from 'react';
import { createRoot } from 'react-dom/client';
import { CopilotKitProvider, useAgent, useCopilotKit, useFrontendTool } from '@copilotkit/react-core/v2';
import { HttpAgent } from '@ag-ui/client';
import { z } from 'zod';

const query = new URLSearchParams(location.search);
const agent = new HttpAgent({ url: `${query.get('server')}/agui/mapper`, headers: { Authorization: `Bearer ${query.get('key')}` } });

function Page() {
  const [city, setCity] = React.useState('');
  const { agent } = useAgent();
  const { copilotkit } = useCopilotKit();
  useFrontendTool({ name: 'show_map', description: 'Show a map.', parameters: z.object({ city: z.string() }),
    handler: async ({ city }) => { setCity(city); return `a map of ${city}`; } });
  const ask = (content) => { agent.addMessage({ id: crypto.randomUUID(), role: 'user', content }); copilotkit.runAgent({ agent }).catch((error) => { window.failed = String(error); }); };
  const text = agent.messages.filter((one) => one.role === 'assistant').map((one) => one.content ?? '').join('|');
  return (<main>
    <button id="ask" onClick={() => ask('Where is Oslo?')}>Ask</button>
    <button id="long" onClick={() => ask('a long story')}>Long</button>
    <button id="stop" onClick={() => agent.abortRun()}>Stop</button>
    <p id="map">{city}</p><p id="status">{agent.isRunning ? 'streaming' : 'ready'}</p><p id="text">{text}</p>
  </main>);
}
createRoot(document.getElementById('root')).render(
  <CopilotKitProvider agents__unsafe_dev_only={{ default: agent }}><Page /></CopilotKitProvider>);
