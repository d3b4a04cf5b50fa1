// The marks of a chart: bars with error bars, lines with bands, points, and figures for a result of one row.

import { el, svg } from "../dom";
import type { Rows } from "../frame";
import type { ColumnInfo } from "../messages";
import { count, roundedForReading, widthText } from "../values";
import type { Area } from "./axes";
import type { Model, Point } from "./model";

export type { Area } from "./axes";

/** Where a point lies on the picture. */
export interface Mark {
  x: number;
  y: number;
  point: Point;
  series: string | null;
}

interface Drawn {
  nodes: SVGElement[];
  marks: Mark[];
}

type IsChosen = (point: Point) => boolean | null;

const between = (value: number, a: number, b: number): number => Math.max(Math.min(a, b), Math.min(Math.max(a, b), value));
const state = (isChosen: boolean | null): string => isChosen === null ? "" : isChosen ? " chosen" : " faded";

/** An error bar from low to high, with ends where it does not leave the picture. */
function errorBar(area: Area, point: Point, at: number, wide: number, suffix: string): SVGElement | null {
  if (point.low === null || point.high === null || point.low === point.high) return null;
  const [min, max] = area.isSideways ? [area.left, area.right] : [area.bottom, area.top];
  const from = between(area.yAt(point.low), min, max);
  const to = between(area.yAt(point.high), min, max);
  const end = Math.min(5, wide / 3);
  const isWhole = (value: number): boolean => Math.abs(between(area.yAt(value), min, max) - area.yAt(value)) < 1;
  let path = area.isSideways ? `M${from} ${at}H${to}` : `M${at} ${from}V${to}`;
  for (const [value, place] of [[point.low, from], [point.high, to]] as const) {
    if (isWhole(value)) path += area.isSideways ? `M${place} ${at - end}v${2 * end}` : `M${at - end} ${place}h${2 * end}`;
  }
  return svg("path", { class: `error-bar${suffix}`, d: path });
}

export function drawBars(model: Model, area: Area, isFinal: boolean, isChosen: IsChosen): Drawn {
  const nodes: SVGElement[] = [];
  const marks: Mark[] = [];
  const zero = area.yAt(0);
  model.series.forEach(({ name, points }, series) => {
    for (const point of points) {
      const [from, to] = area.bandAt(point.x);
      const pad = Math.min(8, (to - from) * 0.14);
      const wide = Math.max(1, Math.min((to - from - 2 * pad) / model.series.length, 72));
      const start = (from + to) / 2 - (wide * model.series.length) / 2 + wide * series;
      const end = area.yAt(point.y);
      const [thick, gap] = [Math.max(1, wide - 1), 0.5];
      const suffix = state(isChosen(point)) + (!isFinal && model.hasBounds && !point.isSettled ? " settling" : "");
      const box = area.isSideways
        ? { x: Math.min(zero, end), width: Math.max(0.5, Math.abs(end - zero)), y: start + gap, height: thick }
        : { y: Math.min(zero, end), height: Math.max(0.5, Math.abs(end - zero)), x: start + gap, width: thick };
      nodes.push(svg("rect", { class: `mark-bar series-${series}${suffix}`, ...box, rx: Math.min(2, thick / 4), "data-label": point.label,
        "data-value": point.y }));
      if (!isFinal) {
        const error = errorBar(area, point, start + wide / 2, wide, suffix);
        if (error) nodes.push(error);
      }
      const middle = start + wide / 2;
      marks.push({ x: area.isSideways ? end : middle, y: area.isSideways ? middle : end, point, series: name });
    }
  });
  return { nodes, marks };
}

