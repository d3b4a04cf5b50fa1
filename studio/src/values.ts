// Values of Arrow columns as text, as numbers and as what a filter may hold. The page and the widget show them alike.

import { Precision, Type, type Column } from "@uwdata/flechette";

export type Kind = "number" | "time" | "boolean" | "text";

/** What a column is for tables and charts, by its SQL type. */
export function kindOf(type: string): Kind {
  if (/^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|INT|DOUBLE|FLOAT|REAL|DECIMAL|NUMERIC)\b(?!.*\[)/i.test(type)) return "number";
  if (/^(DATE|TIMESTAMP|TIME)(?!.*\[)/i.test(type)) return "time";
  return /^BOOLEAN$/i.test(type) ? "boolean" : "text";
}

export function isInteger(type: string): boolean {
  return /^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|INT)$/i.test(type);
}

const DAY_MS = 86_400_000;
const two = (n: number): string => String(n).padStart(2, "0");

/** A day, counted from 1970-01-01. */
export function dateText(days: number): string {
  if (Math.abs(days) >= 2147483646) return days > 0 ? "infinity" : "-infinity";
  const date = new Date(days * DAY_MS);
  const year = date.getUTCFullYear();
  if (Number.isNaN(year)) return `day ${days}`;
  const text = `${String(year > 0 ? year : 1 - year).padStart(4, "0")}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  return year > 0 ? text : `${text} (BC)`;
}

/** A time of the day in microseconds. */
export function timeText(us: number): string {
  const seconds = Math.floor(us / 1e6);
  const rest = us - seconds * 1e6;
  const text = `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return rest ? `${text}.${String(rest).padStart(6, "0").replace(/0+$/, "")}` : text;
}

const DAY_US = 86_400_000_000n;
const INFINITE_US = 9223372036854775806n;

/** Microseconds from 1970-01-01 on, exactly. */
export function timestampText(us: bigint, zone: boolean): string {
  if (us >= INFINITE_US) return "infinity";
  if (us <= -INFINITE_US) return "-infinity";
  let days = us / DAY_US;
  let rest = us % DAY_US;
  if (rest < 0n) {
    days -= 1n;
    rest += DAY_US;
  }
  const text = `${dateText(Number(days))} ${timeText(Number(rest))}`;
  return zone ? `${text}+00` : text; // the time zone of a session is UTC
}

/** A number as the command line shows it: the fewest digits that read back as the same DOUBLE (or FLOAT). */
export function doubleText(value: number, isSingle = false): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  let exact = value;
  for (let digits = 1; isSingle && digits <= 9; digits++) {
    exact = Number(value.toPrecision(digits));
    if (Math.fround(exact) === value) break;
  }
  const [digits, exponent] = exact.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const text = Math.abs(exact) >= 1e-6 ? String(exact) : exact.toFixed(20).replace(/0+$/, "");
  return text.includes(".") ? text : `${text}.0`;
}

interface TypeLike {
  typeId: number;
  unit?: number;
  precision?: number;
  timezone?: string | null;
  dictionary?: TypeLike;
}

/** One column of a frame: its values by row. */
export class Values {
  readonly kind: Kind;
  private readonly arrow: TypeLike;
  // Of what comes as a count of some unit: how many microseconds the unit has, as a numerator and a denominator.
  private readonly unit: readonly [bigint, bigint];

  constructor(readonly column: Column<unknown>, readonly type: string) {
    const arrow = column.type as unknown as TypeLike;
    this.arrow = arrow.typeId === Type.Dictionary && arrow.dictionary ? arrow.dictionary : arrow;
    this.kind = kindOf(type);
    this.unit = ([[1_000_000n, 1n], [1000n, 1n], [1n, 1n], [1n, 1000n]] as const)[this.arrow.unit ?? 2] ?? [1n, 1n];
  }

  private microseconds(value: unknown): bigint {
    return (BigInt(value as number | bigint) * this.unit[0]) / this.unit[1];
  }

