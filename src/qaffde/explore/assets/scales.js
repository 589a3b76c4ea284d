// Numbers as people read them, places on axes, and colours.

export const scale = ([low, high], [from, to]) => {
  const at = (x) => from + ((x - low) / (high - low)) * (to - from);
  at.inverse = (p) => low + ((p - from) / (to - from)) * (high - low);
  return at;
};

// Round steps of 1, 2 or 5, about as many as asked for.
export const ticks = (low, high, count) => {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    found.push({ value: k * step, text: tickText(k * step, digits) });
  }
  return found;
};

// Ticks of a column: labels of categories, whole numbers of integers.
export const columnTicks = ({ kind, labels }, [low, high], count) => {
  if (labels) {
    const every = Math.ceil(labels.length / Math.max(count, 1));
    return labels.map((text, value) => ({ value, text: shortText(text) })).filter((_, k) => k % every === 0);
  }
  return ticks(low, high, kind === "integer" ? Math.min(count, high - low) : count);
};

export const isCounted = ({ kind }) => kind === "integer" || kind === "category";

const shortText = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);

const tickText = (value, digits) => {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || digits > 5)) return value.toExponential(1).replace("-", "−").replace("e+", "e");
  return (digits > 5 ? "0" : value.toFixed(digits)).replace("-", "−");
};

// As many digits as the width of a column is worth.
export const numberText = (value, width = Math.abs(value)) => {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.max(Math.abs(value), width);
  if (size >= 1e6 || (size < 1e-4 && size > 0)) return value.toExponential(3).replace("-", "−").replace("e+", "e");
  const digits = Math.min(8, Math.max(0, 2 - Math.floor(Math.log10(width || 1))));
  return value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
};

export const densityText = (value) => {
  if (value === 0) return "0";
  const text = value >= 1e-3 && value < 1e5 ? value.toPrecision(3) : value.toExponential(2);
  return text.replace("e-", "e−").replace("e+", "e");
};

export const percentText = (p, draft) => {
  const sign = draft ? "≈ " : "";
  if (p >= 0.9995 && p < 1 && !draft) return `${(100 * p).toFixed(4)} %`;
  if (p < 1e-6) return p > 0 ? "< 0.0001 %" : `${sign}0 %`;
  const digits = p >= 0.01 ? (draft ? 1 : 2) : Math.min(6, 1 - Math.floor(Math.log10(100 * p)) + (draft ? 0 : 1));
  return `${sign}${(100 * p).toFixed(digits)} %`;
};

// Viridis: even steps for the eye, with and without colour blindness, and in grey.
const STOPS = [
  [68, 1, 84], [72, 40, 120], [62, 73, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
export const COLOURS = Uint8ClampedArray.from({ length: 256 * 4 }, (_, i) => {
  const [shade, channel] = [Math.floor(i / 4), i % 4];
  if (channel === 3) return 255;
  const at = (shade / 255) * (STOPS.length - 1);
  const k = Math.min(Math.floor(at), STOPS.length - 2);
  return Math.round(STOPS[k][channel] + (at - k) * (STOPS[k + 1][channel] - STOPS[k][channel]));
});

export const peakOf = (values) => values.reduce((a, b) => (b > a ? b : a), 0);

// Height at which a picture ends: cells that are few, much higher and not nearly all of the mass
// are spikes, cut off there.
export const ceilingOf = (values) => {
  const sum = (a, b) => a + b;
  const sorted = values.toSorted();
  const [peak, first] = [sorted.at(-1) || 1, values.length - Math.floor(values.length / 64)];
  const usual = sorted[first - 1];
  const rest = sorted.subarray(0, first).reduce(sum, 0) > 0.2 * sorted.reduce(sum, 0);
  return rest && peak > 3 * usual ? 1.25 * usual : peak;
};

// Neighbouring cells above a height, as the first of each run and the one after its last.
export const spikesAbove = (values, height) => {
  const runs = [];
  values.forEach((value, k) => {
    if (value <= height) return;
    if (runs.at(-1)?.[1] === k) runs.at(-1)[1] = k + 1;
    else runs.push([k, k + 1]);
  });
  return runs;
};

// Middle of a cell of a range.
export const middleOf = (k, n, [low, high]) => low + ((k + 0.5) / n) * (high - low);

// Value between the middles of even cells, linearly; the place is in shares of their range.
export const between = (values, n, share, offset = 0, stride = 1) => {
  const at = Math.min(Math.max(share * n - 0.5, 0), n - 1);
  const k = Math.min(Math.floor(at), n - 2);
  const [a, b] = [values[offset + k * stride], values[offset + (k + 1) * stride]];
  return a + (at - k) * (b - a);
};
