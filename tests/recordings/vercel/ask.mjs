// A shop's assistant on Vercel's AI SDK, which retrieves by a tool.
//
//   node ask.mjs {generate|stream} < chunks.json
//
// It exports spans to OTLP_URL and prints the truth about what it did. Spans are made by `@ai-sdk/otel` where
// that is installed (AI SDK 6 and later), else by the SDK itself (up to 5).
import { readFileSync } from 'node:fs';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import * as ai from 'ai';
import { z } from 'zod';

const exporter = new OTLPTraceExporter({ url: `${process.env.OTLP_URL}/v1/traces` });
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'handbook' }),
  spanProcessors: [new SimpleSpanProcessor(exporter)],
});
provider.register();
const isModern = 'registerTelemetry' in ai;
if (isModern) {
  const { OpenTelemetry } = await import('@ai-sdk/otel');
  ai.registerTelemetry(new OpenTelemetry());
}

const chunks = Object.entries(JSON.parse(readFileSync(0, 'utf8'))).map(([id, text]) => ({ id, text }));
const models = createOpenAICompatible({
  name: 'local',
  baseURL: process.env.OPENAI_BASE_URL,
  includeUsage: true,
});
const embedder = models.textEmbeddingModel('text-embedding-3-small');
const { embeddings } = await ai.embedMany({
  model: embedder,
  values: chunks.map((chunk) => chunk.text),
  ...(isModern ? { telemetry: { isEnabled: false } } : {}),
});
let found = [];

const retrieve = ai.tool({
  description: 'Find passages of the handbook.',
  inputSchema: z.object({ query: z.string() }),
  execute: async ({ query }) => {
    const { embedding } = await ai.embed({ model: embedder, value: query, ...telemetry });
    const scored = chunks.map((chunk, index) => ({
      ...chunk,
      score: ai.cosineSimilarity(embedding, embeddings[index]),
    }));
    found = scored.sort((one, other) => other.score - one.score).slice(0, 3);
    return found;
  },
});

const question = 'What does the warranty cover?';
const metadata = { sessionId: 'session-7', userId: 'user-3' };
const telemetry = isModern
  ? { telemetry: { functionId: 'handbook' } }
  : { experimental_telemetry: { isEnabled: true, functionId: 'handbook', metadata } };
const call = {
  model: models('gpt-4.1-mini'),
  [isModern ? 'instructions' : 'system']: 'Look questions up with the tool, and answer from what it returns.',
  prompt: question,
  tools: { retrieve },
  stopWhen: ai.stepCountIs(4),
  ...telemetry,
};
const answer =
  process.argv[2] === 'stream' ? await ai.streamText(call).text : (await ai.generateText(call)).text;
await provider.shutdown();
console.log(
  JSON.stringify({
    question,
    chunks: found,
    answer,
    session_id: isModern ? null : metadata.sessionId,
    model: 'gpt-4.1-mini',
  }),
);
