// Calls into the worker: what page.js and the drivers in tests use. See worker.js for the messages.
//   const rpc = new Rpc();                       boots the worker
//   await rpc.ready;                             {version, phases}; rejects when it cannot start
//   const call = rpc.call("generate", {prompt}, (event) => …);
//   rpc.cancel(call.id); await call;             an error has the name of pagelm's class
export class Rpc {
  #pending = new Map(); // id -> {resolve, reject, onEvent}
  #count = 0;
  #worker;

  constructor(url = new URL("worker.js", import.meta.url), onBoot = () => {}) {
    this.ready = new Promise((resolve, reject) => {
      this.#worker = new Worker(url, { type: "module" });
      this.#worker.onerror = (event) => {
        const error = named("Error", event.message || "the worker could not be started");
        reject(error);
        this.#fail(error);
      };
      this.#worker.onmessage = ({ data }) => {
        if (data.id !== undefined) return this.#answer(data);
        if (data.event.kind === "ready") resolve(data.event);
        else if (data.event.kind === "failed") reject(named(data.event.error.type, data.event.error.message));
        else onBoot(data.event);
      };
    });
    this.ready.catch(() => {}); // whoever awaits it is told; nobody has to
  }

  call(method, args = {}, onEvent = () => {}) {
    const id = ++this.#count;
    const promise = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject, onEvent }));
    promise.id = id;
    this.#worker.postMessage({ id, method, args });
    return promise;
  }

  // Ask a running call to stop at the next chunk or submit. Resolves to whether it was running.
  cancel(id) {
    return this.call("cancel", { id });
  }

  // End the worker at once; pending calls are rejected.
  terminate() {
    this.#worker.terminate();
    this.#fail(named("Cancelled", "the worker was ended"));
  }

  #answer({ id, ok, error, event }) {
    const call = this.#pending.get(id);
    if (!call) return;
    if (event) return call.onEvent(event);
    this.#pending.delete(id);
    if (error) call.reject(Object.assign(named(error.type, error.message), { traceback: error.traceback }));
    else call.resolve(ok);
  }

  #fail(error) {
    for (const call of this.#pending.values()) call.reject(error);
    this.#pending.clear();
  }
}

function named(name, message) {
  return Object.assign(new Error(message), { name });
}
