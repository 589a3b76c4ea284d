// Selects for the axes, a card for each other column, ends of the box.

import { isCounted } from "./scales.js";

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

export const fillAxes = (across, up, columns) => {
  columns.forEach(({ name }, k) => {
    across.append(new Option(name, k));
    up.append(new Option(name, k));
  });
  up.append(new Option("density", ""));
};

const rounded = (value, step) => Number((Math.round(value / step) * step).toPrecision(12));

// A card has two states: any value, or one that the slider says.
export class ColumnCard {
  constructor(column, number, onChange) {
    const { name, median, labels } = column;
    const whole = isCounted(column);
    const [min, max] = whole ? [Math.ceil(column.ends[0]), Math.floor(column.ends[1])] : column.ends;
    this.step = whole ? 1 : 10 ** Math.floor(Math.log10((max - min) / 200));
    Object.assign(this, { name, number, onChange });
    this.check = make("input", { type: "checkbox", id: `fix-${number}` });
    this.check.setAttribute("aria-label", `Fix ${name} at a value`);
    this.value = labels
      ? make("select", {}, ...labels.map((label, code) => new Option(label, code)))
      : make("input", { type: "number", step: whole ? 1 : "any" });
    this.value.value = rounded(median, this.step);
    this.value.setAttribute("aria-label", `Value of ${name}`);
    this.any = make("span", { className: "any", textContent: "any" });
    this.slider = make("input", { type: "range", min: rounded(min, this.step), max: rounded(max, this.step), step: this.step });
    this.slider.value = rounded(median, this.step);
    this.slider.setAttribute("aria-label", `${name}, slide to condition on it`);
    const label = make("label", { htmlFor: this.check.id }, this.check, name);
    const head = make("div", { className: "head" }, label, this.any, this.value);
    this.element = make("div", { className: "column" }, head, this.slider);
    this.check.addEventListener("change", () => this.fix(this.check.checked));
    this.slider.addEventListener("input", () => this.#slide());
    this.value.addEventListener("input", () => this.#type());
    this.#show();
  }

  get fixed() {
    return this.check.checked;
  }

  fix(fixed) {
    this.check.checked = fixed;
    this.#show();
    this.onChange({ draft: false });
  }

  #slide() {
    this.value.value = rounded(Number(this.slider.value), this.step);
    this.check.checked = true;
    this.#show();
    this.onChange({ draft: true });
  }

  #type() {
    if (this.value.value === "" || !Number.isFinite(Number(this.value.value))) return;
    this.slider.value = Number(this.value.value);
    this.#show();
    this.onChange({ draft: true });
  }

  #show() {
    this.element.classList.toggle("fixed", this.fixed);
    this.value.hidden = !this.fixed;
    this.any.hidden = this.fixed;
    this.slider.setAttribute("aria-valuetext", this.fixed ? this.value.value : `any value; ${this.value.value} once moved`);
  }
}

// Number inputs for both ends of the box along each axis.
export class BoxEnds {
  constructor(element, onChange) {
    Object.assign(this, { element, onChange, inputs: [] });
  }

  rebuild(columns) {
    this.inputs = columns.map(({ name }) =>
      ["from", "to"].map((word) => {
        const input = make("input", { type: "number", step: "any", placeholder: "open" });
        input.addEventListener("input", () => this.onChange(this.read()));
        return { input, label: make("label", {}, `${name}, ${word}`, input) };
      }),
    );
    this.element.replaceChildren(...this.inputs.flat().map(({ label }) => label));
  }

  // Pairs of ends, null where one is open; null where all are.
  read() {
    const pairs = this.inputs.map((pair) => pair.map(({ input }) => (input.value === "" ? null : input.valueAsNumber)));
    return pairs.flat().every((end) => end === null) ? null : pairs;
  }

  write(box) {
    this.inputs.forEach((pair, k) =>
      pair.forEach(({ input }, e) => {
        const end = box?.[k]?.[e];
        input.value = end === null || end === undefined ? "" : Number(end.toPrecision(5));
      }),
    );
  }
}
