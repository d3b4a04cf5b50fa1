// Scales and their ticks. A scale of settling values stays as it is until the data leave it or fill less than half.

export interface Domain {
  min: number;
  max: number;
}

/** Round numbers in the range, about as many as wanted. */
export function ticks({ min, max }: Domain, wanted: number): number[] {
  const raw = (max - min) / Math.max(1, wanted);
  if (!(raw > 0) || !Number.isFinite(raw)) return [min];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999) ?? 10 * power;
  const found: number[] = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= max + step * 1e-9 && found.length < 100; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

/** The range widened to round numbers. */
export function nice({ min, max }: Domain, wanted = 5): Domain {
  if (min === max) {
    const around = Math.abs(min) * 0.1 || 1;
    return { min: min - around, max: max + around };
  }
  const found = ticks({ min, max }, wanted);
  const step = found.length > 1 ? found[1] - found[0] : max - min;
  return { min: Math.floor(min / step + 1e-9) * step, max: Math.ceil(max / step - 1e-9) * step };
}

/** A y scale that holds the values, and their bounds as far as these do not dwarf the values. */
export function wantedDomain(
  points: Iterable<{ y: number; low: number | null; high: number | null }>, fromZero: boolean,
): Domain | null {
  let min = Infinity;
  let max = -Infinity;
  let low = Infinity;
  let high = -Infinity;
  for (const point of points) {
    min = Math.min(min, point.y);
    max = Math.max(max, point.y);
    low = Math.min(low, point.low ?? point.y);
    high = Math.max(high, point.high ?? point.y);
  }
  if (min > max) return null;
  const isPositive = min >= 0;
  const isNegative = max <= 0;
  if (fromZero || (isPositive && min < max * 0.35) || (isNegative && max > min * 0.35)) {
    min = Math.min(min, 0);
    max = Math.max(max, 0);
  }
  const room = (max - min || Math.abs(max) || 1) * 0.75;
  low = Math.max(Math.min(low, min), min - room);
  high = Math.min(Math.max(high, max), max + room);
  if (isPositive && low < 0 && min >= 0) low = Math.min(0, min);
  if (isNegative && high > 0 && max <= 0) high = Math.max(0, max);
  return { min: low, max: high };
}

/** The scale for the wanted range, after that of the snapshot before. */
export function keep(before: Domain | null, wanted: Domain): Domain {
  const next = nice(wanted);
  if (!before || wanted.min < before.min || wanted.max > before.max) return next;
  return next.max - next.min < (before.max - before.min) * 0.5 ? next : before;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (n: number): string => String(n).padStart(2, "0");

/** Times at which the calendar turns, with what they are called. */
export function timeTicks({ min, max }: Domain, wanted: number): { at: number; text: string }[] {
  const raw = (max - min) / Math.max(1, wanted);
  const found: { at: number; text: string }[] = [];
  if (!(raw > 0)) return [{ at: min, text: new Date(min).toISOString().slice(0, 10) }];
  if (raw > 20 * DAY) {
    const months = raw / (30.4 * DAY);
    const step = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((one) => one >= months * 0.9) ?? 2400;
    const start = new Date(min);
    let month = Math.floor((start.getUTCFullYear() * 12 + start.getUTCMonth()) / step) * step;
    for (; found.length < 60; month += step) {
      const date = new Date(0);
      date.setUTCFullYear(Math.floor(month / 12), ((month % 12) + 12) % 12, 1);
      const at = date.getTime();
      if (at > max || Number.isNaN(at)) break;
      const isYear = date.getUTCMonth() === 0;
      if (at >= min) found.push({ at, text: isYear || step >= 12 ? String(date.getUTCFullYear()) : MONTHS[date.getUTCMonth()] });
    }
    if (found.length && !found.some(({ text }) => /^\d+$/.test(text))) {
      found[0].text += ` ${new Date(found[0].at).getUTCFullYear()}`;
    }
    return found;
  }
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE,
    2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
  const step = steps.find((one) => one >= raw * 0.9) ?? 28 * DAY;
  const offset = step >= 7 * DAY ? 4 * DAY : 0; // weeks begin on Monday; 1970-01-01 was a Thursday
  for (let at = Math.ceil((min - offset) / step) * step + offset; at <= max && found.length < 60; at += step) {
    const date = new Date(at);
    const isMidnight = at % DAY === 0;
    const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
    const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
    const text = isMidnight ? day : step >= MINUTE ? clock
      : step >= SECOND ? `${clock}:${two(date.getUTCSeconds())}`
        : `:${two(date.getUTCSeconds())}.${String(date.getUTCMilliseconds()).padStart(3, "0")}`;
    found.push({ at, text });
  }
  // Clock times alone do not say which day it is, and days not which year.
  if (found.length && step >= DAY) found[0].text += ` ${new Date(found[0].at).getUTCFullYear()}`;
  else if (found.length && !found.some(({ at }) => at % DAY === 0) && max > 2 * DAY) {
    const date = new Date(found[0].at);
    found[0].text = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${found[0].text}`;
  }
  return found;
}
