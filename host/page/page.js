// The page that `pagelm serve` opens: load a model, write a beginning, watch it go on. All state is in
// `state`; `render` makes the page agree with it. The work is done by the worker (rpc.js).
import * as format from "./format.js";
import { pagelm } from "./rpc.js";

const $ = (id) => document.getElementById(id);
const state = {
  python: "starting", // "starting", "ready" or "failed"
  model: null, // the worker's answer to load
  job: null, // {kind: "load" | "generate", call, stopping} while the worker is at work
  choosing: false, // the form to choose another model is shown
};

const APPLE = /Mac|iPhone|iPad/.test(navigator.userAgent);
const SHORTCUTS = `${APPLE ? "⌘" : "Ctrl"}+Enter generates, Esc stops`;

function show(id, visible) {
  $(id).hidden = !visible;
}

function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

function fail(id, error) {
  say(id, error ? format.errorText(error) : "");
  show(id, Boolean(error));
}

function render() {
  const { job, model, python } = state;
  const loading = job?.kind === "load";
  const generating = job?.kind === "generate";
  show("load-form", !loading && (state.choosing || !model));
  show("loading", loading);
  show("loaded", !loading && model);
  $("load").disabled = $("choose").disabled = Boolean(job) || python === "failed";
  $("change").disabled = generating;
  $("change").ariaExpanded = String(state.choosing);
  $("generate").disabled = !model || Boolean(job);
  swap("generate", "stop", generating);
  say("prompt-hint", model || loading ? SHORTCUTS : "Load a model first");
  // Not `disabled`: that would take the keyboard's focus away.
  $("stop").ariaDisabled = $("stop-load").ariaDisabled = String(Boolean(job?.stopping));
  $("generated").ariaBusy = String(generating);
  show("caret", generating);
  show("details", model);
}

// Stop takes the place of Generate, and the keyboard's focus goes along.
function swap(idle, busy, isBusy) {
  const had = document.activeElement;
  show(idle, !isBusy);
  show(busy, isBusy);
  if (had === $(idle) && isBusy) $(busy).focus();
  if (had === $(busy) && !isBusy) $(idle).focus();
}

// One call at a time: the buttons that would start a second one are disabled while `state.job` is set.
async function run(kind, method, args, onEvent) {
  const call = pagelm.call(method, args, onEvent);
  state.job = { kind, call, stopping: false };
  render();
  try {
    return await call;
  } finally {
    state.job = null;
    render();
  }
}

function stop() {
  if (!state.job || state.job.stopping) return;
  state.job.stopping = true;
  state.job.call.cancel().catch(() => {}); // what goes wrong is told by the call itself
  say(state.job.kind === "load" ? "load-text" : "generate-status", "Stopping…");
  render();
}

// ---- the model ----

// Bytes and speed of the weights; the kernels compile at the same time and are shown when the bytes are in.
function progressTeller() {
  let began = null;
  let left = true;
  return ({ kind, phase, done, total }) => {
    if (kind !== "progress" || state.job?.stopping || (phase === "kernels" && left)) return;
    let text = "Reading the header…";
    if (phase === "weights") {
      began ??= performance.now();
      left = done < total;
      const passed = (performance.now() - began) / 1e3;
      text = `Loading: ${format.bytesOf(done, total)}`;
      if (done && passed > 0.1) text += ` · ${format.rate(done / 1e6 / passed)} MB/s`;
    }
    if (phase === "tuning") text = `Choosing kernels: ${done} of ${total}`;
    if (phase === "kernels") text = `Compiling kernels: ${done} of ${total}`;
    say("load-text", text);
    $("load-bar").max = total || 1;
    $("load-bar").value = done;
  };
}

async function load(args) {
  if (state.job) return;
  fail("load-error", null);
  fail("generate-error", null);
  $("load-bar").removeAttribute("value");
  say("load-text", state.python === "ready" ? "Opening…" : "Waiting for Python…");
  say("python-status", "");
  state.model = null; // the worker gives the old one's memory back first
  try {
    state.model = await run("load", "load", args, progressTeller());
    state.choosing = false;
    showModel(state.model);
    showFacts();
    render();
    $("text").focus();
  } catch (error) {
    say("python-status", error.name === "Cancelled" ? "Stopped" : "");
    if (error.name !== "Cancelled") fail("load-error", error);
    render();
  }
}

// One file, or all parts of a split model in any order.
function loadFiles(files) {
  if (files.length) load({ file: files.length > 1 ? files : files[0] });
}

function showModel(info) {
  const file = format.fileName(info.name);
  const { "general.name": name, "general.architecture": architecture } = info.metadata;
  const files = info.n_parts > 1 ? [`${info.n_parts} files`] : [];
  const facts = [architecture, ...files, format.bytes(info.size), `context ${format.tokens(info.n_ctx)}`];
  say("model-name", name || file);
  say("model-facts", [name ? file : null, ...facts].filter(Boolean).join(" · "));
  say("python-status", `Loaded in ${format.seconds(info.timing.load_s)}`);
}

// ---- text ----

