// Calls of the Python in worker.js, as promises. Importing this file defines `window.pagelm`:
//   pagelm.start()                        boot the worker (the first call does it too)
//   pagelm.ready                          promise of {version, phases}; rejects when booting fails
//   pagelm.onboot = (event) => …          {kind: "boot", phase, ms} while booting
//   pagelm.call(method, args, onEvent)    promise of the answer, with `.cancel()`; see service.py
// Rejections are RemoteError: `name` is the Python class, `String(error)` the one-line text.

export class RemoteError extends Error {
  constructor({ type, message, traceback }) {
    super(message);
    this.name = type;
    this.traceback = traceback; // only of a bug: an error of the user's making needs none
  }
}

class Rpc {
  #worker = null;
  #calls = new Map(); // id -> {resolve, reject, onEvent}
  #nextId = 1;
  #dead = null;
  #settleReady;
  onboot = () => {};

  constructor() {
    this.ready = new Promise((resolve, reject) => (this.#settleReady = { resolve, reject }));
    this.ready.catch(() => {}); // whoever waits for it sees it; nobody need wait
  }

  // `params`: the worker's own, see worker.js. They come from scripts only, never from the page's address:
  // a link must not decide which wheel runs.
  start(params = {}) {
    if (this.#worker) return;
    const url = new URL("worker.js", import.meta.url);
    url.search = new URLSearchParams(params);
    this.#worker = new Worker(url, { type: "module", name: "pagelm" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onmessageerror = () => this.#die("a message from the worker could not be read");
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#die(event.message ? `the worker stopped: ${event.message}; reload the page` : "the worker's script did not load");
    };
  }

  call(method, args = {}, onEvent = () => {}) {
    this.start();
    const id = this.#nextId++;
    const promise = new Promise((resolve, reject) => {
      if (this.#dead) return reject(this.#dead);
      this.#calls.set(id, { resolve, reject, onEvent });
      this.#worker.postMessage({ id, method, args });
    });
    promise.cancel = () => (this.#calls.has(id) ? this.call("cancel", { id }) : Promise.resolve(false));
    return promise;
  }

  #receive({ id, event, error, ok }) {
    if (id === undefined) {
      if (event.kind === "ready") this.#settleReady.resolve(event);
      else if (event.kind === "failed") this.#die(event.error.message, event.error.type);
      else this.onboot(event);
      return;
    }
    const call = this.#calls.get(id);
    if (!call) return;
    if (event) return call.onEvent(event);
    this.#calls.delete(id);
    if (error) call.reject(new RemoteError(error));
    else call.resolve(ok);
  }

  #die(message, type = "DeviceError") {
    this.#dead = new RemoteError({ type, message });
    this.#worker.terminate();
    this.#settleReady.reject(this.#dead);
    this.#calls.forEach((call) => call.reject(this.#dead));
    this.#calls.clear();
  }
}

export const pagelm = new Rpc();
window.pagelm = pagelm;
