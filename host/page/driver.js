// Lets a program outside the browser make calls (browser_lm.py). Playwright carries JSON, so bytes and
// numbers in bulk travel as base64: {$array: "Float32Array", base64}.
import { pagelm } from "./rpc.js";

const ARRAYS = { Uint8Array, Int32Array, Uint32Array, Float32Array, Float64Array };
const running = new Map(); // number of the call, as the program counts -> promise with cancel()

function toBase64(array) {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  if (bytes.toBase64) return bytes.toBase64();
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

function pack(value) {
  if (ArrayBuffer.isView(value)) return { $array: value.constructor.name, base64: toBase64(value) };
  if (Array.isArray(value)) return value.map(pack);
  if (value === null || typeof value !== "object") return value ?? null;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, pack(item)]));
}

function unpack(value) {
  if (value === null || typeof value !== "object") return value ?? undefined;
  if (Array.isArray(value)) return value.map(unpack);
  if (value.$array) {
    const bytes = Uint8Array.from(atob(value.base64), (character) => character.charCodeAt(0));
    return new ARRAYS[value.$array](bytes.buffer);
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unpack(item)]));
}

const failure = (error) => ({ type: error.name, message: error.message, traceback: error.traceback ?? null });

window.driver = {
  // Events go out by the binding `driverEvent`; `events` says how many, because the answer may overtake them.
  async call(number, method, args) {
    let events = 0;
    const call = pagelm.call(method, unpack(args), (event) => {
      events += 1;
      window.driverEvent(number, pack(event));
    });
    running.set(number, call);
    try {
      return { ok: pack(await call), events };
    } catch (error) {
      return { error: failure(error), events };
    } finally {
      running.delete(number);
    }
  },

  cancel: (number) => running.get(number)?.cancel() ?? false,

  async boot(params) {
    pagelm.onboot = (event) => window.driverEvent(0, event);
    pagelm.start(params);
    return await pagelm.ready.then((ready) => ({ ok: ready }), (error) => ({ error: failure(error) }));
  },
};
