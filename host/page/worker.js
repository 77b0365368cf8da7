// Boots Pyodide and pagelm in a module worker and serves the calls of the page (service.py, rpc.js).
//   parameters of the worker's URL, all optional and relative to this file:
//     pyodide   folder with pyodide.mjs and its files                 ../pyodide/
//     wheel     the pagelm wheel; without it, wheel.json names it     ../wheel.json
//     micropip  wheels of micropip and packaging, comma-separated: install pagelm with micropip
//   page -> worker  {id, method, args}
//   worker -> page  {id, ok} | {id, error: {type, message}} | {id, event: {kind, …}}
//                   and while booting {event: {kind: "boot", phase, ms}}, then {event: {kind: "ready", …}}
//                   or {event: {kind: "failed", error}}
const params = new URL(import.meta.url).searchParams;
const here = (path) => new URL(path, import.meta.url).href;

// No package of the Pyodide distribution is used: this spares fetching its list of them (119 kB).
const NO_PACKAGES = {
  info: { abi_version: "2026_0", arch: "wasm32", platform: "emscripten_5_0_3", python: "3.14.2" },
  packages: {},
};

const waiting = []; // calls that came while booting
let service = null;
let failed = null;

// Typed arrays are moved, not copied: they are made for this message and nobody else has them.
function post(message) {
  const body = message.event ?? message.ok;
  const arrays = [body, ...(typeof body === "object" ? Object.values(body ?? {}) : [])].filter(ArrayBuffer.isView);
  self.postMessage(message, [...new Set(arrays.map((a) => a.buffer))]);
}

self.onmessage = ({ data: { id, method, args } }) => {
  if (failed) post({ id, error: failed });
  else if (service) service.call(id, method, args);
  else waiting.push({ data: { id, method, args } });
};

async function phase(name, phases, work) {
  const start = performance.now();
  const value = await work();
  phases[name] = performance.now() - start;
  post({ event: { kind: "boot", phase: name, ms: phases[name] } });
  return value;
}

async function get(url) {
  const response = await fetch(url).catch((error) => {
    throw new Error(`${url}: ${error.message}`);
  });
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  return response;
}

async function install(py) {
  let wheel = params.get("wheel");
  if (!wheel) wheel = here(`../wheel/${(await (await get(here("../wheel.json"))).json()).wheel}`);
  wheel = here(wheel);
  const micropip = params.get("micropip");
  if (!micropip) {
    const extractDir = py.runPython("import sysconfig; sysconfig.get_path('purelib')");
    py.unpackArchive(await (await get(wheel)).arrayBuffer(), "wheel", { extractDir });
    return;
  }
  const wheels = micropip.split(",").map(here);
  await py.loadPackage(wheels); // does not throw when one is missing; the import does
  await py.pyimport("micropip").install(wheel);
}

try {
  const phases = {};
  const pyodide = here(params.get("pyodide") ?? "../pyodide/");
  const py = await phase("pyodide", phases, async () => {
    const { loadPyodide, version } = await import(new URL("pyodide.mjs", pyodide).href);
    const lock = version.startsWith("314.") ? { lockFileContents: NO_PACKAGES } : {};
    return await loadPyodide({ indexURL: pyodide, convertNullToNone: true, ...lock });
  });
  globalThis.pyodide = py; // for people at the console, and for tests
  await phase("wheel", phases, () => install(py));
  const started = await phase("import", phases, () => py.pyimport("pagelm.host.page.service").Service(post));
  post({ event: { kind: "ready", version: started.version, phases } });
  service = started;
  waiting.splice(0).forEach((message) => self.onmessage(message));
} catch (error) {
  failed = { type: error.type ?? error.name, message: error.message };
  post({ event: { kind: "failed", error: failed } });
  waiting.splice(0).forEach((message) => self.onmessage(message));
}
