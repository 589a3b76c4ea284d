// Two columns: colours, regions, draws, the marginals at the sides.

import { COLOURS, between, ceilingOf, columnTicks, densityText, isCounted, middleOf, peakOf, percentText, scale } from "./scales.js";

const image = document.createElement("canvas");

export const planeLayout = (width, narrow) => {
  const [left, bottom, side, gap] = narrow ? [46, 40, 52, 6] : [62, 46, 92, 10];
  const size = Math.max(width - left - side - gap - 4, 80);
  const height = Math.min(size, Math.max(innerHeight - 420, 340));
  const top = side + gap;
  return {
    height: top + height + bottom,
    area: { left, top, right: left + size, bottom: top + height },
    side,
    gap,
  };
};

export const drawPlane = (ctx, { picture, layout, theme, options, names, columns }) => {
  const { area } = layout;
  const x = scale(picture.ends[0], [area.left, area.right]);
  const y = scale(picture.ends[1], [area.bottom, area.top]);
  drawColours(ctx, picture, area, !columns.some(isCounted));
  ctx.save();
  clip(ctx, area);
  if (options.contours && !columns.some(isCounted)) drawRegions(ctx, picture, x, y);
  if (options.samples) drawSamples(ctx, picture.samples, x, y);
  if (!columns.some(isCounted)) labelSpike(ctx, picture, x, y);
  ctx.restore();
  drawSides(ctx, picture, layout, theme, x, y);
  drawLegend(ctx, picture, layout, theme);
  drawAxes(ctx, { area, x, y, ends: picture.ends, names, theme, columns });
  return { x, y };
};

const clip = (ctx, { left, top, right, bottom }) => {
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
};

export const drawColours = (ctx, { density, points: n }, { left, top, right, bottom }, smooth) => {
  if (image.width !== n) image.width = image.height = n;
  const pixels = new ImageData(n, n);
  const words = new Uint32Array(pixels.data.buffer);
  const colours = new Uint32Array(COLOURS.buffer);
  const ceiling = ceilingOf(density);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      words[(n - 1 - j) * n + i] = colours[Math.min(255, (density[i * n + j] / ceiling) * 255) | 0];
    }
  }
  image.getContext("2d").putImageData(pixels, 0, 0);
  ctx.imageSmoothingEnabled = smooth;
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(image, 0, 0, n, n, left, top, right - left, bottom - top);
};

// Marching squares, one short line for each cell that a level crosses.
const drawRegions = (ctx, { density, points: n, ends, levels }, x, y) => {
  const place = (i, j) => [
    x(middleOf(i, n, ends[0])),
    y(middleOf(j, n, ends[1])),
  ];
  levels.forEach((level, which) => {
    ctx.beginPath();
    for (let i = 0; i < n - 1; i++) {
      for (let j = 0; j < n - 1; j++) {
        const crossings = cellCrossings(density, n, i, j, level);
        for (let k = 0; k + 1 < crossings.length; k += 2) {
          ctx.moveTo(...place(...crossings[k]));
          ctx.lineTo(...place(...crossings[k + 1]));
        }
      }
    }
    ctx.strokeStyle = "rgba(255, 255, 255, .85)";
    ctx.lineWidth = which === 0 ? 1.8 : 1;
    ctx.stroke();
  });
};

const cellCrossings = (density, n, i, j, level) => {
  const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
  const heights = corners.map(([a, b]) => density[a * n + b] - level);
  const above = heights.filter((h) => h > 0).length;
  if (above === 0 || above === 4) return [];
  const found = [];
  for (let k = 0; k < 4; k++) {
    const [p, q] = [heights[k], heights[(k + 1) % 4]];
    if (p > 0 === q > 0) continue;
    const t = p / (p - q);
    const [[a, b], [c, d]] = [corners[k], corners[(k + 1) % 4]];
    found.push([a + t * (c - a), b + t * (d - b)]);
  }
  return found;
};

const drawSamples = (ctx, samples, x, y) => {
  ctx.fillStyle = "rgba(255, 255, 255, .8)";
  ctx.strokeStyle = "rgba(0, 0, 0, .45)";
  ctx.lineWidth = 0.75;
  ctx.beginPath();
  for (let k = 0; k + 1 < samples.length; k += 2) {
    const [px, py] = [x(samples[k]), y(samples[k + 1])];
    ctx.moveTo(px + 1.7, py);
    ctx.arc(px, py, 1.7, 0, 2 * Math.PI);
  }
  ctx.fill();
  ctx.stroke();
};

