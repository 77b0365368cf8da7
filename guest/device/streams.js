// The JavaScript half of device/browser_sources.py: where the bytes of a model come from. A reader gives
//   size, name          of the file
//   read(at, n)         n bytes by a request of their own: for the header
//   chunk(at, n)        n bytes that stay valid until the next call: for the weights. Consecutive chunks are
//                       read from one open stream into one buffer that is used again and again.
//   rest()              give the stream and the buffer back for now
//   close()
// Evaluated once; the value of this file is {openUrl, openBlob, openHandle}.
(() => {
  "use strict";

  const BUFFER = 2 << 20; // bytes of the buffer that chunks are read into; replay.js asks for no more at once
  const TIMEOUT_MS = 30_000; // the longest silence of a server, as in sources.py: then it is given up
  const MIN_READ = 256 << 10; // bytes that a read waits for, within that time: few reads on a fast connection
  const MAX_SKIP = 1 << 20; // a gap between chunks that is read over rather than asked around; at most BUFFER
  const RETRY_MS = [100, 500, 2000]; // waits before a cut connection is opened again …
  const MIN_PROGRESS = 1 << 20; // … counted anew after this many bytes

  function failure(message, retry = false) {
    const error = new Error(message);
    error.name = "SourceError"; // becomes pagelm.errors.SourceError
    error.retry = retry;
    return error;
  }

  async function inTime(promise) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(failure(`no answer within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // `fetch`, given up when no answer begins in time. The HTTP cache is not to keep a model a second time.
  async function ask(url, options) {
    const request = new AbortController();
    try {
      return await inTime(fetch(url, { ...options, cache: "no-store", signal: request.signal }));
    } catch (error) {
      request.abort();
      throw error;
    }
  }

  // Fills byte ranges one after the other from a ReadableStream that starts at file position `at`.
  class Stream {
    constructor(body, at, byob) {
      this.at = at;
      this.rest = null; // bytes that came but were not asked for yet (without BYOB)
      this.byob = byob;
      try {
        this.reader = body.getReader(byob ? { mode: "byob" } : undefined);
      } catch {
        this.reader = body.getReader(); // this browser's response bodies are no byte streams: one more copy
        this.byob = false;
      }
    }

    // Does a stream that is here continue at file position `at`, perhaps after some bytes nobody wants?
    near(at) {
      return this.at <= at && at - this.at <= MAX_SKIP;
    }

    // Put up to n bytes into `buffer` from `start` on. Gives [buffer, bytes put]; 0 bytes at the stream's end.
    // A BYOB read detaches the buffer it is given, hence the new one in the answer.
    async fill(buffer, start, n) {
      if (this.byob) {
        const view = new Uint8Array(buffer, start, n);
        const { value } = await inTime(this.reader.read(view, { min: Math.min(n, MIN_READ) }));
        if (!value) throw failure("the stream was cancelled");
        this.at += value.byteLength;
        return [value.buffer, value.byteLength];
      }
      while (!this.rest?.byteLength) {
        const { value, done } = await inTime(this.reader.read());
        if (done) return [buffer, 0];
        this.rest = value;
      }
      const part = this.rest.subarray(0, n);
      new Uint8Array(buffer, start, n).set(part);
      this.rest = this.rest.subarray(part.byteLength);
      this.at += part.byteLength;
      return [buffer, part.byteLength];
    }

    cancel() {
      this.reader.cancel().catch(() => {}); // also where it already failed
    }
  }

  class Reader {
    constructor(name, size) {
      this.name = name;
      this.size = size;
      this.stream = null;
      this.buffer = null;
      this.byob = true;
    }

    inside(at, n) {
      if (at < 0 || n < 0 || at + n > this.size) {
        throw failure(`${this.name}: bytes ${at} to ${at + n} were asked for; it has ${this.size}`);
      }
    }

    told(error, at, n, failures) {
      const what = error instanceof TypeError ? `the connection was cut (${error.message})` : error.message;
      const times = failures ? `, tried ${failures + 1} times` : "";
      return failure(`${this.name}: ${what} (reading ${n} bytes from ${at}${times})`);
    }

    async chunk(at, n) {
      this.inside(at, n);
      let have = 0;
      for (let failures = 0, since = 0; have < n; ) {
        try {
          const next = at + have;
          if (!this.stream?.near(next)) {
            this.stop();
            this.stream = new Stream(await this.open(next), next, this.byob);
          }
          if (!(this.buffer?.byteLength >= n)) this.buffer = new ArrayBuffer(Math.max(n, BUFFER));
          const gap = next - this.stream.at; // 0 once something of this chunk is here
          const [buffer, got] = await this.stream.fill(this.buffer, have, gap || n - have);
          this.buffer = buffer;
          if (!got) throw failure(`it ended after ${this.stream.at} of ${this.size} bytes`, true);
          if (!gap) have += got;
        } catch (error) {
          this.stop();
          if (have >= since + MIN_PROGRESS) failures = 0;
          if (!this.again(error) || failures >= RETRY_MS.length) {
            throw this.told(error, at, n, failures);
          }
          // A BYOB read that fails takes the buffer along with all that was in it. Where connections are
          // cut, the plain reader keeps what it has: with a cut every few MiB the other would never end.
          this.byob = false;
          if (this.buffer?.detached !== false) [this.buffer, have] = [null, 0];
          since = have;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS[failures++]));
        }
      }
      return new Uint8Array(this.buffer, 0, n);
    }

    stop() {
      this.stream?.cancel();
      this.stream = null;
    }

    rest() {
      this.stop();
      this.buffer = null;
    }

    close() {
      this.rest();
    }
  }

  class UrlReader extends Reader {
    constructor(url) {
      super(url, 0);
      this.tag = null;
    }

    // The response to a Range request, checked. `last` null: to the end of the file.
    async range(first, last) {
      const range = `bytes=${first}-${last ?? ""}`;
      let response;
      try {
        response = await ask(this.name, { headers: { Range: range } });
      } catch (error) {
        if (error.name === "SourceError") throw error;
        const other = new URL(this.name).origin !== globalThis.location?.origin;
        const why = other
          ? "the server cannot be reached, or it does not allow this page to read from it (CORS: " +
            "it must send Access-Control-Allow-Origin)"
          : "the server cannot be reached";
        throw failure(`${error.message}: ${why}`, true);
      }
      const drop = (message, retry = false) => {
        response.body?.cancel().catch(() => {});
        return failure(message, retry);
      };
      const { status, headers } = response;
      const type = headers.get("Content-Type") ?? "";
      if (status === 416 && !this.size) throw drop("it is empty");
      if (status >= 400) {
        throw drop(`the server answered ${status} ${response.statusText}`.trim(), status >= 500 || status === 429);
      }
      if (type.startsWith("text/html")) throw drop(`the server answered with a web page (${type}), not with a model`);
      if (status !== 206) {
        throw drop(
          `the server answered ${status} to a request for ${range}; it must answer 206, that is, support ` +
            "Range requests ('pagelm serve' does, 'python -m http.server' does not)",
        );
      }
      const found = headers.get("Content-Range"); // hidden from other origins unless the server exposes it
      const [, from, to, total] = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(found ?? "") ?? [];
      if (found !== null && total === undefined) throw drop(`the server's Content-Range is '${found}'`);
      const end = last ?? (this.size || Number(total)) - 1;
      if (found !== null && (Number(from) !== first || Number(to) !== end)) {
        throw drop(`the server answered a request for ${range} with Content-Range '${found}'`);
      }
      if (this.size && found !== null && Number(total) !== this.size) {
        throw drop(`it had ${this.size} bytes and has ${total} now: the file was changed`);
      }
      const length = headers.get("Content-Length");
      if (length !== null && Number.isFinite(end) && Number(length) !== end - first + 1) {
        throw drop(`the server answered a request for ${range} with ${length} bytes`);
      }
      const tag = headers.get("ETag");
      if (tag !== null && this.tag !== null && tag !== this.tag) throw drop("the file was changed while it was read");
      this.tag = tag;
      return { response, total: total === undefined ? null : Number(total) };
    }

    async start() {
      try {
        const { response, total } = await this.range(0, 0);
        await this.body(response, 1);
        this.size = total ?? (await this.length());
      } catch (error) {
        throw failure(`${this.name}: ${error.message}`);
      }
      return this;
    }

    // The size where another origin's server hides Content-Range: Content-Length is never hidden.
    async length() {
      const response = await ask(this.name, { method: "HEAD" }).catch((error) => {
        if (error.name === "SourceError") throw error;
        return null;
      });
      const length = response?.ok ? response.headers.get("Content-Length") : null;
      if (!length) {
        throw failure("its size is hidden: the server must send Access-Control-Expose-Headers: Content-Range");
      }
      return Number(length);
    }

    async open(at) {
      return (await this.range(at, null)).response.body;
    }

    // The n bytes of an answer's body.
    async body(response, n) {
      const stream = new Stream(response.body, 0, false);
      const buffer = new ArrayBuffer(n + 1); // to see one byte too many
      let have = 0;
      try {
        for (let got = 1; got && have <= n; have += got) [, got] = await stream.fill(buffer, have, n + 1 - have);
      } finally {
        stream.cancel();
      }
      if (have !== n) throw failure(`${have > n ? "more" : have} bytes came instead of ${n}`, true);
      return new Uint8Array(buffer, 0, n);
    }

    again(error) {
      // A TypeError out of a body is Chromium's "network error" for a connection that was cut.
      return error.retry ?? error instanceof TypeError;
    }

    async read(at, n) {
      this.inside(at, n);
      if (n === 0) return new Uint8Array(0);
      for (let failures = 0; ; failures++) {
        try {
          const { response } = await this.range(at, at + n - 1);
          return await this.body(response, n);
        } catch (error) {
          if (!this.again(error) || failures >= RETRY_MS.length) {
            throw this.told(error, at, n, failures);
          }
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS[failures]));
        }
      }
    }
  }

  class BlobReader extends Reader {
    constructor(blob) {
      super(blob.name ?? "blob", blob.size);
      this.blob = blob;
    }

    open(at) {
      return this.blob.slice(at).stream();
    }

    again() {
      return false; // a file that changed on the disk does not come back
    }

    async read(at, n) {
      this.inside(at, n);
      try {
        return new Uint8Array(await this.blob.slice(at, at + n).arrayBuffer());
      } catch (error) {
        throw failure(`${this.name}: ${error.message}`);
      }
    }
  }

  // A file of the origin's private file system, read in place: in workers only, and faster than its File.
  class HandleReader extends Reader {
    constructor(name, access) {
      super(name, access.getSize());
      this.access = access;
    }

    fill(bytes, at) {
      this.inside(at, bytes.byteLength);
      let got;
      try {
        got = this.access.read(bytes, { at });
      } catch (error) {
        throw failure(`${this.name}: ${error.message} (reading ${bytes.byteLength} bytes from ${at})`);
      }
      if (got !== bytes.byteLength) throw failure(`${this.name}: it ended after ${at + got} of ${this.size} bytes`);
      return bytes;
    }

    async chunk(at, n) {
      if (!(this.buffer?.byteLength >= n)) this.buffer = new ArrayBuffer(Math.max(n, BUFFER));
      return this.fill(new Uint8Array(this.buffer, 0, n), at);
    }

    async read(at, n) {
      return this.fill(new Uint8Array(n), at);
    }

    close() {
      super.close();
      this.access.close();
    }
  }

  return {
    async openUrl(url) {
      if (!URL.canParse(url, globalThis.location?.href)) throw failure(`'${url}' is no URL`);
      return new UrlReader(new URL(url, globalThis.location?.href).href).start();
    },
    openBlob: (blob) => new BlobReader(blob),
    async openHandle(handle) {
      try {
        return new HandleReader(handle.name, await handle.createSyncAccessHandle({ mode: "read-only" }));
      } catch {
        // a page, a file that the user picked, or one that another program part has open: it can still be read
      }
      try {
        return new BlobReader(await handle.getFile());
      } catch (error) {
        throw failure(`${handle.name}: ${error.message}`);
      }
    },
  };
})();
