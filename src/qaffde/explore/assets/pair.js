// A second density beside the first: itself, and the difference of the two.

import { drawAxes, drawColours, fillCurve } from "./plane.js";
import { ceilingOf, isCounted, middleOf, scale, ticks } from "./scales.js";

const [MORE, LESS] = [[33, 102, 172], [178, 24, 43]]; // more of the first, more of the second
const image = document.createElement("canvas");

// Draws both on a canvas so many pixels wide, and says in words what is seen.
export const drawPair = (canvas, { picture, width, theme, names, files, columns }) => {
  const plane = picture.ends.length === 2;
  const gap = width < 520 ? 0 : 24;
  const wide = gap ? (width - gap) / 2 : width;
  const height = Math.max(Math.min(wide * 0.85, 380), 200);
  const total = gap ? height : 2 * height;
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(total * ratio)];
  canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, total);
  const titles = [files[1] ?? "the second model", "difference"];
  titles.forEach((title, k) => {
    const [left, top] = gap ? [k * (wide + gap), 0] : [0, k * height];
    const area = { left: left + 60, top: top + 26, right: left + wide - 6, bottom: top + height - 46 };
    (plane ? drawPlanes : drawCurves)(ctx, { picture, area, theme, names, columns, difference: k === 1 });
    ctx.fillStyle = theme.ink;
    ctx.font = `600 13px system-ui, "DejaVu Sans", sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(title, area.left, area.top - 6, area.right - area.left);
  });
  const share = `${(100 * movedMass(picture)).toFixed(1)} %`;
  return `Blue: more in ${files[0] ?? "the first"}; red: more in ${titles[0]}. ${share} of the mass in view differs.`;
};

const sizeOf = ({ ends, points: n }) => ends.reduce((product, [low, high]) => (product * (high - low)) / n, 1);

// Half the sum of the absolute differences: the total variation distance, to the size of a cell.
const movedMass = (picture) => {
  const sum = picture.density.reduce((total, value, k) => total + Math.abs(value - picture.other.density[k]), 0);
  return (sum * sizeOf(picture)) / 2;
};

const drawPlanes = (ctx, { picture, area, theme, names, columns, difference }) => {
  const { ends, density, points: n, other } = picture;
  const smooth = !columns.some(isCounted);
  if (difference) drawDifference(ctx, density, other.density, n, area, smooth);
  else drawColours(ctx, other, area, smooth);
  const x = scale(ends[0], [area.left, area.right]);
  const y = scale(ends[1], [area.bottom, area.top]);
  drawAxes(ctx, { area, x, y, ends, names, theme, columns });
};

const drawDifference = (ctx, first, second, n, { left, top, right, bottom }, smooth) => {
  if (image.width !== n) image.width = image.height = n;
  const pixels = new ImageData(n, n);
  const most = Math.max(ceilingOf(first), ceilingOf(second));
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      const difference = (first[i * n + j] - second[i * n + j]) / most;
      const colour = difference > 0 ? MORE : LESS;
      const strength = Math.round(255 * Math.min(Math.sqrt(Math.abs(difference)), 1));
      pixels.data.set([...colour, strength], 4 * ((n - 1 - j) * n + i));
    }
  }
  image.getContext("2d").putImageData(pixels, 0, 0);
  ctx.imageSmoothingEnabled = smooth;
  ctx.drawImage(image, 0, 0, n, n, left, top, right - left, bottom - top);
};

const drawCurves = (ctx, { picture, area, theme, names, columns, difference }) => {
  const { ends, density, points: n, other } = picture;
  const most = Math.max(ceilingOf(density), ceilingOf(other.density));
  const heights = [0, most * 1.06];
  const x = scale(ends[0], [area.left, area.right]);
  const y = scale(heights, [area.bottom, area.top]);
  const path = (values) => [...values].map((v, k) => [x(middleOf(k, n, ends[0])), y(Math.min(v, heights[1]))]);
  ctx.save();
  if (difference) shadeBetween(ctx, path(density), path(other.density));
  else fillCurve(ctx, theme, path(other.density), [area.right, area.bottom], [area.left, area.bottom]);
  ctx.restore();
  const upTicks = ticks(...heights, (area.bottom - area.top) / 60);
  drawAxes(ctx, { area, x, y, ends: [ends[0], heights], names, theme, columns, upTicks });
};

const shadeBetween = (ctx, first, second) => {
  for (let k = 0; k + 1 < first.length; k++) {
    const above = first[k][1] < second[k][1];
    ctx.fillStyle = `rgba(${(above ? MORE : LESS).join(",")}, .45)`;
    ctx.beginPath();
    [first[k], first[k + 1], second[k + 1], second[k]].forEach((at, m) => (m ? ctx.lineTo(...at) : ctx.moveTo(...at)));
    ctx.fill();
  }
  [[first, MORE], [second, LESS]].forEach(([points, colour]) => {
    ctx.beginPath();
    points.forEach((at, k) => (k ? ctx.lineTo(...at) : ctx.moveTo(...at)));
    ctx.strokeStyle = `rgb(${colour.join(",")})`;
    ctx.lineWidth = 1.6;
    ctx.stroke();
  });
};
