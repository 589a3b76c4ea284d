// One column: a curve, its interval, its draws.

import { drawAxes, fillCurve } from "./plane.js";
import { between, ceilingOf, isCounted, middleOf, peakOf, percentText, scale, spikesAbove, ticks } from "./scales.js";

export const curveLayout = (width, narrow) => {
  const [left, bottom] = narrow ? [50, 58] : [66, 66];
  const height = Math.min(width * 0.62, Math.max(innerHeight - 330, 300));
  return { height, area: { left, top: 14, right: width - 8, bottom: height - bottom } };
};

export const drawCurve = (ctx, { picture, layout, theme, options, names, columns }) => {
  const { area } = layout;
  const { density, points: n, ends } = picture;
  const [column] = columns;
  const ceiling = isCounted(column) ? peakOf(density) || 1 : ceilingOf(density);
  const heights = [0, ceiling * 1.06];
  const x = scale(ends[0], [area.left, area.right]);
  const y = scale(heights, [area.bottom, area.top]);
  const upTicks = ticks(...heights, (area.bottom - area.top) / 60);
  drawGrid(ctx, area, theme, upTicks, y);
  if (isCounted(column)) drawCounted(ctx, picture, theme, column, x, y);
  else {
    const points = [...density].map((value, k) => [x(middleOf(k, n, ends[0])), y(Math.min(value, heights[1]))]);
    if (column.kind === "periodic") close(points, area);
    fillCurve(ctx, theme, points, [area.right, area.bottom], [area.left, area.bottom]);
    spikesAbove(density, heights[1]).forEach((run) => labelSpike(ctx, picture, theme, run, x, area));
  }
  if (column.kind !== "category") drawInterval(ctx, picture, theme, x, (value) => y(Math.min(value, heights[1])));
  if (options.samples) drawRug(ctx, picture.samples, theme, area, x);
  const shifted = { ...area, bottom: area.bottom + (options.samples ? 14 : 0) };
  drawAxes(ctx, { area: shifted, x, y, ends: [ends[0], heights], names, theme, columns, upTicks });
  return { x, y };
};

// A curve on a circle begins and ends at the cut, with one height.
const close = (points, { left, right }) => {
  const height = (points[0][1] + points.at(-1)[1]) / 2;
  points.unshift([left, height]);
  points.push([right, height]);
};

// Bars of categories and stems of integers.
const drawCounted = (ctx, { density, points: n, ends }, theme, { kind }, x, y) => {
  const [low, high] = ends[0];
  ctx.fillStyle = ctx.strokeStyle = theme.curve;
  ctx.lineWidth = 2.5;
  for (let code = Math.ceil(low); code <= high; code++) {
    const value = between(density, n, (code - low) / (high - low));
    if (kind === "category") {
      ctx.globalAlpha = 0.75;
      ctx.fillRect(x(code - 0.35), y(value), x(code + 0.35) - x(code - 0.35), y(0) - y(value));
      ctx.globalAlpha = 1;
      continue;
    }
    ctx.beginPath();
    ctx.moveTo(x(code), y(0));
    ctx.lineTo(x(code), y(value));
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x(code), y(value), 4, 0, 2 * Math.PI);
    ctx.fill();
  }
};

const drawGrid = (ctx, { left, right, bottom }, theme, upTicks, y) => {
  ctx.strokeStyle = theme.line;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const { value } of upTicks) {
    ctx.moveTo(left, y(value));
    ctx.lineTo(right, y(value));
  }
  ctx.moveTo(left, bottom);
  ctx.lineTo(right, bottom);
  ctx.stroke();
};

// A spike that is cut off says how much mass it holds.
const labelSpike = (ctx, { density, points: n, ends }, theme, [from, to], x, { left, right, top }) => {
  const mass = (density.slice(from, to).reduce((a, b) => a + b, 0) / n) * (ends[0][1] - ends[0][0]);
  const at = x(middleOf((from + to - 1) / 2, n, ends[0]));
  const leftwards = at > (left + right) / 2;
  ctx.fillStyle = theme.ink;
  ctx.font = `600 12px system-ui, "DejaVu Sans", sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = leftwards ? "right" : "left";
  ctx.fillText(`${percentText(mass)} here`, at + (leftwards ? -9 : 9), top + 2);
};

const drawInterval = (ctx, { density, points: n, ends, quantiles }, theme, x, y) => {
  const [low, high] = ends[0];
  ctx.strokeStyle = theme.ink;
  quantiles[0].forEach((value, k) => {
    if (value < low || value > high) return;
    ctx.setLineDash(k === 1 ? [] : [3, 3]);
    ctx.lineWidth = k === 1 ? 1.5 : 1;
    ctx.beginPath();
    ctx.moveTo(x(value), y(0));
    ctx.lineTo(x(value), y(between(density, n, (value - low) / (high - low))));
    ctx.stroke();
  });
  ctx.setLineDash([]);
};

const drawRug = (ctx, samples, theme, { bottom }, x) => {
  ctx.strokeStyle = theme.ink;
  ctx.globalAlpha = 0.4;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const value of samples) {
    ctx.moveTo(x(value), bottom + 2);
    ctx.lineTo(x(value), bottom + 12);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
};
