// The result as a table that scrolls through millions of rows: only the rows in sight are in the document. Cells are
// chosen with the pointer or the arrow keys, and copied.

import { el, draggable, perFrame } from "../dom";
import type { Rows } from "../frame";
import type { ColumnInfo } from "../messages";
import { kindOf, roundedTo, widthText, count } from "../values";
import { copied, type Choice } from "./copying";

/** Where the grid has its rows from. */
export interface Source {
  readonly columns: readonly ColumnInfo[];
  readonly total: number;
  readonly isFinal: boolean;
  row(index: number): readonly [Rows, number] | null;
  want(first: number, count: number): void;
  fetch(first: number, count: number): Promise<{ rows: Rows }>;
}

const ROW = 26;
// Browsers cut elements off at some 16 or 33 million pixels. What is longer scrolls in proportion.
const MAX_HEIGHT = 8_000_000;
const MIN_WIDTH = 56;
const MAX_WIDTH = 340;

export class Grid {
  readonly root: HTMLElement;
  private readonly header = el("div", { class: "grid-header", role: "row", "aria-rowindex": 1 });
  private readonly body = el("div", { class: "grid-body", role: "rowgroup" });
  private readonly spacer = el("div", { class: "grid-spacer", "aria-hidden": "true" });
  private readonly scroller: HTMLElement;
  private source: Source | null = null;
  private signature = "";
  private widths: number[] = [];
  private measured = ""; // what of the source the widths were made for
  private resized = new Set<number>(); // columns whose width people have chosen
  private gutter = 44;
  private lines: HTMLElement[] = [];
  private top = 0; // the first row in sight, with its fraction
  private choice: Choice | null = null;
  private readonly draw = perFrame(() => this.render());

