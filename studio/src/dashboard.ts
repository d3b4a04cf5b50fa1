// The strip of pinned charts. A range or bars chosen in one panel filter the queries of the others, which then run again.

import { filterOf, filterText } from "./brush";
import { Chart, type Selection } from "./chart/chart";
import type { Choices } from "./chart/model";
import type { Connection } from "./connection";
import { button, el } from "./dom";
import type { Filter } from "./messages";
import { ChartRows } from "./result";
import { Run } from "./run";

interface Brushed {
  filter: Filter;
  text: string;
}

class Panel {
  readonly root: HTMLElement;
  readonly chart: Chart;
  brushed: Brushed | null = null;
  private run: Run | null = null;
  private shown: Run | null = null;
  private readonly rows = new ChartRows(() => this.refresh());
  private readonly bar = el("div", { class: "panel-progress" });
  private readonly state = el("p", { class: "panel-state", "aria-live": "polite" });
  private ran = "";

  constructor(
    private readonly connection: Connection, readonly name: string, readonly sql: string, choices: Choices,
    title: string, private readonly close: (panel: Panel) => void, selected: (panel: Panel, selection: Selection | null) => void,
  ) {
    this.chart = new Chart(title);
    this.chart.onSelect = (selection) => selected(this, selection);
    this.root = el("article", { class: "panel", "data-panel": name, "aria-label": title },
      el("div", { class: "panel-head" }, el("h3", { title: sql }, title),
        button(`remove ${title} from the dashboard`, () => this.close(this), { name: "close", kind: "bare" })),
      this.bar, this.chart.root, this.state);
    this.choices = choices;
  }

  private choices: Choices | null;

  start(filters: Brushed[]): void {
    const wanted = JSON.stringify(filters.map(({ filter }) => filter));
    if (wanted === this.ran && this.run && !this.run.fault) return;
    this.ran = wanted;
    this.state.replaceChildren(...filters.map(({ text }) => el("span", { class: "chip" }, text)));
    this.root.dataset.filters = wanted;
    const run = new Run(this.connection, {
      op: "run", sql: this.sql, progressive: true, filters: filters.map(({ filter }) => filter), panel: this.name,
    }, (changed) => this.changed(changed));
    this.run = run;
  }

  private changed(run: Run): void {
    if (run !== this.run) return;
    this.bar.style.setProperty("--progress", String(run.isOver ? 1 : run.snapshot?.progress ?? 0));
    this.bar.classList.toggle("over", run.isOver);
    this.root.dataset.state = run.state;
    if (run.fault) this.state.replaceChildren(el("span", { class: "fault-message" }, run.fault.message));
    if (run.head) this.shown = run;
    for (const note of run.state === "done" ? run.done?.notes ?? [] : []) {
      if (note.includes("changes nothing")) this.state.append(el("span", { class: "quiet" }, note));
    }
    this.refresh();
  }

  private refresh(): void {
    const run = this.shown;
    const rows = run && this.rows.of(run);
    if (!run || !rows || run.columns.length === 0) return;
    if (this.chart.model === null && this.choices) {
      this.chart.show({ columns: run.columns, rows, total: run.total, isFinal: run.isFinal });
      const { choices } = this;
      this.choices = null;
      this.chart.choose(choices);
    } else this.chart.show({ columns: run.columns, rows, total: run.total, isFinal: run.isFinal });
    this.root.dataset.final = String(run.isFinal);
  }

  brush(selection: Selection | null): void {
    const columns = this.shown?.columns ?? [];
    const filter = filterOf(this.chart, selection, columns, this.sql);
    const x = this.chart.model?.x ?? -1;
    this.brushed = filter && { filter, text: filterText(filter, x < 0 ? "" : columns[x].type) };
  }

  stop(): void {
    this.run?.stop();
  }
}

export class Dashboard {
  readonly root: HTMLElement;
  private readonly strip = el("div", { class: "panels" });
  private readonly panels: Panel[] = [];

  constructor(private readonly connection: Connection) {
    this.root = el("section", { class: "dashboard", "aria-label": "pinned charts", hidden: true }, this.strip);
  }

  pin(sql: string, choices: Choices, title: string): void {
    // The server keeps a result for each name of a panel: one that was closed gives its name to the next.
    const names = new Set(this.panels.map(({ name }) => name));
    let number = 1;
    while (names.has(`panel-${number}`)) number++;
    const panel = new Panel(this.connection, `panel-${number}`, sql, choices, title,
      (closed) => this.remove(closed), (chosen, selection) => this.brush(chosen, selection));
    this.panels.push(panel);
    this.strip.append(panel.root);
    this.root.hidden = false;
    panel.start(this.filtersFor(panel));
    panel.root.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** The filters of all panels but the one itself: a brush leaves its own chart as it is. */
  private filtersFor(panel: Panel): Brushed[] {
    return this.panels.flatMap((other) => other !== panel && other.brushed ? [other.brushed] : []);
  }

  private brush(chosen: Panel, selection: Selection | null): void {
    chosen.brush(selection);
    for (const panel of this.panels) if (panel !== chosen) panel.start(this.filtersFor(panel));
  }

  private remove(panel: Panel): void {
    panel.stop();
    this.panels.splice(this.panels.indexOf(panel), 1);
    panel.root.remove();
    this.root.hidden = this.panels.length === 0;
    if (panel.brushed) for (const other of this.panels) other.start(this.filtersFor(other));
  }

  /** After the connection was lost: everything again. */
  again(): void {
    for (const panel of this.panels) panel.start(this.filtersFor(panel));
  }
}
