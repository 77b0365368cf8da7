// Numbers and names as people read them.

// Bytes in decimal units, as file managers and browsers show downloads.
export function bytes(n) {
  if (n < 1e6) return `${Math.round(n / 1e3)} kB`;
  if (n < 1e9) return `${(n / 1e6).toFixed(1)} MB`;
  return `${(n / 1e9).toFixed(2)} GB`;
}

// "48.2 of 98.4 MB": both in the unit of the whole.
export function bytesOf(done, total) {
  const whole = bytes(total);
  const [size, digits] = total < 1e6 ? [1e3, 0] : total < 1e9 ? [1e6, 1] : [1e9, 2];
  return `${(done / size).toFixed(digits)} of ${whole}`;
}

export const seconds = (s) => `${s.toFixed(s < 10 ? 2 : 1)} s`;
export const rate = (n) => n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0);
export const count = (n) => n.toLocaleString("en");
export const tokens = (n) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;

// The adapter in words: WebGPU gives what the browser is willing to tell, often only some of it.
export function adapterName({ vendor, architecture, device, description }) {
  const name = description || [vendor, architecture, device].filter(Boolean).join(" ") || "not named by the browser";
  return architecture === "swiftshader" ? `${name} (software: the CPU computes)` : name;
}

const STOPPED = {
  length: "length reached",
  eos: "the model ended the text",
  cancelled: "stopped",
  context: "the context is full",
};
export const stopReason = (reason) => STOPPED[reason] ?? reason;

// "ArchError: architecture 'mamba' is not supported; …", the line that the command prints too.
export const errorText = (error) => `${error.name}: ${error.message}`;

// "model.gguf" of a path or an address.
export const fileName = (place) => decodeURIComponent(place.split(/[?#]/)[0].split("/").pop());
