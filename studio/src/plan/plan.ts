// The pane of the plan: its graph, a step's line, and the plan file to edit, check and run.

import { Code } from "../code";
import { ServerError, type Connection } from "../connection";
import { button, el } from "../dom";
import { FaultLine } from "../fault";
import type { Flow, PlanAnswer, PlanStep } from "../messages";
import { PlanGraph } from "./graph";

export class PlanPane {
  readonly root: HTMLElement;
  readonly graph = new PlanGraph();
  readonly file: Code;
  onRun: ((plan: string) => void) | null = null;
  readonly fault: FaultLine;
  private readonly line = el("pre", { class: "plan-line", hidden: true, "aria-live": "polite" });
  private readonly notes = el("ul", { class: "plan-notes", hidden: true });
  private readonly graphView: HTMLElement;
  private readonly fileView: HTMLElement;
  private readonly tabs: HTMLElement;
  private readonly zoom: HTMLElement;
  private readonly state = el("span", { class: "quiet plan-state" });
  private isEdited = false;
  private asked = 0;

  constructor(private readonly connection: Connection) {
    this.file = new Code({
      label: "plan file", language: "plan", text: "", hint: "Run or plan a query to see its plan file here.",
      run: () => this.onRun?.(this.file.text), changed: () => this.edited(),
    });
    this.fault = new FaultLine((fault) => this.file.goTo(fault));
    this.graphView = el("div", { class: "plan-view", id: "plan-graph-view", role: "tabpanel" }, this.graph.root, this.line, this.notes);
    this.zoom = el("div", { class: "plan-zoom" },
      button("smaller", () => this.graph.zoomBy(1 / 1.2), { text: "−" }),
      button("fit the plan into the pane", () => this.graph.zoomBy(null), { text: "fit" }),
      button("larger", () => this.graph.zoomBy(1.2), { text: "+" }));
    this.fileView = el("div", { class: "plan-view", id: "plan-file-view", role: "tabpanel" },
      el("div", { class: "bar" },
        button("run this plan (Ctrl+Enter)", () => this.onRun?.(this.file.text), { name: "run", text: "Run plan", kind: "primary small" }),
        button("check this plan without running it", () => void this.check(), { text: "Check", kind: "small" }), this.state),
      this.file.root, this.fault.root);
    const tab = (name: "graph" | "file", text: string): HTMLButtonElement =>
      el("button", { type: "button", role: "tab", "data-view": name, "aria-controls": `plan-${name}-view`, click: () => this.view(name) }, text);
    this.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "plan" }, tab("graph", "Graph"), tab("file", "File"));
    this.root = el("section", { class: "pane plan-pane", "aria-label": "plan" },
      el("div", { class: "bar" }, el("h2", {}, "Plan"), this.tabs, el("span", { class: "stretch" }), this.zoom), this.graphView, this.fileView);
    this.view("graph");
    this.graph.onChoose = (step) => this.showLine(step);
  }

  view(name: "graph" | "file"): void {
    this.graphView.hidden = name !== "graph";
    this.fileView.hidden = name !== "file";
    this.zoom.hidden = name !== "graph";
    for (const tab of this.tabs.querySelectorAll("button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
  }

  /** Asks for the plan of a query. What was edited by hand stays until a query is run. */
  async of(sql: string, { isRun = false } = {}): Promise<void> {
    if (this.isEdited && !isRun) return;
    const number = ++this.asked;
    try {
      const answer = await this.connection.ask<PlanAnswer>({ op: "plan", sql });
      if (number !== this.asked || answer.error) return; // the editor of the query shows its errors
      this.graph.show(answer.steps);
      this.showNotes(answer.notes);
      if (answer.file !== null) {
        this.file.replace(answer.file, { quietly: true });
        this.file.setFault(null);
        this.fault.show(null);
        this.isEdited = false;
        this.state.textContent = "";
      }
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
    }
  }

  /** Checks the file; whether it is a plan. */
  async check(): Promise<boolean> {
    const number = ++this.asked;
    try {
      const answer = await this.connection.ask<PlanAnswer>({ op: "plan", plan: this.file.text });
      if (number !== this.asked) return false;
      this.file.setFault(answer.error);
      this.fault.show(answer.error);
      this.state.textContent = answer.error ? "" : "The plan is sound.";
      if (!answer.error) {
        this.graph.show(answer.steps);
        this.showNotes(answer.notes);
      }
      return answer.error === null;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      this.fault.show(error.fault);
      return false;
    }
  }

  showFlow(flow: Flow | null, isRunning: boolean): void {
    this.graph.showFlow(flow, isRunning);
  }

  private edited(): void {
    this.isEdited = true;
    this.state.textContent = "edited";
    this.file.setFault(null);
    this.fault.show(null);
  }

  private showLine(step: PlanStep | null): void {
    this.line.hidden = step === null;
    this.line.textContent = step?.text ?? "";
    this.file.nameLine(step?.line ?? null);
  }

  private showNotes(notes: readonly string[]): void {
    this.notes.hidden = notes.length === 0;
    this.notes.replaceChildren(...notes.map((note) => el("li", {}, note)));
  }
}
