// llama.cpp's probabilities for given ids, through node-llama-cpp. Argument: {package, n_ctx}. Every line on stdin is
// {model, ids, gen}, answered with one line: {version, release, rows, generated}. `rows` has the
// probabilities (float32, softmax of all logits, by id) after each of `ids` and of `gen` greedy tokens,
// `generated` those tokens. An error is one line too: {error}.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const { package: folder, n_ctx } = JSON.parse(process.argv[2]);

const { getLlama, LlamaLogLevel } = await import(pathToFileURL(`${folder}/dist/index.js`));
let log = [];
const llama = await getLlama({
  gpu: false,
  build: "never",
  skipDownload: true,
  progressLogs: false,
  maxThreads: 1,
  logLevel: LlamaLogLevel.info,
  logger: (level, text) => log.push(text), // the only place that says why a model cannot be loaded
});
const version = JSON.parse(readFileSync(`${folder}/package.json`)).version;
const all = { generateNext: { probabilities: true, options: { temperature: 0 } } };

async function answer({ model: modelPath, ids, gen }) {
  log = [];
  const model = await llama.loadModel({ modelPath, gpuLayers: 0 });
  const context = await model.createContext({
    contextSize: n_ctx,
    batchSize: n_ctx,
    threads: 1,
    flashAttention: false, // it rounds to half floats
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
    ignoreMemorySafetyChecks: true,
  });
  const sequence = context.getSequence();
  const evaluate = async (tokens) =>
    (await sequence.controlledEvaluate(tokens.map((token) => [token, all]))).map((item) => {
      const row = [];
      for (const [token, probability] of item.next.probabilities) row[token] = probability;
      return row;
    });
  const rows = await evaluate(ids);
  const generated = [];
  while (generated.length < gen) {
    const last = rows.at(-1);
    const next = last.indexOf(Math.max(...last));
    generated.push(next);
    rows.push(...(await evaluate([next])));
  }
  await context.dispose();
  await model.dispose();
  return { version, release: llama.llamaCppRelease?.release ?? "", rows, generated };
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    say(await answer(JSON.parse(line)));
  } catch (error) {
    say({ error: `${error?.message ?? error}\n${log.join("")}` });
  }
}
process.exit(0);
