// What is chosen in a chart as a filter for the other queries: which column of a table the x axis shows, which values.

import type { Chart, Selection } from "./chart/chart";
import type { ColumnInfo, Filter } from "./messages";
import { isInteger, kindOf } from "./values";

const NAME = String.raw`(?:\w+\.)?"?(\w+)"?`;

/** The column of a table that a column of the result stands for: itself, what it renames, or the time that it cuts. */
export function origin(sql: string, name: string): { column: string; isCut: boolean } {
  const alias = String.raw`\s+(?:AS\s+)?"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?(?!\w|\s*\()`;
  const cut = new RegExp(String.raw`\b(?:date_trunc|time_bucket)\s*\([^(),]*(?:'[^']*')?[^(),]*,\s*${NAME}\s*\)${alias}`, "i").exec(sql);
  if (cut) return { column: cut[1], isCut: true };
  const renamed = new RegExp(String.raw`(?:SELECT|,)\s+${NAME}\s+AS\s+"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?(?!\w)`, "i").exec(sql);
  return { column: renamed ? renamed[1] : name, isCut: false };
}

/** The filter of a selection; null if there is none. */
export function filterOf(chart: Chart, selection: Selection | null, columns: readonly ColumnInfo[], sql: string): Filter | null {
  const { model } = chart;
  if (!selection || !model || model.x < 0) return null;
  const { name, type } = columns[model.x];
  const { column, isCut } = origin(sql, name);
  if (selection.kind === "categories") {
    const values = model.categories.flatMap((label, place) => selection.labels.has(label) ? [model.keys[place]] : []);
    if (!isCut) return { column, values };
    // A bar of a cut time stands for all of its times.
    const times = values.map((value) => Date.parse(`${String(value).replace(" ", "T")}${/[ T]/.test(String(value)) ? "Z" : ""}`));
    const all = model.keys.map((value) => Date.parse(`${String(value).replace(" ", "T")}${/[ T]/.test(String(value)) ? "Z" : ""}`));
    return { column, low: Math.min(...times), high: endOf(Math.max(...times), all) };
  }
  let { low, high } = selection;
  const xs = model.series.flatMap(({ points }) => points.map(({ x }) => x));
  if (isCut) {
    low = Math.min(...xs.filter((x) => x >= low), high);
    high = endOf(Math.max(...xs.filter((x) => x <= high), low), xs);
  } else if (isInteger(type)) {
    low = Math.ceil(low);
    high = Math.floor(high);
  } else if (kindOf(type) === "time") {
    low = Math.floor(low);
    high = Math.ceil(high);
  }
  return low > high ? null : { column, low, high };
}

/** The last moment of the piece of time that begins at `start`, where pieces begin at `starts`. */
function endOf(start: number, starts: readonly number[]): number {
  const sorted = [...new Set(starts)].sort((a, b) => a - b);
  const next = sorted.find((one) => one > start);
  if (next !== undefined) return next - 1;
  const gap = sorted.length > 1 ? sorted[sorted.length - 1] - sorted[sorted.length - 2] : 86_400_000;
  return start + gap - 1;
}

/** A filter in words. */
export function filterText(filter: Filter, type: string): string {
  if ("values" in filter) {
    const names = filter.values.map((value) => value === null ? "NULL" : String(value));
    return `${filter.column}: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}`;
  }
  const text = (value: number | string): string => kindOf(type) === "time" && typeof value === "number"
    ? new Date(value).toISOString().replace("T00:00:00.000Z", "").replace("T", " ").replace(/(:\d\d)\.\d+Z$/, "$1").replace(/ 23:59:59$/, "")
    : typeof value === "number" ? String(Number(value.toPrecision(6))) : value;
  return `${filter.column}: ${text(filter.low)} to ${text(filter.high)}`;
}
