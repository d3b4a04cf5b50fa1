// The choices above a chart: the kind of marks, x, y and series.

import { choice, el } from "../dom";
import type { ColumnInfo } from "../messages";
import { kindOf } from "../values";
import type { Chart } from "./chart";
import type { ChartKind } from "./model";

const KINDS: [ChartKind, string][] = [["bars", "Bars"], ["line", "Line"], ["points", "Points"], ["figures", "Figures"]];

/** Draws the choices for the chart as it is; to be called again when its columns or its model change. */
export function chartControls(chart: Chart, columns: readonly ColumnInfo[], isOneRow: boolean): HTMLElement[] {
  const { model } = chart;
  const places = columns.map(({ name }, place) => [String(place), name] as [string, string]);
  const numbers = places.filter(([place]) => kindOf(columns[Number(place)].type) === "number");
  if (numbers.length === 0) return [];
  const kinds = KINDS.filter(([kind]) => kind !== "figures" || isOneRow);
  return [
    choice("Chart", kinds, model?.kind ?? "bars", (kind) => chart.choose({ kind: kind as ChartKind })),
    ...(model?.kind === "figures" ? [] : [
      choice("x", [["-1", "row"], ...places], String(model?.x ?? -1), (x) => chart.choose({ x: Number(x) })),
      choice("y", numbers, String(model?.y ?? numbers[0][0]), (y) => chart.choose({ y: Number(y) })),
      choice("by", [["none", "none"], ...places.filter(([place]) => Number(place) !== model?.x && Number(place) !== model?.y)],
        model?.by === null || model?.by === undefined ? "none" : String(model.by),
        (by) => chart.choose({ by: by === "none" ? "none" : Number(by) })),
    ]),
  ];
}

/** Replaces the choices unless one of them is being made or nothing has changed. */
export function refreshControls(place: HTMLElement, chart: Chart, columns: readonly ColumnInfo[], isOneRow: boolean): void {
  const state = JSON.stringify([columns, chart.model && [chart.model.kind, chart.model.x, chart.model.y, chart.model.by], isOneRow]);
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  const focused = [...place.querySelectorAll("select")].findIndex((select) => select === document.activeElement);
  place.replaceChildren(...chartControls(chart, columns, isOneRow), el("span", { class: "stretch" }));
  if (focused >= 0) place.querySelectorAll("select")[focused]?.focus();
}
