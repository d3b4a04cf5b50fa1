// A chart that settles: bars with error bars, lines with bands, points; a range or bars of it can be chosen, which the
// page turns into a filter. Drawn as SVG, so that the page's colours, screen readers and tests see its marks.

import { el, perFrame, svg } from "../dom";
import type { Rows } from "../frame";
import type { ColumnInfo } from "../messages";
import { count, roundedForReading, short, widthText } from "../values";
import { drawBars, drawFigures, drawLines, drawPoints, type Area, type Mark } from "./marks";
import { axes } from "./axes";
import { makeModel, NO_CHOICES, NoChart, type Choices, type Model, type Point } from "./model";
import { keep, wantedDomain, type Domain } from "./scale";

/** What is chosen in a chart: a range of x, or some of the categories. */
export type Selection =
  | { kind: "range"; low: number; high: number }
  | { kind: "categories"; labels: ReadonlySet<string> };

export interface Shown {
  columns: readonly ColumnInfo[];
  rows: Rows;
  total: number;
  isFinal: boolean;
}

export class Chart {
  readonly root: HTMLElement;
  choices: Choices = { ...NO_CHOICES };
  model: Model | null = null;
  selection: Selection | null = null;
  onSelect: ((selection: Selection | null) => void) | null = null;
  onModel: (() => void) | null = null;

  private readonly frame = el("div", { class: "chart-frame" });
  private readonly note = el("p", { class: "chart-note" });
  private readonly legend = el("div", { class: "chart-legend" });
  private readonly tip = el("div", { class: "chart-tip", hidden: true, role: "status" });
  private shown: Shown | null = null;
  private signature = "";
  private domain: Domain | null = null;
  private xDomain: Domain | null = null;
  private area: Area | null = null;
  private marks: Mark[] = [];
  private focused = -1;
  private readonly draw = perFrame(() => this.render());

