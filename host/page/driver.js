// A page without a face, for programs: browser_lm.py and the tests talk to `window.pagelm`.
//   await pagelm.ready
//   await pagelm.drive(token, method, args)     -> {ok} or {error: {type, message}}
//   events go to window.pagelmEvent(token, event), where there is such a function
// Values cross as JSON; typed arrays both ways as {base64, type}.
import { Rpc } from "./rpc.js";

const TYPES = { Float32Array, Uint8Array, Uint32Array, Int32Array };
const rpc = new Rpc(new URL(`worker.js${location.search}`, import.meta.url));
const ids = new Map(); // token -> id of the running call

function encoded(value) {
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    let text = "";
    for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return { base64: btoa(text), type: value.constructor.name };
  }
  if (Array.isArray(value)) return value.map(encoded);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, encoded(v)]));
  }
  return value;
}

function decoded(value) {
  if (Array.isArray(value)) return value.map(decoded);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.base64 === "string" && value.type in TYPES) {
    return new TYPES[value.type](Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0)).buffer);
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, decoded(v)]));
}

window.pagelm = {
  ready: rpc.ready,
  call: (method, args, onEvent) => rpc.call(method, args, onEvent),
  async drive(token, method, args) {
    const call = rpc.call(method, decoded(args), (event) => window.pagelmEvent?.(token, encoded(event)));
    ids.set(token, call.id);
    try {
      return { ok: encoded((await call) ?? null) };
    } catch (error) {
      return { error: { type: error.name, message: error.message, traceback: error.traceback ?? null } };
    } finally {
      ids.delete(token);
    }
  },
  cancel: (token) => rpc.cancel(ids.get(token) ?? -1),
};
