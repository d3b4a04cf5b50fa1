// The page: puts its panes together and lets them talk. Everything that it knows comes by the connection.

import { Code } from "./code";
import { Connection, ServerError } from "./connection";
import { Dashboard } from "./dashboard";
import { button, draggable, el, settled } from "./dom";
import { FaultLine } from "./fault";
import type { Completions, Fault, Hello, HistoryEntry, JobInfo } from "./messages";
import { PlanPane } from "./plan/plan";
import { ResultPane } from "./result";
import { Run, type Change } from "./run";
import { Sidebar } from "./sidebar";
import { Toolbar } from "./toolbar";

/** The page asks so often which live queries run. */
const JOBS_MS = 1000;

class Studio {
  private readonly connection: Connection;
  private readonly sidebar = new Sidebar();
  private readonly result = new ResultPane();
  private readonly editor: Code;
  private readonly editorFault: FaultLine;
  private readonly toolbar: Toolbar;
  private readonly plan: PlanPane;
  private readonly dashboard: Dashboard;
  private readonly status = el("span", { class: "status", role: "status" }, "connecting");
  private readonly database = el("span", { class: "database" });
  private readonly planButton = button("show or hide the plan", () => this.togglePlan(), { name: "plan", text: "Plan", kind: "bare toggle" });
  private readonly work = el("div", { class: "work" });
  private looking: number | null = null;
  private run: Run | null = null;
  /** The text of the run, for its errors and its panel; and where it began in the editor, if a part of it was run. */
  private ran: { sql: string | null; line: number; column: number } = { sql: "", line: 1, column: 1 };
  private checks = 0;
  private wasConnected = false;

  constructor() {
    this.connection = new Connection((hello) => this.opened(hello), () => this.lost());
    this.editor = new Code({
      label: "SQL", language: "sql", text: "", hint: "SELECT .. FROM ..",
      run: () => this.start(), changed: () => this.edited(), complete: (text, position) => this.complete(text, position),
    });
    this.editorFault = new FaultLine((fault) => this.editor.goTo(fault));
    this.toolbar = new Toolbar({
      run: () => this.start(), stop: () => this.run?.stop(), finish: () => this.run?.finish(),
      pause: () => this.run?.state === "paused" ? this.run.resume() : this.run?.pause(),
    });
    this.plan = new PlanPane(this.connection);
    this.plan.onRun = (plan) => this.startPlan(plan);
    this.dashboard = new Dashboard(this.connection);
    this.sidebar.onInsert = (text) => this.editor.insert(text);
    this.sidebar.onPutBack = (sql) => {
      this.editor.replace(sql);
      this.editor.view.focus();
    };
    this.result.onPin = () => this.pin();
    this.layOut();
  }

  private layOut(): void {
    const editorBox = el("section", { class: "pane editor-pane", "aria-label": "query" }, this.editor.root, this.editorFault.root);
    const across = el("div", { class: "splitter across", "aria-label": "height of the editor" });
    const beside = el("div", { class: "splitter beside", "aria-label": "width of the plan" });
    this.work.append(this.result.root, beside, this.plan.root);
    this.work.dataset.plan = window.innerWidth >= 1080 ? "shown" : "hidden";
    draggable(across, "y", () => {
      const height = editorBox.offsetHeight;
      return (moved) => editorBox.style.setProperty("height", `${Math.max(70, Math.min(height + moved, window.innerHeight * 0.7))}px`);
    });
    draggable(beside, "x", () => {
      const width = this.plan.root.offsetWidth;
      return (moved) => this.work.style.setProperty("--plan-width", `${Math.max(220, Math.min(width - moved, this.work.offsetWidth - 260))}px`);
    });
    const sidebarButton = button("show or hide tables and history", () => {
      const hidden = document.body.classList.toggle("without-sidebar");
      sidebarButton.setAttribute("aria-pressed", String(!hidden));
    }, { name: "menu", kind: "bare toggle" });
    sidebarButton.setAttribute("aria-pressed", "true");
    if (window.innerWidth < 800) sidebarButton.click();
    this.planButton.setAttribute("aria-pressed", String(this.work.dataset.plan === "shown"));
    document.body.append(
      el("header", { class: "top" }, sidebarButton, el("h1", {}, "tsql", el("span", {}, " studio")), this.database,
        el("span", { class: "stretch" }), this.status, this.planButton),
      el("div", { class: "frame" }, this.sidebar.root,
        el("main", {}, editorBox, across, this.toolbar.root, this.work, this.dashboard.root)));
    this.editor.view.focus();
  }

  private togglePlan(): void {
    const shown = this.work.dataset.plan === "shown";
    this.work.dataset.plan = shown ? "hidden" : "shown";
    this.planButton.setAttribute("aria-pressed", String(!shown));
  }

  // --- the connection

