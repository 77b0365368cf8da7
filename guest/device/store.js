// The JavaScript half of device/browser_store.py: short texts by key in the Cache API, which workers have too.
// Evaluated once; the value of this file is {get, set}. Without the API (an insecure page) calls fail.
(() => {
  "use strict";

  const open = () => caches.open("pagelm");
  // Entries are found by an address: this one exists nowhere and is never asked.
  const address = (key) => `https://pagelm.invalid/${encodeURIComponent(key)}`;

  return {
    // The text, or an empty one.
    async get(key) {
      const found = await (await open()).match(address(key));
      return found ? await found.text() : "";
    },

    async set(key, text) {
      await (await open()).put(address(key), new Response(text));
    },
  };
})();
