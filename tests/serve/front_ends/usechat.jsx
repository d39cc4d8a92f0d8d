import React from 'react';
import { createRoot } from 'react-dom/client';
import { useChat } from '@ai-sdk/react';
import { convertToModelMessages, jsonSchema, lastAssistantMessageIsCompleteWithToolCalls, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const query = new URLSearchParams(location.search);
const provider = createOpenAICompatible({ name: 'glidepath', baseURL: `${query.get('server')}/v1`, apiKey: query.get('key'),
  transformRequestBody: (body) => ({ ...body, metadata: { glidepath: { on_disconnect: 'stop' } } }) });
const inputSchema = jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] });
const tools = { show_map: tool({ description: 'Show a map.', inputSchema }) };
const transport = {
  async sendMessages({ messages, abortSignal }) {
    const history = await convertToModelMessages(messages);
    return streamText({ model: provider('mapper'), messages: history, tools, abortSignal }).toUIMessageStream();
  },
  async reconnectToStream() { return null; },
};

function Page() {
  const [city, setCity] = React.useState('');
  const { messages, sendMessage, addToolOutput, status, stop, error } = useChat({
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall }) {
      setCity(toolCall.input.city);
      addToolOutput({ tool: 'show_map', toolCallId: toolCall.toolCallId, output: `a map of ${toolCall.input.city}` });
    },
  });
  const text = messages.flatMap((one) => one.parts).filter((part) => part.type === 'text').map((part) => part.text).join('|');
  return (<main>
    <button id="ask" onClick={() => sendMessage({ text: 'Where is Oslo?' })}>Ask</button>
    <button id="long" onClick={() => sendMessage({ text: 'a long story' })}>Long</button>
    <button id="stop" onClick={stop}>Stop</button>
    <p id="map">{city}</p><p id="status">{status}</p><p id="text">{text}</p><p id="error">{error ? String(error) : ''}</p>
  </main>);
}
createRoot(document.getElementById('root')).render(<Page />);
