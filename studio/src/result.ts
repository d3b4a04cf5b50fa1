// The pane of the result: the table, the chart or both, and the choices of the chart.

import { Chart } from "./chart/chart";
import { refreshControls } from "./chart/controls";
import { button, el } from "./dom";
import { Rows } from "./frame";
import type { Run } from "./run";
import { Grid } from "./table/grid";

const CHART_ROWS = 10_000;

export type View = "table" | "chart" | "both";

/** The rows that the chart of a run shows: the first 1,000, and up to 10,000 once they have come. */
export class ChartRows {
  private more: { run: number; number: number; rows: Rows } | null = null;
  private waits = false;

  constructor(private readonly came: () => void) {}

  of(run: Run): Rows | null {
    const head = run.head;
    if (!head || run.total <= head.length) return head;
    if (this.more?.run !== run.id) this.more = null;
    if (this.more?.number !== run.number && !this.waits && (run.isOver || run.state === "paused" || this.more === null)) {
      this.waits = true;
      void run.fetch(0, CHART_ROWS).then(({ rows, number }) => {
        this.more = { run: run.id, number, rows };
        this.waits = false;
        this.came();
      }, () => {
        this.waits = false;
      });
    }
    return this.more?.rows ?? head;
  }
}

export class ResultPane {
  readonly root: HTMLElement;
  readonly grid = new Grid("result");
  readonly chart = new Chart("chart of the result");
  onPin: (() => void) | null = null;
  private run: Run | null = null;
  private readonly chartRows = new ChartRows(() => this.refreshChart());
  private readonly controls = el("div", { class: "chart-controls" });
  private readonly tabs: HTMLElement;
  private readonly views: HTMLElement;
  private readonly message = el("p", { class: "result-message", "aria-live": "polite" });
  private readonly summary = el("span", { class: "quiet" });
  private readonly pinButton: HTMLButtonElement;

  constructor() {
    this.pinButton = button("pin this chart to the dashboard", () => this.onPin?.(), { name: "pin", text: "Pin", kind: "small pin" });
    this.pinButton.disabled = true;
    const tab = (view: View, text: string): HTMLButtonElement =>
      el("button", { type: "button", role: "tab", "data-view": view, click: () => this.view(view) }, text);
    this.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "result" }, tab("table", "Table"), tab("chart", "Chart"), tab("both", "Both"));
    this.views = el("div", { class: "result-views" },
      el("div", { class: "result-chart" }, el("div", { class: "bar chart-bar" }, this.controls, this.pinButton), this.chart.root),
      el("div", { class: "result-table" }, this.grid.root));
    this.root = el("section", { class: "pane result-pane", "aria-label": "result" },
      el("div", { class: "bar" }, el("h2", {}, "Result"), this.tabs, this.summary), this.message, this.views);
    this.message.textContent = "Run a query to see its result here: Ctrl+Enter, or Cmd+Enter on a Mac.";
    this.views.hidden = true;
    this.view(window.innerHeight >= 800 ? "both" : "table");
    this.chart.onModel = () => this.refreshControls();
  }

  view(view: View): void {
    this.views.dataset.view = view;
    for (const tab of this.tabs.querySelectorAll("button")) tab.setAttribute("aria-selected", String(tab.dataset.view === view));
  }

  /** Shows a run, or the same one after it has changed. */
  show(run: Run): void {
    const isNew = run !== this.run;
    this.run = run;
    // The result before stands until the new one has rows: nothing flickers.
    if (isNew && run.head === null && !run.isOver) {
      this.root.classList.add("stale");
      return;
    }
    if (run.head === null && !run.isOver) return;
    this.root.classList.toggle("stale", false);
    const hasRows = run.columns.length > 0 && run.head !== null;
    this.views.hidden = !hasRows;
    this.message.textContent = hasRows ? "" : run.done?.message ?? (run.state === "done" ? "Done." : run.state === "stopped"
      ? "Stopped before the first rows." : "No result: the query failed.");
    this.grid.show(hasRows ? run : null);
    this.summary.textContent = hasRows ? `${run.total.toLocaleString("en-US")} row${run.total === 1 ? "" : "s"}, `
      + `${run.columns.length} column${run.columns.length === 1 ? "" : "s"}` : "";
    this.root.dataset.final = String(run.isFinal);
    this.refreshChart();
  }

  refreshChart(): void {
    const run = this.run;
    const rows = run && run.columns.length ? this.chartRows.of(run) : null;
    this.chart.show(run && rows ? { columns: run.columns, rows, total: run.total, isFinal: run.isFinal } : null);
  }

  private refreshControls(): void {
    refreshControls(this.controls, this.chart, this.run?.columns ?? [], this.run?.total === 1);
    this.pinButton.disabled = this.chart.model === null;
  }
}
