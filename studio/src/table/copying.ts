// The chosen cells as text: tabs between columns, the full values, nothing for NULL.

import type { Rows } from "../frame";
import type { Source } from "./grid";

/** A rectangle of cells, from the one that was chosen first. */
export interface Choice {
  row: number;
  column: number;
  toRow: number;
  toColumn: number;
}

const MOST_ROWS = 50_000;

function span(from: number, to: number): [number, number] {
  return from <= to ? [from, to] : [to, from];
}

function line(rows: Rows, row: number, [first, last]: [number, number]): string {
  const cells: string[] = [];
  for (let column = first; column <= last; column++) {
    const text = rows.columns[column].text(row) ?? "";
    cells.push(/[\t\n"]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  }
  return cells.join("\t");
}

function heading(source: Source, choice: Choice): string[] {
  const [first, last] = span(choice.column, choice.toColumn);
  return choice.row === choice.toRow && first === last ? []
    : [source.columns.slice(first, last + 1).map(({ name }) => name).join("\t")];
}

export const copied = {
  contains(choice: Choice, row: number, column: number): boolean {
    const [top, bottom] = span(choice.row, choice.toRow);
    const [left, right] = span(choice.column, choice.toColumn);
    return row >= top && row <= bottom && column >= left && column <= right;
  },

  /** The text, if all of its rows are here. More than one cell has the names of the columns above. */
  now(source: Source, choice: Choice): string | null {
    const lines = heading(source, choice);
    const [first, last] = span(choice.row, choice.toRow);
    if (last - first >= MOST_ROWS) return null;
    for (let index = first; index <= last; index++) {
      const found = source.row(index);
      if (!found) return null;
      lines.push(line(found[0], found[1], span(choice.column, choice.toColumn)));
    }
    return lines.join("\n");
  },

  /** The text of up to 50,000 rows, asked for in one piece. */
  async later(source: Source, choice: Choice): Promise<string> {
    const lines = heading(source, choice);
    const [first, last] = span(choice.row, choice.toRow);
    const { rows } = await source.fetch(first, Math.min(last - first + 1, MOST_ROWS));
    for (let row = 0; row < rows.length; row++) lines.push(line(rows, row, span(choice.column, choice.toColumn)));
    return lines.join("\n");
  },
};
