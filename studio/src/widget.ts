// The widget of notebooks, by anywidget's protocol: the studio's table and chart of a query that settles. `snapshot` has
// the rows as an Arrow IPC stream, `about` what they are; `stop` and `finish` go back as messages.

import { Chart } from "./chart/chart";
import { button, el } from "./dom";
import { Rows } from "./frame";
import type { ColumnInfo } from "./messages";
import { count, seconds, short } from "./values";
import { Grid, type Source } from "./table/grid";
import chartStyle from "./style/chart.css";
import colours from "./style/colours.css";
import dark from "./style/dark.css";
import tableStyle from "./style/table.css";
import ownStyle from "./widget.css";

interface About {
  columns: ColumnInfo[];
  progress: number;
  rows_read: number;
  elapsed: number;
  is_final: boolean;
}

interface Model {
  get(name: "snapshot"): DataView | Uint8Array | null;
  get(name: "about"): About | null;
  on(event: string, act: () => void): void;
  off(event: string, act: () => void): void;
  send(content: unknown): void;
}

/** Rows that are all here. */
class Whole implements Source {
  constructor(readonly columns: readonly ColumnInfo[], private readonly rows: Rows, readonly isFinal: boolean) {}

  get total(): number {
    return this.rows.length;
  }

  row(index: number): readonly [Rows, number] {
    return [this.rows, index];
  }

  want(): void {}

  fetch(): Promise<{ rows: Rows }> {
    return Promise.resolve({ rows: this.rows });
  }
}

/** Whether the notebook is dark: what it says itself, then its background, then the system. */
function isDark(): boolean {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark");
  const colour = /rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?/.exec(getComputedStyle(document.body).backgroundColor);
  if (colour && colour[4] !== "0") return Number(colour[1]) + Number(colour[2]) + Number(colour[3]) < 380;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function sheet(text: string): CSSStyleSheet {
  const made = new CSSStyleSheet();
  made.replaceSync(text);
  return made;
}

function render({ model, el: place }: { model: Model; el: HTMLElement }): () => void {
  const host = el("div");
  const shadow = host.attachShadow({ mode: "open" });
  const styles = [colours, tableStyle, chartStyle, ownStyle];
  if (isDark()) styles.splice(1, 0, dark.replace(":root", ":host"));
  shadow.adoptedStyleSheets = styles.map(sheet);

  const chart = new Chart("chart of the result");
  const grid = new Grid("result");
  const text = el("span", { class: "widget-text", role: "status" });
  const bar = el("div", { class: "widget-progress", role: "progressbar", "aria-label": "part of the input that is read" });
  const error = el("p", { class: "widget-error", role: "alert", hidden: true });
  const chartBox = el("div", { class: "widget-chart" }, chart.root);
  const tableBox = el("div", { class: "widget-table" }, grid.root);
  const stop = button("stop here: the answer stands as it is", () => model.send({ type: "stop" }), { text: "Stop" });
  const finish = button("skip to the exact answer", () => model.send({ type: "finish" }), { text: "Exact" });
  const toggle = (label: string, box: HTMLElement): HTMLButtonElement => {
    const made = button(`show or hide the ${label.toLowerCase()}`, () => {
      box.hidden = !box.hidden;
      made.setAttribute("aria-pressed", String(!box.hidden));
    }, { text: label });
    made.setAttribute("aria-pressed", "true");
    return made;
  };
  const root = el("div", { class: "widget" },
    el("div", { class: "widget-bar" }, stop, finish, text, el("span", { class: "stretch" }), toggle("Chart", chartBox), toggle("Table", tableBox)),
    bar, error, chartBox, tableBox);
  shadow.append(root);
  place.append(host);

  const update = (): void => {
    const about = model.get("about");
    const bytes = model.get("snapshot");
    if (!about?.columns || !bytes || bytes.byteLength === 0) return;
    root.classList.toggle("final", about.is_final);
    stop.hidden = finish.hidden = about.is_final;
    bar.style.setProperty("--progress", String(about.progress));
    bar.setAttribute("aria-valuenow", String(Math.round(about.progress * 100)));
    try {
      // Arrow's buffers are read where they lie only at multiples of 8: the kernel's message may put them elsewhere.
      const rows = Rows.read(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice(), about.columns);
      text.textContent = about.is_final ? `exact, ${count(rows.length)} row${rows.length === 1 ? "" : "s"}, ${seconds(about.elapsed)}`
        : `${Math.floor(about.progress * 100)}% of the input, ${short(about.rows_read)} rows, ${seconds(about.elapsed)}`;
      grid.show(new Whole(about.columns, rows, about.is_final));
      chart.show({ columns: about.columns, rows, total: rows.length, isFinal: about.is_final });
      chartBox.classList.toggle("none", chart.model === null);
      error.hidden = true;
    } catch (problem) {
      error.textContent = `The snapshot cannot be read: ${problem instanceof Error ? problem.message : String(problem)}`;
      error.hidden = false;
    }
  };
  // `about` and `snapshot` may come in one message: one drawing is enough.
  let waits = false;
  const later = (): void => {
    if (waits) return;
    waits = true;
    queueMicrotask(() => {
      waits = false;
      update();
    });
  };
  model.on("change:snapshot", later);
  model.on("change:about", later);
  update();
  return () => {
    model.off("change:snapshot", later);
    model.off("change:about", later);
  };
}

export default { render };
