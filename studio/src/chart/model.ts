// What a chart shows, made of rows: which column is x, y and series, the kind of marks, the points with their bounds.

import type { Rows } from "../frame";
import type { ColumnInfo } from "../messages";
import { kindOf } from "../values";

export type ChartKind = "bars" | "line" | "points" | "figures";

/** What people have chosen; what they have not is decided by the types of the columns. */
export interface Choices {
  kind: ChartKind | null;
  x: number | null;
  y: number | null;
  by: number | null | "none";
}

export const NO_CHOICES: Choices = { kind: null, x: null, y: null, by: null };

export interface Point {
  /** The place on the x axis: a number, milliseconds, or which of the categories it is. */
  x: number;
  label: string;
  y: number;
  low: number | null;
  high: number | null;
  row: number;
  isSettled: boolean;
}

export interface Series {
  name: string | null;
  points: Point[];
}

export interface Model {
  kind: ChartKind;
  x: number;
  y: number;
  by: number | null;
  xType: "category" | "number" | "time";
  categories: string[];
  /** Of each category the value that a filter has. */
  keys: (number | string | boolean | null)[];
  series: Series[];
  hasBounds: boolean;
  /** How many series or categories are left out. */
  leftOut: number;
}

export const MOST_CATEGORIES = 200;
const MOST_SERIES = 8;
const FEW = 12;

/** Why a result has no chart, for people. */
export class NoChart extends Error {}

function distinct(rows: Rows, column: number, most: number): Set<string> {
  const seen = new Set<string>();
  for (let row = 0; row < rows.length && seen.size <= most; row++) seen.add(rows.columns[column].text(row) ?? "NULL");
  return seen;
}

/** Whether many rows have the same x and series. */
function repeats(rows: Rows, x: number, by: number | null): boolean {
  const seen = new Set<string>();
  for (let row = 0; row < rows.length; row++) {
    seen.add(`${rows.columns[x].text(row)}\n${by === null ? "" : rows.columns[by].text(row)}`);
  }
  return seen.size * 2 < rows.length;
}

function isOrdered(rows: Rows, column: number): boolean {
  let last = -Infinity;
  for (let row = 0; row < rows.length; row++) {
    const value = rows.columns[column].number(row);
    if (value === null) continue;
    if (value < last) return false;
    last = value;
  }
  return true;
}

/** The columns and the kind of marks: those chosen, and sensible ones for the rest. */
export function decide(columns: readonly ColumnInfo[], rows: Rows, choices: Choices): {
  kind: ChartKind; x: number; y: number; by: number | null;
} {
  const kinds = columns.map(({ type }) => kindOf(type));
  const places = columns.map((_, place) => place);
  const numbers = places.filter((place) => kinds[place] === "number");
  if (numbers.length === 0) throw new NoChart("A chart needs a column of numbers.");
  const measures = places.filter((place) => rows.hasBounds(place) && kinds[place] === "number");
  const firstKey = places.find((place) => kinds[place] !== "number");
  const y = choices.y ?? measures[0] ?? numbers.find((place) => place > (firstKey ?? 0)) ?? numbers[numbers.length - 1];

  const others = places.filter((place) => place !== y);
  const keys = others.filter((place) => !measures.includes(place));
  const x = choices.x ?? keys.find((place) => kinds[place] === "time") ?? keys.find((place) => kinds[place] !== "number")
    ?? keys[0] ?? -1;
  if (choices.kind === null && choices.x === null && rows.length === 1 && (x < 0 || numbers.includes(x) || measures.length > 1)) {
    return { kind: "figures", x: -1, y, by: null };
  }
  let by: number | null = null;
  if (choices.by === "none") by = null;
  else if (choices.by !== null) by = choices.by;
  else {
    by = keys.find((place) => place !== x && (kinds[place] === "text" || kinds[place] === "boolean")
      && distinct(rows, place, FEW).size <= FEW) ?? null;
  }
  if (by === x || by === y) by = null;

  let kind = choices.kind;
  // Rows that were not grouped: a bar per row would hide the others, so they are points.
  if (kind === null && choices.x === null && x >= 0 && kinds[x] !== "number" && repeats(rows, x, by)) {
    const across = numbers.find((place) => place !== y);
    if (kinds[x] === "time") return { kind: "points", x, y, by };
    return { kind: "points", x: across ?? -1, y, by: choices.by === null && distinct(rows, x, FEW).size <= FEW ? x : by };
  }
  if (kind === null) {
    if (x < 0) kind = rows.length > 40 ? "line" : "bars";
    else if (kinds[x] === "time") kind = rows.length === 1 ? "bars" : "line";
    else if (kinds[x] !== "number") kind = "bars";
    else if (distinct(rows, x, FEW * 2).size <= FEW * 2 && rows.length <= FEW * 2 * (by === null ? 1 : FEW)) kind = "bars";
    else kind = isOrdered(rows, x) && measures.length > 0 || by !== null ? "line" : isOrdered(rows, x) ? "line" : "points";
  }
  return { kind, x, y, by };
}

