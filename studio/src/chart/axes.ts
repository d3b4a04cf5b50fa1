// Axes, grid lines and the geometry of a chart: where a value lies on the picture, and which value lies at a place.

import { svg } from "../dom";
import { short } from "../values";
import type { Model } from "./model";
import { ticks, timeTicks, type Domain } from "./scale";

export interface Area {
  left: number;
  right: number;
  top: number;
  bottom: number;
  height: number;
  /** Whether categories lie below each other, because their names are long or many. */
  isSideways: boolean;
  nodes: SVGElement[];
  xAt(value: number): number;
  valueAt(x: number): number;
  yAt(value: number): number;
  /** From where to where the band of a category goes, along the axis of categories. */
  bandAt(category: number): readonly [number, number];
}

const LETTER = 6.4;
const MIN_BAND = 24;

const clip = (text: string, letters: number): string => text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text;

export function axes(
  model: Model, y: Domain, x: Domain | null, width: number, room: number, names: { x: string; y: string },
): Area {
  const isCategory = model.xType === "category";
  const longest = model.categories.reduce((most, name) => Math.max(most, name.length), 0);
  const bars = Math.max(1, model.kind === "bars" ? model.series.length : 1);
  const band = (width - 70) / Math.max(1, model.categories.length);
  const isSideways = model.kind === "bars"
    && (band < Math.max(12, 5 * bars) || Math.min(longest, 14) * LETTER + 6 > band) && model.categories.length > 1;
  return isSideways ? sideways(model, y, width, room, names, Math.min(longest, 36)) : upright(model, y, x, width, room, names, isCategory);
}

function upright(
  model: Model, y: Domain, x: Domain | null, width: number, height: number, names: { x: string; y: string }, isCategory: boolean,
): Area {
  const marks = ticks(y, Math.max(2, Math.floor(height / 48)));
  const labels = marks.map(short);
  const left = Math.max(...labels.map((text) => text.length)) * LETTER + 14;
  const [right, top, bottom] = [width - 12, 20, height - 36];
  const yAt = (value: number): number => bottom - ((value - y.min) / (y.max - y.min || 1)) * (bottom - top);
  const categories = Math.max(1, model.categories.length);
  const from = isCategory ? -0.5 : x!.min;
  const to = isCategory ? categories - 0.5 : x!.max;
  const pad = isCategory ? 0 : 6;
  const xAt = (value: number): number => left + pad + ((value - from) / (to - from || 1)) * (right - left - 2 * pad);
  const valueAt = (place: number): number => from + ((place - left - pad) / (right - left - 2 * pad)) * (to - from);
  const nodes: SVGElement[] = marks.flatMap((value, place) => [
    svg("line", { class: value === 0 ? "axis" : "grid-line", x1: left, x2: right, y1: yAt(value), y2: yAt(value) }),
    svg("text", { class: "tick", x: left - 6, y: yAt(value) + 3.5, "text-anchor": "end" }, labels[place]),
  ]);
  const below = (at: number, text: string): SVGElement =>
    svg("text", { class: "tick", x: at, y: bottom + 15, "text-anchor": "middle" }, text);
  if (isCategory) {
    const letters = Math.floor((right - left) / categories / LETTER);
    const every = Math.max(1, Math.ceil(MIN_BAND / ((right - left) / categories)));
    model.categories.forEach((name, place) => {
      if (place % every === 0) nodes.push(below(xAt(place), clip(name, Math.max(3, letters * every))));
    });
  } else if (model.xType === "time") {
    for (const { at, text } of timeTicks(x!, Math.max(2, Math.floor((right - left) / 80)))) nodes.push(below(xAt(at), text));
  } else {
    for (const value of ticks(x!, Math.max(2, Math.floor((right - left) / 80)))) nodes.push(below(xAt(value), short(value)));
  }
  nodes.push(
    svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { class: "axis-name", x: left, y: 11 }, names.y),
    svg("text", { class: "axis-name", x: right, y: bottom + 30, "text-anchor": "end" }, names.x));
  const half = (right - left) / categories / 2;
  return {
    left, right, top, bottom, height, isSideways: false, nodes, xAt, valueAt, yAt,
    bandAt: (category) => [xAt(category) - half, xAt(category) + half],
  };
}

function sideways(
  model: Model, y: Domain, width: number, room: number, names: { x: string; y: string }, longest: number,
): Area {
  const left = Math.min(longest * LETTER + 18, width * 0.42);
  const [right, top] = [width - 26, 34];
  const wanted = Math.max(18, 9 * model.series.length + 5);
  const bottom = Math.max(room - 6, top + wanted * model.categories.length);
  const band = (bottom - top) / model.categories.length;
  const yAt = (value: number): number => left + ((value - y.min) / (y.max - y.min || 1)) * (right - left);
  const xAt = (category: number): number => top + (category + 0.5) * band;
  const nodes: SVGElement[] = ticks(y, Math.max(2, Math.floor((right - left) / 90))).flatMap((value) => [
    svg("line", { class: value === 0 ? "axis" : "grid-line", x1: yAt(value), x2: yAt(value), y1: top, y2: bottom }),
    svg("text", { class: "tick", x: yAt(value), y: top - 6, "text-anchor": "middle" }, short(value)),
  ]);
  const letters = Math.floor((left - 12) / LETTER);
  model.categories.forEach((name, place) => {
    nodes.push(svg("text", { class: "tick", x: left - 6, y: xAt(place) + 3.5, "text-anchor": "end" },
      svg("title", {}, name), clip(name, letters)));
  });
  nodes.push(
    svg("text", { class: "axis-name", x: left - 6, y: 11, "text-anchor": "end" }, clip(names.x, letters)),
    svg("text", { class: "axis-name", x: right, y: 11, "text-anchor": "end" }, names.y));
  return {
    left, right, top, bottom, height: bottom + 4, isSideways: true, nodes, xAt, yAt,
    valueAt: (place) => (place - top) / band - 0.5,
    bandAt: (category) => [top + category * band, top + (category + 1) * band],
  };
}
