// The JavaScript half of device/browser.py: one object per GPU device. It keeps what must happen without
// crossing between Python and JavaScript: replaying a recording, read-back, error scopes, uploads.
// Evaluated once by browser.py; the value of this file is the function `open`.
(() => {
  "use strict";

  const RING = 4; // read-back slots; the engine keeps at most three reads pending
  const WORDS = 5; // per step: pipeline, bind group, workgroups in x, y, z
  const STEP = 2 << 20; // bytes of an upload that are read and written at a time; a multiple of 4
  const STEPS = 3; // of them that the GPU may not have taken over yet
  const LIMITS = [
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
    "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupsPerDimension",
  ];
  // Asked for where the adapter has them; nothing needs them by default.
  const FEATURES = ["subgroups", "timestamp-query", "shader-f16"];
  const BUFFER_TYPES = { read: "read-only-storage", read_write: "storage", uniform: "uniform" };

  // Python chooses the exception class by `name`. Never reject with anything but an Error: an `await` in
  // Pyodide on another value hangs for ever.
  function failure(message, name = "DeviceError") {
    const error = new Error(message);
    error.name = name;
    return error;
  }

  const oneLine = (text) => text.trim().replace(/\s*\n\s*/g, " "); // Chromium writes its reasoning on many lines

  class Device {
    constructor(adapter, device) {
      this.info = adapter.info ?? {};
      this.device = device;
      this.limits = device.limits;
      this.runtime = navigator.userAgent;
      this.subgroups = device.features.has("subgroups");
      this.subgroupSize = adapter.info?.subgroupMaxSize ?? 0;
      this.timestamps = device.features.has("timestamp-query");
      this.shaderF16 = device.features.has("shader-f16");
      this.queue = device.queue;
      this.lost = ""; // why the device is gone; everything but this flag may look fine after a loss
      this.fault = null; // first error that no caller has been told of yet
      this.checks = new Set(); // error scopes not yet answered
      this.taking = []; // promises of the steps of uploads that the GPU has yet to take over, oldest first
      this.closed = false;
      this.gone = device.lost.then((info) => {
        const why = info.message || info.reason;
        this.lost = this.closed
          ? "the device was closed"
          : `the GPU device was lost (${why}): load the model again; if that fails, restart the browser`;
      });
      device.addEventListener("uncapturederror", (event) => this.note(event.error, "the GPU"));
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      this.ring = Array.from({ length: RING }, () => ({
        buffer: device.createBuffer({ size: 4, usage, label: "read-back" }),
        busy: false,
      }));
    }

    // ---- errors ----

    alive() {
      if (this.lost) throw failure(this.lost);
      if (this.fault) {
        const fault = this.fault;
        this.fault = null;
        throw fault;
      }
    }

    note(error, what) {
      const memory = error instanceof GPUOutOfMemoryError;
      const why = memory ? "the GPU has no memory left" : oneLine(error.message);
      this.fault ??= failure(`${what}: ${why}`, memory ? "LimitError" : "DeviceError");
    }

    // Run `make` inside error scopes without waiting for them; `settle` and `alive` report what they catch.
    scoped(what, make) {
      const { device } = this;
      device.pushErrorScope("validation");
      device.pushErrorScope("out-of-memory");
      try {
        return make();
      } finally {
        for (let i = 0; i < 2; i++) {
          const check = device.popErrorScope().then(
            (error) => error && this.note(error, what),
            () => {}, // popping fails only on a lost device, which has its own flag
          );
          this.checks.add(check);
          check.then(() => this.checks.delete(check));
        }
      }
    }

    async settle() {
      await Promise.all(this.checks);
      this.alive();
    }

    // A promise's failure on a lost device is told as the loss, which may arrive a little later.
    async explain(error, what) {
      await Promise.race([this.gone, new Promise((resolve) => setTimeout(resolve, 200))]);
      return failure(this.lost || `${what}: ${error.message}`);
    }

    // ---- objects, made while loading ----

    buffer(size, label, uniform) {
      this.alive();
      const { STORAGE, COPY_SRC, COPY_DST, UNIFORM } = GPUBufferUsage;
      const usage = STORAGE | COPY_SRC | COPY_DST | (uniform ? UNIFORM : 0);
      return this.scoped(`buffer ${label} of ${size} bytes`, () => this.device.createBuffer({ size, usage, label }));
    }

    free(buffers) {
      if (!buffers.length) return;
      for (const buffer of buffers) buffer.destroy();
      this.queue.submit([]); // memory is given back by the next submit, not by destroy()
    }

    write(buffer, offset, bytes) {
      this.alive();
      this.queue.writeBuffer(buffer, offset, bytes);
    }

    // -> {pipeline, layout, messages: [[type, line, column, text], …], error}; pipeline is null on an error.
    async pipeline(label, code, accesses, constants) {
      this.alive();
      const { device } = this;
      const entries = accesses.map((access, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: BUFFER_TYPES[access] },
      }));
      // Scopes are a stack shared by every caller of this device: nothing may be awaited between push and pop.
      device.pushErrorScope("validation");
      let scope, module, layout, pipelineLayout;
      try {
        module = device.createShaderModule({ label, code });
        layout = device.createBindGroupLayout({ label, entries });
        pipelineLayout = device.createPipelineLayout({ label, bindGroupLayouts: [layout] });
      } finally {
        scope = device.popErrorScope();
      }
      const compiling = device
        .createComputePipelineAsync({ label, layout: pipelineLayout, compute: { module, entryPoint: "main", constants } })
        .then((pipeline) => ({ pipeline, error: "" }), (error) => ({ pipeline: null, error: oneLine(error.message) }));
      try {
        const { messages } = await module.getCompilationInfo();
        const invalid = await scope;
        let { pipeline, error } = await compiling;
        this.alive();
        if (invalid) [pipeline, error] = [null, oneLine(invalid.message)];
        const lines = messages.map((m) => [m.type, m.lineNum, m.linePos, m.message]);
        return { pipeline, layout, messages: lines, error };
      } catch (error) {
        throw await this.explain(error, label);
      }
    }

    bind(label, layout, buffers) {
      this.alive();
      const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
      return this.scoped(`bind group of ${label}`, () => this.device.createBindGroup({ label, layout, entries }));
    }

    record(words, pipelines, binds) {
      return { words, pipelines, binds, steps: words.length / WORDS, tried: false };
    }

    // ---- the token loop: creates nothing but the command buffer ----

    // Replay; with `source`, give a promise of the u32 at byte `offset` of it after this work.
    submit(recording, source, offset) {
      this.alive();
      let slot = null;
      if (source) {
        slot = this.ring.find((s) => !s.busy);
        if (!slot) throw failure(`more than ${RING} reads are pending`);
      }
      if (recording.tried) {
        this.encode(recording, source, offset, slot);
      } else {
        // What is wrong with a recording is wrong the first time: later submits need no error scope.
        recording.tried = true;
        this.scoped("a recording", () => this.encode(recording, source, offset, slot));
      }
      if (!slot) return;
      const value = this.value(slot);
      value.catch(() => {}); // a caller that stops early drops the promise
      return value;
    }

    encode(recording, source, offset, slot) {
      const encoder = this.device.createCommandEncoder();
      this.encodePass(encoder.beginComputePass(), recording, 0, recording.steps);
      if (slot) encoder.copyBufferToBuffer(source, offset, slot.buffer, 0, 4);
      this.queue.submit([encoder.finish()]);
    }

    encodePass(pass, { words, pipelines, binds }, first, end) {
      let current = -1;
      for (let i = first * WORDS; i < end * WORDS; i += WORDS) {
        if (words[i] !== current) pass.setPipeline(pipelines[(current = words[i])]);
        pass.setBindGroup(0, binds[words[i + 1]]);
        pass.dispatchWorkgroups(words[i + 2], words[i + 3], words[i + 4]);
      }
      pass.end();
    }

    async value(slot) {
      slot.busy = true;
      try {
        await slot.buffer.mapAsync(GPUMapMode.READ); // in the task of the submit: one hop less until it is here
      } catch (error) {
        throw await this.explain(error, "reading a value back");
      }
      const value = new Uint32Array(slot.buffer.getMappedRange())[0];
      slot.buffer.unmap();
      slot.busy = false;
      if (this.checks.size) await this.settle();
      else this.alive();
      return value;
    }

    // ---- the GPU's own clock, for measuring ----

    // Replay in one submit, in one pass or one a step; a promise of the bytes of u64 nanoseconds, two a pass.
    timed(recording, whole) {
      this.alive();
      const { device } = this;
      const count = 2 * (whole ? 1 : recording.steps);
      const { MAP_READ, COPY_SRC, COPY_DST, QUERY_RESOLVE } = GPUBufferUsage;
      const [staging, resolved, querySet] = this.scoped("a timed recording", () => {
        const querySet = device.createQuerySet({ type: "timestamp", count });
        const resolved = device.createBuffer({ size: 8 * count, usage: QUERY_RESOLVE | COPY_SRC, label: "times" });
        const staging = device.createBuffer({ size: 8 * count, usage: COPY_DST | MAP_READ, label: "times" });
        const encoder = device.createCommandEncoder();
        const size = whole ? recording.steps : 1; // steps of a pass
        for (let i = 0; i < count; i += 2) {
          const timestampWrites = { querySet, beginningOfPassWriteIndex: i, endOfPassWriteIndex: i + 1 };
          this.encodePass(encoder.beginComputePass({ timestampWrites }), recording, (i / 2) * size, (i / 2 + 1) * size);
        }
        encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
        encoder.copyBufferToBuffer(resolved, 0, staging, 0, 8 * count);
        this.queue.submit([encoder.finish()]);
        return [staging, resolved, querySet];
      });
      const times = this.mapped(staging).finally(() => [staging, resolved, querySet].forEach((made) => made.destroy()));
      times.catch(() => {}); // a caller that stops early drops the promise
      return times;
    }

    // ---- bulk transfers ----

    async read(source, offset, size) {
      await this.settle();
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      const staging = this.scoped(`read of ${size} bytes`, () => {
        const staging = this.device.createBuffer({ size, usage, label: "read" });
        const encoder = this.device.createCommandEncoder();
        encoder.copyBufferToBuffer(source, offset, staging, 0, size);
        this.queue.submit([encoder.finish()]);
        return staging;
      });
      try {
        return await this.mapped(staging);
      } finally {
        staging.destroy();
      }
    }

    // A copy of all bytes of a buffer, once the work that fills it is done.
    async mapped(staging) {
      await staging.mapAsync(GPUMapMode.READ).catch(async (error) => {
        await Promise.all(this.checks);
        this.alive();
        throw await this.explain(error, "reading back");
      });
      await this.settle();
      return new Uint8Array(staging.getMappedRange().slice(0));
    }

    async idle() {
      try {
        await Promise.race([this.queue.onSubmittedWorkDone(), this.gone]);
      } catch (error) {
        throw await this.explain(error, "waiting for the GPU");
      }
      await this.settle();
    }

    // Read one chunk through `reader` (streams.js) and spread it: `numbers` holds, per buffer, its byte
    // offset, the position in the file and the length of one piece. In steps, the next ones read while the GPU
    // takes over those before, of this chunk or of the one before it: where a chunk ends, nobody waits.
    async upload(reader, at, size, buffers, numbers) {
      await this.settle();
      for (let from = at, to; from < at + size; from = to) {
        to = this.stepEnd(from, at + size, numbers);
        const bytes = await reader.chunk(from, to - from);
        while (this.taking.length >= STEPS) await this.taking.shift();
        this.spread(bytes, from, buffers, numbers);
        this.queue.submit([]);
        const taken = this.queue.onSubmittedWorkDone().catch(() => {}); // `idle` tells what is wrong
        this.taking.push(Promise.race([taken, this.gone]));
      }
    }

    // A step may end inside a piece, but only where the rest starts at a multiple of 4 in its buffer.
    stepEnd(from, end, numbers) {
      let to = Math.min(from + STEP, end);
      for (let i = 0; i < numbers.length; i += 3) {
        const into = to - numbers[i + 1];
        if (into > 0 && into < numbers[i + 2]) to -= into % 4;
      }
      return to;
    }

    // Write what `bytes`, which is at position `at` of the file, holds of each piece.
    spread(bytes, at, buffers, numbers) {
      this.alive();
      buffers.forEach((buffer, i) => {
        const [offset, start, size] = numbers.slice(3 * i, 3 * i + 3);
        const from = Math.max(start, at);
        const n = Math.min(start + size, at + bytes.byteLength) - from;
        if (n <= 0) return;
        const whole = n - (n % 4);
        if (whole) this.queue.writeBuffer(buffer, offset + from - start, bytes, from - at, whole);
        if (whole < n) {
          const tail = new Uint8Array(4);
          tail.set(bytes.subarray(from - at + whole, from - at + n));
          this.queue.writeBuffer(buffer, offset + from - start + whole, tail);
        }
      });
    }

    // Without a submit the staging memory of writeBuffer piles up in the GPU process, however long one waits.
    async drain() {
      this.queue.submit([]);
      await this.idle();
    }

    close() {
      this.closed = true;
      this.lost ||= "the device was closed";
      this.device.destroy();
    }
  }

  return async function open() {
    const gpu = globalThis.navigator?.gpu;
    if (!gpu) {
      throw failure(
        globalThis.isSecureContext === false
          ? "WebGPU is only there on https:// pages and on localhost; this page is neither"
          : "this browser has no WebGPU (navigator.gpu is missing): use a current Chrome, Edge, Safari or Firefox",
      );
    }
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) {
      throw failure(
        "the browser offers no WebGPU adapter: update the GPU driver, turn hardware acceleration on, or start " +
          "Chromium with --enable-unsafe-webgpu (and --use-webgpu-adapter=swiftshader where there is no GPU); " +
          "after a crash of the GPU process restart the browser",
      );
    }
    // Without requiredLimits a device has WebGPU's defaults, whatever the adapter could do.
    const requiredLimits = {};
    for (const name of LIMITS) if (adapter.limits[name] !== undefined) requiredLimits[name] = adapter.limits[name];
    const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
    try {
      return new Device(adapter, await adapter.requestDevice({ label: "pagelm", requiredLimits, requiredFeatures }));
    } catch (error) {
      throw failure(`the WebGPU adapter gave no device: ${error.message}`);
    }
  };
})();