async function generate() {
  if (state.job || !state.model || !$("generate-form").reportValidity()) return;
  fail("generate-error", null);
  const prompt = $("text").value;
  const text = document.createTextNode("");
  $("generated").replaceChildren(text);
  say("shown-prompt", prompt);
  say("generate-status", "Reading the prompt…");
  show("output", true);
  const began = performance.now();
  const clock = setInterval(() => {
    say("generate-clock", `${Math.round((performance.now() - began) / 1e3)} s`);
  }, 1000);
  const onEvent = (event) => {
    if (event.kind !== "piece") return;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
    text.appendData(event.text);
    if (!state.job?.stopping) say("generate-status", "Writing…");
    if (atEnd) scrollTo({ top: document.documentElement.scrollHeight });
  };
  try {
    const args = { prompt, max_tokens: $("max-tokens").valueAsNumber };
    const answer = await run("generate", "generate", args, onEvent);
    text.data = answer.text;
    const speed = answer.timing.decode_tok_s ? ` · ${format.rate(answer.timing.decode_tok_s)} tok/s` : "";
    const ending = format.stopReason(answer.stop_reason);
    say("generate-status", `${format.tokens(answer.ids.length)}${speed} · ${ending}`);
    showFacts(answer);
  } catch (error) {
    say("generate-status", error.name === "Cancelled" ? "Stopped before the first token." : "");
    if (error.name !== "Cancelled") fail("generate-error", error);
  } finally {
    clearInterval(clock);
    say("generate-clock", "");
  }
}

// ---- device, memory and speed ----

async function showFacts(answer) {
  const { adapter, plan, timing } = state.model;
  const facts = [
    ["Adapter", format.adapterName(adapter)],
    ["GPU memory", `${format.bytes(state.model.memory_used)}: weights ${format.bytes(plan.weights)}, ` +
      `cache ${format.bytes(plan.kv_cache)}, work ${format.bytes(plan.activations + plan.tables)}`],
    ["Python's memory", null],
    ["Loading", format.seconds(timing.load_s)],
  ];
  if (answer) {
    const { prefill_s, prefill_tok_s, decode_tok_s, host_ms_per_token } = answer.timing;
    const [read, written] = [answer.prompt_ids.length, answer.ids.length];
    facts.push(
      ["Reading", `${format.tokens(read)} in ${format.seconds(prefill_s)} (${format.rate(prefill_tok_s)} tok/s)`],
      ["Writing", `${format.tokens(written)} at ${format.rate(decode_tok_s)} tok/s`],
      ["Python's share", `${format.rate(host_ms_per_token)} ms per token`],
    );
  }
  facts[2][1] = await pagelm.call("memory").then(({ wasm_bytes }) => format.bytes(wasm_bytes), () => "unknown");
  $("facts").replaceChildren(
    ...facts.flatMap(([name, value]) => {
      const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
      [dt.textContent, dd.textContent] = [name, value];
      return [dt, dd];
    }),
  );
}

// ---- start ----

// Why this browser cannot do it, as [title, what to do], or null. The worker's own check is the one that
// counts; this one is here so that nobody loads a model first and is told then.
async function missingWebGpu() {
  if (!isSecureContext) {
    return ["WebGPU needs a secure address", "Open this page as https://… or on this machine as http://localhost."];
  }
  if (!navigator.gpu) {
    return [
      "This browser does not offer WebGPU",
      "Use a current Chrome, Edge, Firefox or Safari. On Linux, Chrome and Chromium may need the switch “Unsafe WebGPU Support” at chrome://flags.",
    ];
  }
  const late = new Promise((resolve) => setTimeout(resolve, 10_000, "late"));
  const adapter = await Promise.race([navigator.gpu.requestAdapter().catch(() => null), late]);
  if (adapter) return null;
  return [
    "No graphics device was found",
    "The browser offers WebGPU but gives no adapter. Turn on graphics acceleration in its settings, update the graphics driver, or see chrome://gpu for the reason.",
  ];
}

function listen() {
  $("load-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const address = $("url").value.trim();
    if (URL.canParse(address, document.baseURI)) load({ url: new URL(address, document.baseURI).href });
    else fail("load-error", { name: "SourceError", message: `${address} is not an address; give a URL, or choose a file` });
  });
  $("choose").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    const files = [...$("file").files];
    $("file").value = ""; // choosing the same file again is a change too
    loadFiles(files);
  });
  $("change").addEventListener("click", () => {
    state.choosing = !state.choosing;
    render();
    if (state.choosing) $("url").focus();
  });
  $("generate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    generate();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) generate();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  $("stop").addEventListener("click", stop);
  $("stop-load").addEventListener("click", stop);
  $("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText($("shown-prompt").textContent + $("generated").textContent);
    say("copy", "Copied");
    setTimeout(say, 1500, "copy", "Copy the text");
  });
  listenForFiles();
}

function listenForFiles() {
  const carriesFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = state.job ? "none" : "copy";
    show("drop", !state.job);
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) show("drop", false);
  });
  addEventListener("drop", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    show("drop", false);
    loadFiles([...event.dataTransfer.files]);
  });
}

async function offerServedModel() {
  const answer = await fetch(new URL("model.json", document.baseURI)).catch(() => null);
  const served = answer?.ok ? (await answer.json()).model : null;
  if (served && !$("url").value) $("url").value = served.url;
}

async function start() {
  show("no-script", false);
  const missing = await missingWebGpu();
  if (missing) {
    say("no-webgpu-title", missing[0]);
    say("no-webgpu-what", missing[1]);
    show("no-webgpu", true);
    return;
  }
  listen();
  show("model", true);
  show("prompt", true);
  say("python-status", "Starting Python…");
  render();
  await offerServedModel();
  pagelm.start();
  try {
    const { version } = await pagelm.ready;
    state.python = "ready";
    say("version", `pagelm ${version}`);
    if (!state.job) say("python-status", "Ready");
  } catch (error) {
    state.python = "failed";
    say("python-status", "Python did not start");
    fail("load-error", error);
  }
  render();
}

start();
