// Pictures from the server: one request at a time, always of the latest state.

const REST = 140; // milliseconds without a change until the exact picture is asked for

const unpack = (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};

const decode = (answer) => ({
  ...answer,
  density: unpack(answer.density),
  sides: answer.sides.map(unpack),
  samples: unpack(answer.samples),
  other: answer.other && decode(answer.other),
});

export const fetchModel = async () => {
  const response = await fetch("api/model");
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
};

export class Link {
  constructor({ onPicture, onTrouble }) {
    Object.assign(this, { onPicture, onTrouble, wanted: null, running: null, timer: 0, times: [] });
  }

  // A state that will soon change again, or one to stay with.
  ask(state, { draft }) {
    clearTimeout(this.timer);
    this.wanted = { ...state, draft };
    if (this.running && !this.running.draft) this.running.abort.abort();
    if (!this.running) this.#next();
  }

  get rate() {
    const now = performance.now();
    this.times = this.times.filter((t) => now - t < 1000);
    return this.times.length;
  }

  async #next() {
    const state = this.wanted;
    this.wanted = null;
    this.running = { draft: state.draft, abort: new AbortController() };
    try {
      await this.#fetch(state, this.running.abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.onTrouble("The explorer does not answer: is it still running?");
    }
    this.running = null;
    if (this.wanted) this.#next();
  }

  async #fetch(state, signal) {
    const response = await fetch("api/picture", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(state),
      signal,
    });
    const answer = await response.json();
    if (!response.ok) return this.onTrouble(answer.error);
    if (answer.superseded) return this.#later(state);
    this.times.push(performance.now());
    this.onPicture(decode(answer), state);
    if (state.draft) this.#later(state);
  }

  #later(state) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.wanted) this.ask(state, { draft: false });
    }, REST);
  }
}
