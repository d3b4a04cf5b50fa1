// Binary frames: a JSON header and an Arrow IPC stream. `Rows` is what table and chart read; the widget makes it of the
// bytes in its traitlet.

import { tableFromIPC } from "@uwdata/flechette";
import type { ColumnInfo } from "./messages";
import { Values } from "./values";

export interface FrameHeader {
  id: number;
  kind: "rows";
  number: number;
  first: number;
  rows: number;
  total: number;
}

/** Consecutive rows of a result, with the bounds of the columns that have them. */
export class Rows {
  private constructor(
    readonly first: number,
    readonly length: number,
    readonly columns: readonly Values[],
    readonly low: readonly (Values | null)[],
    readonly high: readonly (Values | null)[],
    private readonly possible: Values | null,
  ) {}

  /** columns: names and SQL types; those of the stream are called by their position. */
  static read(stream: Uint8Array, columns: readonly ColumnInfo[], first = 0): Rows {
    const table = tableFromIPC(stream, { useBigInt: true, useBigIntTimestamp: true, useMap: false });
    const child = (name: string, type: string): Values | null => {
      const column = table.getChild(name);
      return column ? new Values(column, type) : null;
    };
    const values = columns.map(({ type }, place) => {
      const column = child(String(place), type);
      if (!column) throw new Error(`the frame has no column ${place}`);
      return column;
    });
    return new Rows(first, table.numRows, values, columns.map((_, place) => child(`${place} low`, "DOUBLE")),
      columns.map((_, place) => child(`${place} high`, "DOUBLE")), child("possible", "BOOLEAN"));
  }

  /** Whether a row may leave the result, or change its place in it. */
  isPossible(row: number): boolean {
    return this.possible?.column.at(row) === true;
  }

  hasBounds(column: number): boolean {
    return this.low[column] !== null && this.high[column] !== null;
  }

  /** The bounds of a value: null if it has none yet. */
  bounds(column: number, row: number): readonly [number, number] | null {
    const low = this.low[column]?.number(row) ?? null;
    const high = this.high[column]?.number(row) ?? null;
    return low === null || high === null ? null : [low, high];
  }

  /** Whether every value that has bounds is known exactly; null if the row has no such value. */
  isSettled(row: number): boolean | null {
    let any = false;
    for (let column = 0; column < this.columns.length; column++) {
      if (!this.hasBounds(column)) continue;
      any = true;
      const bounds = this.bounds(column, row);
      if (this.columns[column].isNull(row)) continue;
      if (bounds === null || bounds[0] !== bounds[1]) return false;
    }
    return any ? true : null;
  }
}

export function readFrame(buffer: ArrayBuffer): { header: FrameHeader; stream: Uint8Array } {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as FrameHeader;
  const start = 4 + length;
  // The server pads the header so that Arrow's buffers can be read where they lie.
  return { header, stream: start % 8 ? new Uint8Array(buffer.slice(start)) : new Uint8Array(buffer, start) };
}
