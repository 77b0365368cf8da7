// llama.cpp through node-llama-cpp, for llama_cpp.py. One argument: {package, model, gpu, threads, n_ctx, ids}.
// Says {ready: …} when the model is loaded; then every line on stdin, a number of tokens, is one generation and
// is answered with one line. An error is one line too, and the end.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

const { package: folder, model: modelPath, gpu, threads, n_ctx, ids } = JSON.parse(process.argv[2]);

async function load() {
  const { getLlama, LlamaLogLevel } = await import(pathToFileURL(`${folder}/dist/index.js`));
  const log = []; // what llama.cpp says while loading: the only place that tells where the layers are
  const llama = await getLlama({
    gpu: gpu || false,
    build: "never",
    skipDownload: true,
    progressLogs: false,
    maxThreads: threads,
    logLevel: LlamaLogLevel.info,
    logger: (level, text) => log.push(text),
  });
  const model = await llama.loadModel({ modelPath, gpuLayers: gpu ? "max" : 0 });
  const context = await model.createContext({
    contextSize: n_ctx,
    batchSize: 512,
    threads,
    ignoreMemorySafetyChecks: true,
  });
  const ready = {
    version: JSON.parse(readFileSync(`${folder}/package.json`)).version,
    release: llama.llamaCppRelease?.release ?? "",
    threads: context.currentThreads,
    devices: gpu ? await llama.getGpuDeviceNames() : [],
    log: log.join("\n"),
  };
  return { sequence: context.getSequence(), ready };
}

// Greedy, past end tokens; seconds until the first token and until the last.
async function generate(sequence, gen) {
  await sequence.clearHistory();
  const began = performance.now();
  let first;
  let count = 0;
  for await (const token of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
    first ??= performance.now();
    if (++count === gen) break;
  }
  const ended = performance.now();
  return { first_s: (first - began) / 1000, total_s: (ended - began) / 1000, gen: count };
}

try {
  const { sequence, ready } = await load();
  say({ ready });
  for await (const line of createInterface({ input: process.stdin })) say(await generate(sequence, Number(line)));
  process.exit(0); // whoever asked is gone
} catch (error) {
  say({ error: String(error?.message ?? error) });
  process.exit(1);
}