/** The chart of these rows. earlier: the categories of the snapshot before; they keep their order while it settles. */
export function makeModel(
  columns: readonly ColumnInfo[], rows: Rows, choices: Choices, earlier: readonly string[] | null,
): Model {
  const { kind, x, y, by } = decide(columns, rows, choices);
  const xKind = x < 0 ? "number" : kindOf(columns[x].type);
  const xType = kind === "bars" ? "category" : xKind === "number" ? "number" : xKind === "time" ? "time" : "category";
  const categories: string[] = [];
  const keys: Model["keys"] = [];
  const places = new Map<string, number>();
  const series = new Map<string | null, Point[]>();
  let leftOut = 0;

  if (xType === "category") {
    const found = new Map<string, number | string | boolean | null>();
    for (let row = 0; row < rows.length; row++) {
      const label = x < 0 ? String(rows.first + row + 1) : rows.columns[x].text(row) ?? "NULL";
      if (!found.has(label)) found.set(label, x < 0 ? null : rows.columns[x].plain(row));
    }
    let names = [...found.keys()];
    if (earlier) {
      const kept = earlier.filter((name) => found.has(name));
      names = [...kept, ...names.filter((name) => !earlier.includes(name))];
    } else if (x >= 0 && (xKind === "time" || xKind === "number") && !isOrdered(rows, x) && by !== null) {
      const at = new Map<string, number>();
      for (let row = 0; row < rows.length; row++) at.set(rows.columns[x].text(row) ?? "NULL", rows.columns[x].number(row) ?? Infinity);
      names.sort((a, b) => at.get(a)! - at.get(b)!);
    }
    leftOut = Math.max(0, names.length - MOST_CATEGORIES);
    for (const name of names.slice(0, MOST_CATEGORIES)) {
      places.set(name, categories.length);
      categories.push(name);
      keys.push(found.get(name)!);
    }
  }

  for (let row = 0; row < rows.length; row++) {
    const value = rows.columns[y].number(row);
    if (value === null) continue;
    const label = x < 0 ? String(rows.first + row + 1) : rows.columns[x].text(row) ?? "NULL";
    const at = xType === "category" ? places.get(label) ?? null : x < 0 ? rows.first + row + 1 : rows.columns[x].number(row);
    if (at === null) continue;
    const name = by === null ? null : rows.columns[by].text(row) ?? "NULL";
    let points = series.get(name);
    if (!points) {
      if (series.size === MOST_SERIES) {
        leftOut++;
        continue;
      }
      series.set(name, points = []);
    }
    const bounds = rows.bounds(y, row);
    points.push({
      x: at, label, y: value, low: bounds?.[0] ?? null, high: bounds?.[1] ?? null, row: rows.first + row,
      isSettled: bounds !== null && bounds[0] === bounds[1],
    });
  }
  // In the order of their names, so that none changes its colour from one snapshot to the next.
  const named = [...series].sort(([a], [b]) => (a ?? "").localeCompare(b ?? "", "en", { numeric: true }));
  if (kind === "line") for (const points of series.values()) points.sort((a, b) => a.x - b.x);
  return {
    kind, x, y, by, xType, categories, keys,
    series: named.map(([name, points]) => ({ name, points })), hasBounds: rows.hasBounds(y), leftOut,
  };
}