// A spike that few could see says how much mass it holds, in its cell and those around it.
const labelSpike = (ctx, { density, points: n, ends }, x, y) => {
  const at = density.indexOf(peakOf(density));
  const [i, j] = [Math.floor(at / n), at % n];
  let sum = 0;
  for (let a = Math.max(i - 1, 0); a < Math.min(i + 2, n); a++) {
    for (let b = Math.max(j - 1, 0); b < Math.min(j + 2, n); b++) sum += density[a * n + b];
  }
  const mass = ends.reduce((product, [low, high]) => (product * (high - low)) / n, sum);
  if (mass < 0.1) return;
  ctx.fillStyle = "white";
  ctx.font = `600 12px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = i > n / 2 ? "right" : "left";
  ctx.fillText(`${percentText(mass)} here`, x(middleOf(i, n, ends[0])) + (i > n / 2 ? -6 : 6), y(middleOf(j, n, ends[1])) - 4);
};

const drawSides = (ctx, { sides, ends, quantiles }, { area, side, gap }, theme, x, y) => {
  const [first, second] = sides;
  const along = (curve, range, k) => middleOf(k, curve.length, range);
  const [firstTop, secondTop] = sides.map(ceilingOf);
  const base = area.top - gap;
  const wall = area.right + gap;
  const topHeight = (value) => base - Math.min(value / firstTop, 1) * (side - 4);
  const rightWidth = (value) => wall + Math.min(value / secondTop, 1) * (side - 4);
  fillCurve(ctx, theme, [...first].map((v, k) => [x(along(first, ends[0], k)), topHeight(v)]), [area.right, base], [area.left, base]);
  fillCurve(ctx, theme, [...second].map((v, k) => [rightWidth(v), y(along(second, ends[1], k))]), [wall, area.top], [wall, area.bottom]);
  const share = (value, [low, high]) => (value - low) / (high - low);
  ctx.setLineDash([3, 3]);
  ctx.strokeStyle = theme.ink;
  ctx.lineWidth = 1;
  ctx.beginPath();
  const [mx, my] = [quantiles[0][1], quantiles[1][1]];
  const shown = [mx, my].map((value, k) => value >= ends[k][0] && value <= ends[k][1]);
  if (shown[0]) {
    ctx.moveTo(x(mx), base);
    ctx.lineTo(x(mx), topHeight(between(first, first.length, share(mx, ends[0]))));
  }
  if (shown[1]) {
    ctx.moveTo(wall, y(my));
    ctx.lineTo(rightWidth(between(second, second.length, share(my, ends[1]))), y(my));
  }
  ctx.stroke();
  ctx.setLineDash([]);
};

// The colours from nothing to the highest density, in the corner that is left.
const drawLegend = (ctx, { density }, { area, side, gap }, theme) => {
  const [left, right, top] = [area.right + gap, area.right + gap + side - 4, area.top - gap - 34];
  const colours = ctx.createLinearGradient(left, 0, right, 0);
  for (let k = 0; k <= 16; k++) {
    const at = Math.round((k / 16) * 255) * 4;
    colours.addColorStop(k / 16, `rgb(${COLOURS.slice(at, at + 3).join(",")})`);
  }
  ctx.fillStyle = colours;
  ctx.fillRect(left, top, right - left, 9);
  ctx.fillStyle = theme.soft;
  ctx.font = `11px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  ctx.fillText("0", left, top + 13);
  ctx.textAlign = "right";
  const ceiling = ceilingOf(density);
  ctx.fillText(`${peakOf(density) > ceiling ? "≥ " : ""}${densityText(ceiling)}`, right, top + 13);
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.fillText("density", left, top - 3);
};

export const fillCurve = (ctx, theme, points, ...closing) => {
  const trace = () => {
    ctx.beginPath();
    points.forEach(([px, py], k) => (k ? ctx.lineTo(px, py) : ctx.moveTo(px, py)));
  };
  trace();
  closing.forEach((point) => ctx.lineTo(...point));
  ctx.closePath();
  ctx.globalAlpha = 0.28;
  ctx.fillStyle = theme.curve;
  ctx.fill();
  ctx.globalAlpha = 1;
  trace();
  ctx.strokeStyle = theme.curve;
  ctx.lineWidth = 2;
  ctx.lineJoin = "round";
  ctx.stroke();
};

export const drawAxes = (ctx, { area, x, y, ends, names, theme, columns, upTicks }) => {
  const { left, top, right, bottom } = area;
  const small = right - left < 420;
  ctx.strokeStyle = theme.soft;
  ctx.fillStyle = theme.soft;
  ctx.lineWidth = 1;
  ctx.font = `${small ? 11 : 12}px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  ctx.beginPath();
  for (const { value, text } of columnTicks(columns[0], ends[0], (right - left) / 75)) {
    ctx.moveTo(x(value), bottom);
    ctx.lineTo(x(value), bottom + 5);
    ctx.fillText(text, x(value), bottom + 8);
  }
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const { value, text } of upTicks ?? columnTicks(columns[1], ends[1], (bottom - top) / 55)) {
    ctx.moveTo(left - 5, y(value));
    ctx.lineTo(left, y(value));
    ctx.fillText(text, left - 8, y(value));
  }
  ctx.stroke();
  ctx.fillStyle = theme.ink;
  ctx.font = `600 ${small ? 12 : 13}px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  ctx.fillText(names[0], (left + right) / 2, bottom + (small ? 39 : 44), right - left);
  ctx.save();
  ctx.translate(2, (top + bottom) / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textBaseline = "top";
  ctx.fillText(names[1], 0, 0, bottom - top);
  ctx.restore();
};