  isNull(row: number): boolean {
    const value = this.column.at(row);
    return value === null || value === undefined;
  }

  /** The value as text; null is NULL. */
  text(row: number): string | null {
    const value = this.column.at(row);
    if (value === null || value === undefined) return null;
    if (typeof value === "string") return value;
    if (typeof value === "boolean") return value ? "true" : "false";
    switch (this.arrow.typeId) {
      case Type.Date: return dateText(Math.round(Number(value) / DAY_MS));
      case Type.Time: return timeText(Number(this.microseconds(value)));
      case Type.Timestamp: return timestampText(this.microseconds(value), Boolean(this.arrow.timezone));
    }
    if (typeof value === "bigint") return value.toString();
    if (typeof value === "number") {
      if (this.arrow.typeId !== Type.Float) return String(value);
      return doubleText(value, this.arrow.precision === Precision.SINGLE);
    }
    if (value instanceof Uint8Array) {
      return Array.from(value, (byte) => byte > 31 && byte < 127 && byte !== 92 && byte !== 39 && byte !== 34 ? String.fromCharCode(byte)
        : `\\x${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
    }
    return JSON.stringify(value, (_, part: unknown) => typeof part === "bigint" ? part.toString() : part);
  }

  /** The value as a number for a chart: of times milliseconds from 1970 on (of TIME from midnight on). */
  number(row: number): number | null {
    const value = this.column.at(row);
    if (value === null || value === undefined) return null;
    if (this.arrow.typeId === Type.Timestamp || this.arrow.typeId === Type.Time) {
      const us = this.microseconds(value);
      return us >= INFINITE_US || us <= -INFINITE_US ? null : Number(us) / 1000;
    }
    const number = Number(value);
    return Number.isFinite(number) ? number : null;
  }

  /** The value for a filter: a number where that is exact, otherwise its text. */
  plain(row: number): number | string | boolean | null {
    const value = this.column.at(row);
    if (value === null || value === undefined) return null;
    if (typeof value === "boolean") return value;
    const exact = typeof value === "bigint" ? Number.isSafeInteger(Number(value)) : typeof value === "number";
    return exact && this.kind === "number" ? Number(value) : this.text(row);
  }
}

/** A whole number for people: 1,234,567. */
export function count(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** A large number in few letters: 1.2 M. */
export function short(value: number): string {
  const size = Math.abs(value);
  for (const [from, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]] as const) {
    if (size >= from) {
      const scaled = unit === "k" ? value / 1000 : value / from;
      return `${Number(scaled.toPrecision(Math.abs(scaled) >= 100 ? 3 : 2))} ${unit}`;
    }
  }
  if (Number.isInteger(value)) return count(value);
  return String(Number(value.toPrecision(3)));
}

export function seconds(value: number): string {
  return value < 10 ? `${value.toFixed(2)} s` : value < 60 ? `${value.toFixed(1)} s`
    : `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

/** A width of bounds with two digits. */
export function widthText(width: number): string {
  if (width === 0) return "0";
  if (width >= 1e15 || width < 1e-6) return width.toExponential(1);
  return width < 10 ? width.toPrecision(2) : String(Number(width.toPrecision(2)));
}

/** A value with the digits that its bounds leave it: 1234567.891 within 12000 is 1235000. */
export function roundedTo(value: number, width: number): string {
  const digit = Math.floor(Math.log10(width)) - 1;
  if (!(width > 0) || !Number.isFinite(value) || !Number.isFinite(width) || digit < -12) return plainText(value);
  if (digit < 0) return value.toFixed(-digit);
  const unit = 10 ** digit;
  return plainText(Math.round(value / unit) * unit);
}

function plainText(value: number): string {
  return Number.isInteger(value) && Math.abs(value) < 1e16 ? String(value) : doubleText(value);
}

/** The same with marks between thousands, for charts and figures. */
export function roundedForReading(value: number, width: number): string {
  return roundedTo(value, width).replace(/^(-?\d+)(?=\.|$)/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ","));
}