export function drawLines(model: Model, area: Area, isFinal: boolean, isChosen: IsChosen): Drawn {
  const bands: SVGElement[] = [];
  const lines: SVGElement[] = [];
  const marks: Mark[] = [];
  const yIn = (value: number): number => between(area.yAt(value), area.top - 2, area.bottom);
  model.series.forEach(({ name, points }, series) => {
    const at = points.map((point) => ({ x: area.xAt(point.x), y: yIn(point.y), point }));
    for (const { x, y, point } of at) marks.push({ x, y, point, series: name });
    lines.push(svg("path", { class: `line series-${series}`, d: at.map(({ x, y }, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") }));
    if (at.length <= 60) {
      for (const { x, y, point } of at) {
        lines.push(svg("circle", { class: `dot series-${series}${state(isChosen(point))}`, cx: x, cy: y, r: 2.5,
          "data-label": point.label, "data-value": point.y }));
      }
    }
    if (isFinal) return;
    // The band goes along the points that have bounds; a point without breaks it.
    let run: typeof at = [];
    const close = (): void => {
      if (run.length > 1) {
        const upper = run.map(({ x, point }) => `${x.toFixed(1)} ${yIn(point.high!).toFixed(1)}`);
        const lower = run.map(({ x, point }) => `${x.toFixed(1)} ${yIn(point.low!).toFixed(1)}`).reverse();
        bands.push(svg("path", { class: `band series-${series}`, d: `M${upper.join("L")}L${lower.join("L")}Z` }));
      } else if (run.length === 1) {
        const error = errorBar(area, run[0].point, run[0].x, 12, "");
        if (error) bands.push(error);
      }
      run = [];
    };
    for (const one of at) {
      if (one.point.low === null || one.point.high === null) close();
      else run.push(one);
    }
    close();
  });
  return { nodes: [...bands, ...lines], marks };
}

export function drawPoints(model: Model, area: Area, isFinal: boolean, isChosen: IsChosen): Drawn {
  const nodes: SVGElement[] = [];
  const marks: Mark[] = [];
  const radius = model.series.some(({ points }) => points.length > 1000) ? 1.5 : 2.5;
  model.series.forEach(({ name, points }, series) => {
    // Points of one kind are one path: ten thousand of them are still one element.
    const paths = new Map<string, string[]>();
    for (const point of points) {
      const mark = { x: area.xAt(point.x), y: between(area.yAt(point.y), area.top, area.bottom), point, series: name };
      marks.push(mark);
      const suffix = state(isChosen(point));
      if (!paths.has(suffix)) paths.set(suffix, []);
      paths.get(suffix)!.push(`M${mark.x.toFixed(1)} ${mark.y.toFixed(1)}h0`);
      if (!isFinal && points.length <= 300) {
        const error = errorBar(area, point, mark.x, 8, suffix);
        if (error) nodes.push(error);
      }
    }
    for (const [suffix, path] of paths) {
      nodes.push(svg("path", { class: `points series-${series}${suffix}`, d: path.join(""), "stroke-width": radius * 2 }));
    }
  });
  return { nodes, marks };
}

/** One row as large figures with their bounds. */
export function drawFigures(columns: readonly ColumnInfo[], rows: Rows, isFinal: boolean): HTMLElement {
  return el("dl", { class: "figures" }, ...columns.map(({ name }, column) => {
    const number = rows.columns[column].number(0);
    const bounds = isFinal ? null : rows.bounds(column, 0);
    const half = bounds ? (bounds[1] - bounds[0]) / 2 : 0;
    const text = rows.columns[column].text(0) ?? "NULL";
    const shown = number === null || rows.columns[column].kind !== "number" ? text
      : half > 0 ? roundedForReading(number, half)
        : number.toLocaleString("en-US", { maximumSignificantDigits: 12 });
    const width = half > 0 ? `±${half < 10 ? widthText(half) : count(Number(half.toPrecision(2)))}`
      : !isFinal && rows.hasBounds(column) && bounds === null ? "not yet bounded" : null;
    return el("div", { class: "figure" }, el("dt", {}, name), el("dd", {}, shown), width && el("dd", { class: "figure-width" }, width));
  }));
}
