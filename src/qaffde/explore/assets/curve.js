// One column: a curve, its interval, its draws.

import { drawAxes, fillCurve } from "./plane.js";
import { between, peakOf, scale, ticks } from "./scales.js";

export const curveLayout = (width, narrow) => {
  const [left, bottom] = narrow ? [50, 58] : [66, 66];
  const height = Math.min(width * 0.62, Math.max(innerHeight - 330, 300));
  return { height, area: { left, top: 14, right: width - 8, bottom: height - bottom } };
};

export const drawCurve = (ctx, { picture, layout, theme, options, names }) => {
  const { area } = layout;
  const { density, points: n, ends } = picture;
  const peak = peakOf(density) || 1;
  const heights = [0, peak * 1.06];
  const x = scale(ends[0], [area.left, area.right]);
  const y = scale(heights, [area.bottom, area.top]);
  const upTicks = ticks(...heights, (area.bottom - area.top) / 60);
  drawGrid(ctx, area, theme, upTicks, y);
  const at = (k) => ends[0][0] + (k / (n - 1)) * (ends[0][1] - ends[0][0]);
  const points = [...density].map((value, k) => [x(at(k)), y(value)]);
  fillCurve(ctx, theme, points, [area.right, area.bottom], [area.left, area.bottom]);
  drawInterval(ctx, picture, theme, x, y);
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

const drawInterval = (ctx, { density, points: n, ends, quantiles }, theme, x, y) => {
  const [low, high] = ends[0];
  ctx.strokeStyle = theme.ink;
  quantiles[0].forEach((value, k) => {
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