  constructor(private readonly label: string) {
    this.root = el("div", { class: "chart" }, this.legend, this.frame, this.note, this.tip);
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  show(shown: Shown | null): void {
    this.shown = shown;
    const signature = shown ? JSON.stringify(shown.columns) : "";
    if (signature !== this.signature) {
      this.signature = signature;
      this.choices = { ...NO_CHOICES };
      this.select(null, true);
      this.forgetScales();
    }
    this.make();
  }

  choose(choices: Partial<Choices>): void {
    this.choices = { ...this.choices, ...choices };
    this.select(null);
    this.forgetScales();
    this.make();
  }

  private forgetScales(): void {
    this.domain = null;
    this.xDomain = null;
    this.model = null;
    this.focused = -1;
  }

  private make(): void {
    const shown = this.shown;
    const before = this.model;
    this.model = null;
    this.note.textContent = "";
    if (shown && shown.rows.length > 0) {
      try {
        this.model = makeModel(shown.columns, shown.rows, this.choices, shown.isFinal ? null : before?.categories ?? null);
        const left = this.model.leftOut ? "Not all series or categories are shown. " : "";
        this.note.textContent = left + (shown.total > shown.rows.length
          ? `The first ${count(shown.rows.length)} of ${count(shown.total)} rows.` : "");
      } catch (error) {
        if (!(error instanceof NoChart)) throw error;
        this.note.textContent = error.message;
      }
    }
    if (this.model && this.model.kind !== before?.kind) this.domain = this.xDomain = null;
    this.onModel?.();
    this.draw();
  }

  // --- drawing

  private render(): void {
    const { model, shown } = this;
    const width = this.frame.clientWidth;
    const height = this.frame.clientHeight;
    this.legend.replaceChildren();
    if (!model || !shown || width < 60 || height < 40) {
      this.frame.replaceChildren();
      return;
    }
    if (model.kind === "figures") {
      this.frame.replaceChildren(drawFigures(shown.columns, shown.rows, shown.isFinal));
      this.frame.dataset.kind = model.kind;
      return;
    }
    const wanted = wantedDomain(model.series.flatMap(({ points }) => points), model.kind === "bars");
    if (!wanted) {
      this.frame.replaceChildren();
      return;
    }
    this.domain = keep(this.domain, wanted);
    if (model.xType !== "category") this.xDomain = this.keepX(model);
    const area = axes(model, this.domain, this.xDomain, width, height, {
      x: model.x < 0 ? "row" : shown.columns[model.x].name, y: shown.columns[model.y].name,
    });
    this.area = area;
    const chosen = (point: Point): boolean | null => this.isChosen(point);
    const draw = { bars: drawBars, line: drawLines, points: drawPoints }[model.kind];
    const { nodes, marks } = draw(model, area, shown.isFinal, chosen);
    this.marks = marks;
    const brush = svg("rect", { class: "brush" });
    const picture = svg("svg", {
      class: "chart-picture", width, height: area.height, role: "application", tabindex: 0,
      "aria-roledescription": "chart", "aria-label": this.describe(model, shown),
    }, ...area.nodes, svg("g", { class: "marks" }, ...nodes), brush, svg("g", { class: "cursor" }));
    this.drawBrush(brush);
    this.listen(picture);
    const hadFocus = this.frame.contains(this.frame.ownerDocument.activeElement)
      || (this.frame.getRootNode() as ShadowRoot).activeElement === this.frame.firstElementChild && this.frame.firstElementChild !== null;
    const scrolled = this.frame.scrollTop;
    this.frame.replaceChildren(picture);
    this.frame.scrollTop = scrolled;
    if (hadFocus) picture.focus({ preventScroll: true });
    this.frame.dataset.kind = model.kind;
    this.frame.dataset.domain = `${this.domain.min} ${this.domain.max}`;
    if (model.series.length > 1) {
      this.legend.replaceChildren(...model.series.map(({ name }, place) =>
        el("span", { class: "legend-entry" }, el("i", { class: `swatch series-${place}` }), name ?? "")));
    }
  }

  private keepX(model: Model): Domain {
    let min = Infinity;
    let max = -Infinity;
    for (const { points } of model.series) {
      for (const { x } of points) {
        min = Math.min(min, x);
        max = Math.max(max, x);
      }
    }
    if (min === max) {
      min -= 1;
      max += 1;
    }
    const before = this.xDomain;
    return before && min >= before.min && max <= before.max && max - min > (before.max - before.min) * 0.5 && !this.shown?.isFinal
      ? before : { min, max };
  }

  private describe(model: Model, shown: Shown): string {
    const points = model.series.reduce((sum, { points }) => sum + points.length, 0);
    const x = model.x < 0 ? "row" : shown.columns[model.x].name;
    return `${this.label}: ${model.kind} of ${shown.columns[model.y].name} by ${x}, ${points} values`
      + `${shown.isFinal ? "" : ", still settling"}. Arrow keys go from value to value, Enter chooses one, Escape clears.`;
  }

  // --- choosing

  private isChosen(point: Point): boolean | null {
    const selection = this.selection;
    if (!selection) return null;
    return selection.kind === "categories" ? selection.labels.has(point.label)
      : point.x >= selection.low && point.x <= selection.high;
  }

  select(selection: Selection | null, silently = false): void {
    if (selection === null && this.selection === null) return;
    this.selection = selection;
    this.draw();
    if (!silently) this.onSelect?.(selection);
  }

  private drawBrush(brush: SVGRectElement): void {
    const { area, selection } = this;
    if (!area || selection?.kind !== "range") return;
    const [from, to] = [area.xAt(selection.low), area.xAt(selection.high)];
    brush.setAttribute("x", String(Math.min(from, to)));
    brush.setAttribute("width", String(Math.max(2, Math.abs(to - from))));
    brush.setAttribute("y", String(area.top));
    brush.setAttribute("height", String(area.bottom - area.top));
  }

  private listen(picture: SVGSVGElement): void {
    picture.addEventListener("pointermove", (event) => this.hover(this.nearest(event), picture));
    picture.addEventListener("pointerleave", () => this.hover(-1, picture));
    picture.addEventListener("dblclick", () => this.select(null));
    picture.addEventListener("pointerdown", (event) => this.press(event, picture));
    picture.addEventListener("keydown", (event) => this.key(event, picture));
    picture.addEventListener("blur", () => this.hover(-1, picture));
    if (this.focused >= 0) this.hover(this.focused, picture);
  }

  private local(event: MouseEvent): { x: number; y: number } {
    const box = this.frame.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top + this.frame.scrollTop };
  }

  private nearest(event: MouseEvent): number {
    const { x, y } = this.local(event);
    let best = -1;
    let distance = Infinity;
    this.marks.forEach((mark, place) => {
      const dx = Math.abs(mark.x - x);
      const dy = Math.abs(mark.y - y);
      const along = this.area?.isSideways ? dy * 1000 + dx : this.model?.kind === "points" ? dx + dy : dx * 1000 + dy;
      if (along < distance) {
        distance = along;
        best = place;
      }
    });
    return best;
  }