  private opened(hello: Hello): void {
    this.status.textContent = hello.read_only ? "read-only" : "";
    this.status.classList.remove("lost");
    this.database.textContent = hello.database ?? "";
    document.title = hello.database ? `${hello.database} · tsql studio` : "tsql studio";
    this.sidebar.showTables(hello.tables);
    this.sidebar.showHistory(hello.history);
    this.editor.setWords(hello.keywords, hello.functions.map(({ name }) => name));
    if (this.wasConnected) this.dashboard.again();
    else if (this.editor.text === "" && hello.history.length === 0 && hello.tables.length > 0) this.suggest(hello);
    this.wasConnected = true;
    document.body.dataset.ready = "true";
    if (this.looking === null) this.lookForJobs();
  }

  /** Live queries are looked for as long as somebody looks at the page. */
  private lookForJobs(): void {
    const look = (): void => {
      if (document.hidden) return;
      void this.connection.ask<{ jobs: JobInfo[] }>({ op: "jobs" }).then(({ jobs }) => this.sidebar.showJobs(jobs), () => undefined);
    };
    this.looking = window.setInterval(look, JOBS_MS);
    look();
  }

  /** A first query, for those who have none yet. */
  private suggest(hello: Hello): void {
    const name = hello.tables[0].name;
    const plain = /^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
    this.editor.replace(`SELECT * FROM ${plain} LIMIT 100`, { quietly: true });
  }

  private lost(): void {
    this.status.textContent = "not connected";
    this.status.classList.add("lost");
  }

  private async complete(text: string, position: number): Promise<{ from: number; items: { label: string; type: string; detail?: string }[] }> {
    try {
      const { start, items } = await this.connection.ask<Completions>({ op: "complete", sql: text, position });
      return { from: start, items: items.map(({ text: label, kind, about }) => ({ label, type: kind, detail: about && about !== label ? `${kind} · ${about}` : kind })) };
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      return { from: position, items: [] };
    }
  }

  // --- editing

  private readonly check = settled(350, () => void this.checkNow());

  private edited(): void {
    this.checks++;
    this.editor.setFault(null);
    this.editorFault.show(null);
    this.check();
  }

  private async checkNow(): Promise<void> {
    const number = this.checks;
    const sql = this.editor.text;
    if (sql.trim() === "") return;
    try {
      const { error } = await this.connection.ask<{ error: Fault | null }>({ op: "check", sql });
      if (number !== this.checks) return;
      this.editor.setFault(error);
      this.editorFault.show(error, { quietly: true });
      if (!error && (this.run === null || this.run.isOver) && sql !== this.ran.sql) void this.plan.of(sql);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
    }
  }

  // --- running

  private start(): void {
    const chosen = this.editor.chosen;
    const sql = chosen?.text ?? this.editor.text;
    if (sql.trim() === "") return;
    this.checks++;
    this.ran = { sql, line: chosen?.line ?? 1, column: chosen?.column ?? 1 };
    this.editor.setFault(null);
    this.editorFault.show(null);
    void this.plan.of(sql, { isRun: true });
    this.begin({ op: "run", sql, progressive: this.toolbar.isProgressive, filters: [], panel: "main" });
  }

  private startPlan(plan: string): void {
    if (plan.trim() === "") return;
    this.ran = { sql: null, line: 1, column: 1 };
    this.plan.file.setFault(null);
    this.plan.fault.show(null);
    void this.plan.check();
    this.begin({ op: "run", plan, panel: "main" });
  }

  private begin(request: ConstructorParameters<typeof Run>[1]): void {
    this.run = new Run(this.connection, request, (run, change) => {
      if (run === this.run) this.changed(run, change);
    });
    this.toolbar.show(this.run);
    this.result.show(this.run);
    this.plan.showFlow(null, true);
  }

  private changed(run: Run, change: Change): void {
    this.toolbar.show(run);
    if (change === "flow" || change === "end") this.plan.showFlow(run.flow, !run.isOver);
    if (change !== "flow") this.result.show(run);
    if (change !== "end") return;
    if (run.fault) this.fail(run.fault);
    const tables = run.done?.tables ?? run.fault?.tables;
    if (tables) this.sidebar.showTables(tables);
    void this.connection.ask<{ history: HistoryEntry[] }>({ op: "history" })
      .then(({ history }) => this.sidebar.showHistory(history), () => undefined);
  }

  private fail(fault: Fault): void {
    if (this.ran.sql === null) {
      this.plan.view("file");
      this.plan.file.setFault(fault);
      this.plan.fault.show(fault);
      return;
    }
    const { line, column } = this.ran;
    const moved = (at: number | null, atColumn: number | null): number | null =>
      atColumn === null ? null : at === 1 ? atColumn + column - 1 : atColumn;
    const placed: Fault = {
      ...fault, line: fault.line === null ? null : fault.line + line - 1, column: moved(fault.line, fault.column),
      end_line: fault.end_line === null ? null : fault.end_line + line - 1, end_column: moved(fault.end_line, fault.end_column),
    };
    this.editor.setFault(placed);
    this.editorFault.show(placed);
  }

  private pin(): void {
    const { model, choices } = this.result.chart;
    if (!model || this.ran.sql === null || !this.run) return;
    const columns = this.run.columns;
    const title = model.kind === "figures" ? columns.map(({ name }) => name).join(", ")
      : `${columns[model.y].name} by ${model.x < 0 ? "row" : columns[model.x].name}`;
    this.dashboard.pin(this.ran.sql, choices, title);
  }
}

new Studio();