  constructor(label: string) {
    this.scroller = el("div", {
      class: "grid", role: "grid", tabindex: 0, "aria-label": label, "aria-multiselectable": "true",
    }, el("div", { class: "grid-head", role: "rowgroup" }, this.header), this.body, this.spacer);
    this.root = el("div", { class: "grid-frame" }, this.scroller);
    this.scroller.addEventListener("scroll", () => this.scrolled());
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("pointerdown", (event) => this.press(event));
    this.scroller.addEventListener("copy", (event) => this.copy(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** Shows a source, or the same one after it has changed. The place is kept while the columns are the same. */
  show(source: Source | null): void {
    this.source = source;
    const signature = source ? JSON.stringify(source.columns) : "";
    if (signature !== this.signature) {
      this.signature = signature;
      this.choice = null;
      this.top = 0;
      this.scroller.scrollTop = 0;
      this.scroller.scrollLeft = 0;
      this.widths = [];
      this.measured = "";
      this.resized.clear();
      this.lines = [];
      this.body.replaceChildren();
      this.makeHeader();
    }
    this.draw();
  }

  private get total(): number {
    return this.source?.total ?? 0;
  }

  private get visible(): number {
    return Math.max(1, (this.scroller.clientHeight - ROW) / ROW);
  }

  private get isScaled(): boolean {
    return this.total * ROW > MAX_HEIGHT;
  }

  private get maxTop(): number {
    return Math.max(0, this.total - this.visible);
  }

  // --- scrolling

  private scrolled(): void {
    const place = this.scroller.scrollTop;
    if (!this.isScaled) this.top = place / ROW;
    else if (Math.abs(place - this.placeOf(this.top)) > 1) {
      const range = this.scroller.scrollHeight - this.scroller.clientHeight;
      this.top = range > 0 ? Math.min(1, place / range) * this.maxTop : 0;
    }
    this.draw();
  }

  /** Where the scroll bar stands for a first row. */
  private placeOf(top: number): number {
    if (!this.isScaled) return top * ROW;
    const range = this.scroller.scrollHeight - this.scroller.clientHeight;
    return this.maxTop > 0 ? (top / this.maxTop) * range : 0;
  }

  private moveTo(top: number): void {
    this.top = Math.max(0, Math.min(top, this.maxTop));
    this.scroller.scrollTop = this.placeOf(this.top);
    this.draw();
  }

  private wheel(event: WheelEvent): void {
    // The wheel goes on row by row where a pixel of the scroll bar is many rows.
    if (!this.isScaled || event.deltaY === 0 || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 3 : event.deltaMode === 2 ? this.visible : 1 / ROW;
    this.moveTo(this.top + event.deltaY * unit);
  }

  // --- drawing

  private makeHeader(): void {
    const columns = this.source?.columns ?? [];
    this.header.replaceChildren(
      el("div", { class: "cell gutter", role: "columnheader", "aria-label": "row number" }),
      ...columns.map(({ name, type }, place) => {
        const edge = el("div", { class: "column-edge", "aria-label": `width of ${name}` });
        draggable(edge, "x", () => {
          const width = this.widths[place];
          return (moved) => {
            this.widths[place] = Math.max(MIN_WIDTH, width + moved);
            this.resized.add(place);
            this.layOut();
          };
        });
        return el("div", { class: `cell ${kindOf(type)}`, role: "columnheader", "aria-colindex": place + 2, title: `${name}: ${type}` },
          el("span", { class: "column-name" }, name), el("span", { class: "column-type" }, type.toLowerCase()), edge);
      }));
    this.scroller.setAttribute("aria-colcount", String(columns.length + 1));
  }

  private layOut(): void {
    const columns = `${this.gutter}px ${this.widths.map((width) => `${Math.round(width)}px`).join(" ")}`;
    this.scroller.style.setProperty("--columns", columns);
    const width = this.gutter + this.widths.reduce((sum, one) => sum + one, 0);
    this.scroller.style.setProperty("--width", `${Math.ceil(width)}px`);
  }

  /** Columns are as wide as their names and their first rows; they never become narrower by themselves. */
  private measure(): void {
    const source = this.source!;
    const before = this.widths;
    const letter = 7.6;
    this.widths = source.columns.map(({ name, type }, column) => {
      let letters = Math.max(name.length + type.length * 0.85 + 1, 5);
      for (let index = 0; index < Math.min(source.total, 60); index++) {
        const found = source.row(index);
        if (!found) break;
        const [text, width] = this.cellText(found[0], column, found[1]);
        letters = Math.max(letters, (text ?? "NULL").length + (found[0].hasBounds(column) ? Math.max(width?.length ?? 0, 6) + 2 : 0));
      }
      const width = Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, Math.ceil(letters * letter + 24)));
      return this.resized.has(column) ? before[column] : Math.max(width, before[column] ?? 0);
    });
  }

  private cellText(rows: Rows, column: number, row: number): readonly [text: string | null, width: string | null] {
    const values = rows.columns[column];
    const text = values.text(row);
    if (text === null || this.source!.isFinal || !rows.hasBounds(column)) return [text, null];
    const bounds = rows.bounds(column, row);
    if (bounds === null) return [text, "±?"];
    const half = (bounds[1] - bounds[0]) / 2;
    if (half === 0) return [text, null];
    const number = values.number(row);
    return [number === null ? text : roundedTo(number, half), `±${widthText(half)}`];
  }

  private render(): void {
    const source = this.source;
    const state = source ? `${source.isFinal} ${source.total > 0}` : "";
    if (source && state !== this.measured && source.total > 0 && source.row(0)) {
      this.measure();
      this.measured = state;
    }
    if (source && this.widths.length !== source.columns.length) this.widths = source.columns.map(({ name, type }) =>
      Math.max(MIN_WIDTH, (name.length + type.length) * 7.6 + 32));
    this.gutter = Math.max(44, String(this.total).length * 7.6 + 26);
    this.layOut();
    this.scroller.setAttribute("aria-rowcount", String(this.total + 1));
    this.spacer.style.height = `${Math.min(this.total * ROW, MAX_HEIGHT)}px`;
    this.top = Math.min(this.top, this.maxTop);

    const first = Math.floor(this.top);
    const shown = source ? Math.min(Math.ceil(this.visible) + 1, this.total - first) : 0;
    if (source && shown > 0) source.want(Math.max(0, first - shown), shown * 3);
    while (this.lines.length < shown) {
      const line = el("div", { class: "grid-row", role: "row" },
        el("div", { class: "cell gutter", role: "rowheader" }),
        ...source!.columns.map(({ type }, place) =>
          el("div", { class: `cell ${kindOf(type)}`, role: "gridcell", "aria-colindex": place + 2 },
            el("span", { class: "value" }), el("span", { class: "width" }))));
      this.lines.push(line);
      this.body.append(line);
    }
    while (this.lines.length > shown) this.lines.pop()!.remove();
    // The rows in sight lie in one block that stays where the scroller is; only its fraction of a row moves.
    const offset = this.isScaled ? this.scroller.scrollTop - (this.top - first) * ROW : first * ROW;
    this.body.style.transform = `translateY(${offset}px)`;
    for (let i = 0; i < shown; i++) this.renderLine(this.lines[i], first + i);
  }

  private renderLine(line: HTMLElement, index: number): void {
    const found = this.source!.row(index);
    const settled = found && !this.source!.isFinal ? found[0].isSettled(found[1]) : null;
    line.setAttribute("aria-rowindex", String(index + 2));
    line.dataset.row = String(index);
    line.classList.toggle("waiting", !found);
    line.classList.toggle("odd", index % 2 === 1);
    line.classList.toggle("settled", settled === true);
    const possible = found !== null && !this.source!.isFinal && found[0].isPossible(found[1]);
    line.classList.toggle("possible", possible);
    const gutter = line.firstElementChild as HTMLElement;
    gutter.textContent = count(index + 1);
    gutter.title = possible ? "possible: the row may leave the result, or change its place"
      : settled === true ? "settled: the bounds are equal" : "";
    const chosen = this.choice;
    for (let column = 0; column < this.source!.columns.length; column++) {
      const cell = line.children[column + 1] as HTMLElement;
      const [text, width] = found ? this.cellText(found[0], column, found[1]) : ["", null];
      (cell.firstChild as HTMLElement).textContent = text ?? "NULL";
      (cell.lastChild as HTMLElement).textContent = width;
      cell.classList.toggle("null", text === null);
      cell.classList.toggle("unbounded", width === "±?");
      const isChosen = chosen !== null && copied.contains(chosen, index, column);
      cell.classList.toggle("chosen", isChosen);
      cell.classList.toggle("active", chosen !== null && chosen.row === index && chosen.column === column);
      if (isChosen) cell.setAttribute("aria-selected", "true");
      else cell.removeAttribute("aria-selected");
      if (chosen !== null && chosen.row === index && chosen.column === column) {
        cell.id = "active-cell";
        this.scroller.setAttribute("aria-activedescendant", cell.id);
      } else if (cell.id) cell.removeAttribute("id");
      cell.title = found ? this.about(found[0], column, found[1], text) : "";
    }
  }

  private about(rows: Rows, column: number, row: number, text: string | null): string {
    const full = rows.columns[column].text(row);
    const bounds = this.source!.isFinal ? null : rows.bounds(column, row);
    if (bounds && bounds[0] !== bounds[1]) return `${full}, between ${bounds[0]} and ${bounds[1]}`;
    if (!this.source!.isFinal && rows.hasBounds(column) && !bounds && text !== null) return `${full}, not yet bounded`;
    return full !== null && full.length > 30 ? full.slice(0, 2000) : "";
  }

  // --- choosing and copying

  private cellAt(event: MouseEvent): { row: number; column: number } | null {
    const box = this.scroller.getBoundingClientRect();
    const y = event.clientY - box.top - ROW;
    let x = event.clientX - box.left + this.scroller.scrollLeft - this.gutter;
    if (!this.source || y < 0) return null;
    const row = Math.floor(this.top + y / ROW);
    if (row >= this.total) return null;
    if (x < 0) return { row, column: -1 };
    for (let column = 0; column < this.widths.length; column++) {
      if (x < this.widths[column]) return { row, column };
      x -= this.widths[column];
    }
    return null;
  }

  private press(event: PointerEvent): void {
    const at = this.cellAt(event);
    if (event.button !== 0 || !at || (event.target as Element).closest(".grid-head")) return;
    if (event.clientX > this.scroller.getBoundingClientRect().left + this.scroller.clientWidth) return; // the scroll bar
    const last = this.source!.columns.length - 1;
    if (event.shiftKey && this.choice) this.choice = { ...this.choice, toRow: at.row, toColumn: Math.max(0, at.column) };
    else if (at.column < 0) this.choice = { row: at.row, column: 0, toRow: at.row, toColumn: last };
    else this.choice = { row: at.row, column: at.column, toRow: at.row, toColumn: at.column };
    const whole = at.column < 0;
    const move = (moved: PointerEvent): void => {
      const now = this.cellAt(moved);
      if (!now || !this.choice) return;
      this.choice = { ...this.choice, toRow: now.row, toColumn: whole ? last : Math.max(0, now.column) };
      this.draw();
    };
    const up = (): void => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const columns = this.source?.columns.length ?? 0;
    if (!columns || this.total === 0) return;
    const control = event.ctrlKey || event.metaKey;
    if (control && event.key.toLowerCase() === "a") {
      event.preventDefault();
      this.choice = { row: 0, column: 0, toRow: this.total - 1, toColumn: columns - 1 };
      this.draw();
      return;
    }
    const page = Math.max(1, Math.floor(this.visible) - 1);
    const now = this.choice ?? { row: Math.floor(this.top), column: 0, toRow: 0, toColumn: 0 };
    let row = event.shiftKey ? now.toRow : now.row;
    let column = event.shiftKey ? now.toColumn : now.column;
    switch (event.key) {
      case "ArrowDown": row += this.choice ? 1 : 0; break;
      case "ArrowUp": row -= 1; break;
      case "ArrowRight": column += 1; break;
      case "ArrowLeft": column -= 1; break;
      case "PageDown": row += page; break;
      case "PageUp": row -= page; break;
      case "Home": if (control) row = 0; else column = 0; break;
      case "End": if (control) row = this.total - 1; else column = columns - 1; break;
      case "Escape": this.choice = null; this.draw(); return;
      default: return;
    }
    event.preventDefault();
    row = Math.max(0, Math.min(row, this.total - 1));
    column = Math.max(0, Math.min(column, columns - 1));
    this.choice = event.shiftKey && this.choice ? { ...this.choice, toRow: row, toColumn: column }
      : { row, column, toRow: row, toColumn: column };
    if (row < this.top) this.moveTo(row);
    else if (row >= Math.floor(this.top + this.visible)) this.moveTo(row - Math.floor(this.visible) + 1);
    this.showColumn(column);
    this.draw();
  }

  private showColumn(column: number): void {
    const left = this.widths.slice(0, column).reduce((sum, one) => sum + one, 0);
    const room = this.scroller.clientWidth - this.gutter;
    if (left < this.scroller.scrollLeft) this.scroller.scrollLeft = left;
    else if (left + this.widths[column] > this.scroller.scrollLeft + room) {
      this.scroller.scrollLeft = left + this.widths[column] - room;
    }
  }

  private copy(event: ClipboardEvent): void {
    if (!this.choice || !this.source || !event.clipboardData) return;
    event.preventDefault();
    const text = copied.now(this.source, this.choice);
    if (text !== null) event.clipboardData.setData("text/plain", text);
    // What is not here yet comes in a moment; the page has leave to write to the clipboard after a key press.
    else void copied.later(this.source, this.choice).then((all) => navigator.clipboard.writeText(all));
  }
}