  /** Shows what a mark says. */
  private hover(place: number, picture: SVGSVGElement): void {
    const cursor = picture.querySelector(".cursor")!;
    const mark = this.marks[place];
    this.tip.hidden = !mark;
    cursor.replaceChildren();
    if (!mark || !this.area || !this.shown || !this.model) return;
    cursor.append(svg("circle", { cx: mark.x, cy: mark.y, r: 3.5 }));
    const { point, series } = mark;
    const half = point.low !== null && point.high !== null ? (point.high - point.low) / 2 : null;
    const text = half ? `${roundedForReading(point.y, half)} ±${widthText(half)}` : short(point.y) === String(point.y) ? short(point.y)
      : point.y.toLocaleString("en-US", { maximumSignificantDigits: 12 });
    this.tip.replaceChildren();
    this.tip.append(
      el("b", {}, series === null ? point.label : `${point.label} · ${series}`), el("span", {}, text));
    const isUnbounded = !this.shown.isFinal && this.model.hasBounds && half === null;
    if (isUnbounded) this.tip.append(el("span", { class: "quiet" }, "not yet bounded"));
    const left = Math.min(Math.max(mark.x + 12, 0), Math.max(0, this.frame.clientWidth - this.tip.offsetWidth - 4));
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${Math.max(0, mark.y - this.frame.scrollTop - 34 + this.frame.offsetTop)}px`;
  }

  /** A press without a move chooses a bar; a move chooses a range. */
  private press(down: PointerEvent, picture: SVGSVGElement): void {
    const { area, model } = this;
    if (down.button !== 0 || !area || !model || !this.onSelect) return;
    const start = this.local(down);
    const adds = down.ctrlKey || down.metaKey;
    let moved = false;
    const brush = picture.querySelector<SVGRectElement>(".brush")!;
    const move = (event: PointerEvent): void => {
      const now = this.local(event);
      const across = area.isSideways ? Math.abs(now.y - start.y) : Math.abs(now.x - start.x);
      if (!moved && across < 5) return;
      moved = true;
      const [a, b] = area.isSideways ? [start.y, now.y] : [start.x, now.x];
      const [from, to] = [Math.min(a, b), Math.max(a, b)];
      const [along, size] = area.isSideways ? ["y", "height"] : ["x", "width"];
      brush.setAttribute(along, String(from));
      brush.setAttribute(size, String(to - from));
      brush.setAttribute(area.isSideways ? "x" : "y", String(area.isSideways ? area.left : area.top));
      brush.setAttribute(area.isSideways ? "width" : "height",
        String(area.isSideways ? area.right - area.left : area.bottom - area.top));
    };
    const up = (event: PointerEvent): void => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
      const now = this.local(event);
      const [a, b] = area.isSideways ? [start.y, now.y] : [start.x, now.x];
      const [from, to] = [Math.min(a, b), Math.max(a, b)];
      if (model.xType === "category") {
        if (moved) this.selectCategories((at) => area.bandAt(at)[1] > from && area.bandAt(at)[0] < to, false);
        else if (event.detail < 2) this.selectCategories((at) => area.bandAt(at)[0] <= a && area.bandAt(at)[1] >= a, adds);
      } else if (moved) this.select({ kind: "range", low: area.valueAt(from), high: area.valueAt(to) });
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
  }

  private selectCategories(isIn: (place: number) => boolean, adds: boolean): void {
    const hit = this.model!.categories.filter((_, place) => isIn(place));
    if (hit.length === 0) return;
    const labels = new Set(adds && this.selection?.kind === "categories" ? this.selection.labels : []);
    for (const label of hit) {
      if (adds && labels.has(label)) labels.delete(label);
      else labels.add(label);
    }
    this.select(labels.size ? { kind: "categories", labels } : null);
  }

  private key(event: KeyboardEvent, picture: SVGSVGElement): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.select(null);
    else if (event.key === "Enter" && this.marks[this.focused]) {
      const { point } = this.marks[this.focused];
      if (this.model!.xType === "category") this.selectCategories((place) => place === point.x, event.ctrlKey || event.metaKey);
      else if (this.onSelect) {
        const from = this.selection?.kind === "range" ? this.selection : { low: point.x, high: point.x };
        this.select({ kind: "range", low: Math.min(from.low, point.x), high: Math.max(from.high, point.x) });
      }
    } else if (step !== undefined) {
      this.focused = Math.max(0, Math.min(this.focused + step, this.marks.length - 1));
      this.hover(this.focused, picture);
    } else return;
    event.preventDefault();
  }
}
