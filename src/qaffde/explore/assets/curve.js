// One column: a curve, its interval, its draws.

import { drawAxes, fillCurve } from "./plane.js";
import { between, ceilingOf, middleOf, percentText, scale, spikesAbove, ticks } from "./scales.js";

export const curveLayout = (width, narrow) => {
  const [left, bottom] = narrow ? [50, 58] : [66, 66];
  const height = Math.min(width * 0.62, Math.max(innerHeight - 330, 300));
  return { height, area: { left, top: 14, right: width - 8, bottom: height - bottom } };
};

export const drawCurve = (ctx, { picture, layout, theme, options, names }) => {
  const { area } = layout;
  const { density, points: n, ends } = picture;
  const ceiling = ceilingOf(density);
  const heights = [0, ceiling * 1.06];
  const x = scale(ends[0], [area.left, area.right]);
  const y = scale(heights, [area.bottom, area.top]);
  const upTicks = ticks(...heights, (area.bottom - area.top) / 60);
  drawGrid(ctx, area, theme, upTicks, y);
  const points = [...density].map((value, k) => [x(middleOf(k, n, ends[0])), y(Math.min(value, heights[1]))]);
  fillCurve(ctx, theme, points, [area.right, area.bottom], [area.left, area.bottom]);
  drawInterval(ctx, picture, theme, x, (value) => y(Math.min(value, heights[1])));
  spikesAbove(density, heights[1]).forEach((run) => labelSpike(ctx, picture, theme, run, x, area));
  if (options.samples) drawRug(ctx, picture.samples, theme, area, x);
  const shifted = { ...area, bottom: area.bottom + (options.samples ? 14 : 0) };
  drawAxes(ctx, { area: shifted, x, y, ends: [ends[0], heights], names, theme, upTicks });
  return { x, y };
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
